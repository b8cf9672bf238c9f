"""The sections of a briefing, one module each; :mod:`imem.recall.rendering.markdown` fits them into the room."""
