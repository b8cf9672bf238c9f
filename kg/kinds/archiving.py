"""The part of a record that stays in the graph after its detail was pruned there; the journal keeps everything."""

from typing import Final

from imem.kg.kinds.base import Group
from imem.kg.kinds.fields import Strings, Text

DETAIL_TYPES: Final = frozenset({"text", "long", "strings", "json"})
"""Types of properties that a stub lacks; what queries find and sort by (keys, names, numbers, times) stays."""

SUMMARY_BYTES: Final = 500
"""Longest summary on a stub, in bytes of UTF-8."""


class Archive(Group, governed="archives"):
    """
    That the graph keeps a stub of the record alone: what queries find it by, its links, and a summary.

    A kind with this group may be pruned; all others never are. Its node has ``archived``, and nothing undoes it: so the
    graph is the same in whatever order events are applied.
    """

    archive_summary: Text
    archive_grounds: Strings


def summary_of(text: str) -> str:
    """Return the beginning of *text*, at most :data:`SUMMARY_BYTES` long, with whole characters."""
    content = text.encode()
    return text if len(content) <= SUMMARY_BYTES else content[: SUMMARY_BYTES - 3].decode(errors="ignore") + "\u2026"
