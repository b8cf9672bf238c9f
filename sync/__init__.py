"""Memory in time: priorities, notices, snapshots."""
