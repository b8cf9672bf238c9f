"""Data points that disagree: how they differ, which value counts, and what becomes of the contradiction."""
