"""Servers that are not ours: their URLs, and calls to them."""
