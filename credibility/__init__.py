"""Settlement of claims by outcomes, agents' track records, and verdicts on decisions."""
