"""Failures: classes, reports, correlation, retries."""
