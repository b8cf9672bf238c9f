"""Correlation ids, traces, and the log of slow queries."""
