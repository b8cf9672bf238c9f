"""Gate 6: what was learned goes to a person, in packages, before it counts for others (postmortem-and-gates, 5.3)."""
