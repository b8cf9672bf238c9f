"""Cached results: C2 in the process, C1 shared by processes, one load for concurrent callers, invalidation by tags."""
