"""Alerts: raised in the transaction of what they report, acknowledged by people, sent at least once."""
