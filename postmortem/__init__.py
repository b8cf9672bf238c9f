"""Results of decisions: the trade ledger of deployments, and reflection notes about closed trades."""
