"""Prices of what is traded, and the returns that follow from them."""
