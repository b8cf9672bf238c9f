"""Files into the journal: lines, tables by a map, and what a load reports."""
