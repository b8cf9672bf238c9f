"""Output on the terminal: cleaned text, progress bars, the view of a load."""
