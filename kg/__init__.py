"""The knowledge graph: kinds, engine, projection, similarity, named queries, views and as-of reads."""
