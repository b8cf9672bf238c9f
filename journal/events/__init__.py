"""Entries of the journal: their canonical bytes, tiers, and group commit."""
