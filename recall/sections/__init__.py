"""Renderers of the sections, one module each; :mod:`imem.recall.rendering.markdown` chooses what fits the bound."""
