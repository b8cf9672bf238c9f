"""Items of a store of LangGraph's, as ``Item.dict()`` writes them: ``namespace``, ``key`` and ``value``."""

from __future__ import annotations

from typing import Final

from imem.ingest.memory_sources.entries import ImportedItem, Record, known_since, mapping, moment, required
from imem.journal.errors import BadInput

LISTS: Final = ("items",)
"""Keys of an object under which a list of entries may stand."""


def entry(record: Record) -> ImportedItem:
    """
    Return the item of an entry.

    Raises:
        BadInput: a field is missing or wrong.
    """
    labels = record.get("namespace")
    if not isinstance(labels, list) or not all(
        isinstance(label, str) and label and "." not in label for label in labels
    ):
        raise BadInput("namespace", "must be a list of texts without dots.")
    if "value" not in record or record["value"] is None:
        raise BadInput("value", "is missing.")
    key, value = required(record, "key"), mapping(record, "value")
    return ImportedItem(tuple(labels), key, value, moment(record, "created_at"), known_since(record))
