"""The graph as a projection of the journal: the applier, rebuild, hash, and verification."""
