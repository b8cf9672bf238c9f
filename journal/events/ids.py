"""Ids of rows: those that sort by time, and those that make a write idempotent."""

from __future__ import annotations

from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from uuid_utils.compat import uuid7

_NAMES: Final = uuid5(NAMESPACE_URL, "imem:workflow")


def new_id() -> UUID:
    """Return an id that sorts by its creation time."""
    return uuid7()


def id_of(*parts: object) -> UUID:
    """Return the deterministic id of *parts*: writing a row twice under it is idempotent."""
    return uuid5(_NAMES, "|".join(map(str, parts)))
