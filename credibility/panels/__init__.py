"""Panels: the answers of several agents to one question, weighted by what their records on common questions show."""
