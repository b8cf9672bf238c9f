"""The journal of the test's own that credibility has."""

from __future__ import annotations

from tests.credibility.conftest import world

__all__ = ["world"]
