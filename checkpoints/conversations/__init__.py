"""Conversations that stay short without being forgotten."""
