"""What an analysis under way needs to survive: leases, checkpoints, recovery, pauses, conversations."""
