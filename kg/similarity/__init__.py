"""Similar analyses: embedders, vectors, scores, and the index of nearest neighbours."""
