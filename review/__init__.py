"""Review tasks: questions that people answer, with a default that applies if nobody does."""
