"""Rendering of briefings as Markdown: token bound, quotation, lead of long texts."""
