"""Scores: contexts, cells of evidence, and the formulas over them."""
