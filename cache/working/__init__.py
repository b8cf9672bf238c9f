"""Working memory of agents, its changes, and its snapshots."""
