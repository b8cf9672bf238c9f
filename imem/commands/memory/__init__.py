"""Commands that read from the memory, and write to it."""
