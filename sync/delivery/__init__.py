"""Delivery between agents: pushing, routing, notices, pulling."""
