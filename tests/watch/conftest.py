"""The servers and a journal of one's own, as for the proofs of the graph."""

from tests.graph_proofs.conftest import empty, journal, world

__all__ = ["empty", "journal", "world"]
