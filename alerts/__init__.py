"""Alerts: raised with the change they report, acknowledged by people, sent at least once."""
