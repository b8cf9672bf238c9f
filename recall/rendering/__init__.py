"""A briefing as Markdown: bounds, quotation, and where a text begins to say something."""
