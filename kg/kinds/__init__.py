"""The kinds of nodes, by area; users import them from :mod:`imem.kg.model`."""
