"""Lessons: what was learned, who decides on it, and whom it reaches."""
