"""Institutional memory for teams of analysis agents."""
