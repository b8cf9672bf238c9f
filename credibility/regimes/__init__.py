"""Regimes of markets: readings of indicators, detection, and the runs that scores are published in."""
