"""Authorized access to the trade ledger and to reflection notes."""
