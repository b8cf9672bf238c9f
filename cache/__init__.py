"""Working memory of agents, and what makes reads fast."""
