"""Rendering of briefings as Markdown: token bound, lead of long texts."""
