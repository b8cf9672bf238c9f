"""The kinds of nodes, by area; users import them from :mod:`kg.model`."""
