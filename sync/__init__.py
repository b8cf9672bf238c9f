"""Synchronisation of agents' memories: priorities, notices, snapshots."""
