"""Debates: when records decide, which position is the cautious one, and earlier debates that are comparable."""
