"""What goes into the journal: entries, their canonical bytes, their priority, and their grouping into writes."""
