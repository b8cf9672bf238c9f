"""One line of input: parsing, ownership, the journal entry made of it, and its JSON schema."""
