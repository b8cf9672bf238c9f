"""The load format: parsing of lines, ownership, journal entries, and the JSON schema."""
