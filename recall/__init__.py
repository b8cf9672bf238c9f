"""Briefings about a subject under one deadline, and their rendering."""
