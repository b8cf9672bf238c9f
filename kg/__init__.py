"""The knowledge graph: kinds, engine, applier, rebuild, hash, named queries and the answer as of a day."""
