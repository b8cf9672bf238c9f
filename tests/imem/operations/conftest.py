"""The servers and a journal of one's own, as for the proofs of the graph."""

from tests.kg.projection.conftest import empty, journal, world

__all__ = ["empty", "journal", "world"]
