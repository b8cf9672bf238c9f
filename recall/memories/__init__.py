"""Memories: sentences that are kept in namespaces, and found again by their words and by their meaning."""
