"""Search over everything: records, debates and memories, by words and by meaning."""
