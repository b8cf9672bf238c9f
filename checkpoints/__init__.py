"""Checkpoints of running analyses: leases, recovery, pauses, conversations."""
