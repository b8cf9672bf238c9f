"""The sections of a rendered briefing, one module each; :mod:`recall.markdown` fits them into the room there is."""
