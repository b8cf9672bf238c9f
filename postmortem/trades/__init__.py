"""The trade ledger: one row for each round trip of a deployment."""
