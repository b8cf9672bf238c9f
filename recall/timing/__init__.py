"""Time kept back for assembling answers, lateness of answers, and timeout rates with their alert."""
