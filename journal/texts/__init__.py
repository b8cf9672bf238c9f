"""Texts of others: for a prompt, and as JSON that Postgres returns unchanged."""
