"""The sections of a briefing, one module each; :mod:`imem.recall.rendering.markdown` chooses what fits the bound."""
