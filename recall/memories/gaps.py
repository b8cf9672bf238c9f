"""Gaps of a search by meaning: vectors that are not made yet, and languages that the encoder does not know. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from imem.journal.postgres.connection import Row
from imem.kg.similarity.embedders import Embedder, LocalEmbedder
from imem.kg.similarity.languages import language_of, named


def unknown_languages(embedder: Embedder, query: str, found: Iterable[str]) -> str | None:
    """
    Return what a search by meaning lacks of languages; None for nothing.

    Args:
        embedder: made the vectors. The languages of one behind an endpoint are unknown.
        query: what was asked.
        found: the texts that are shown.
    """
    if not isinstance(embedder, LocalEmbedder):
        return None
    asked = language_of(query)
    foreign = [code for code in map(language_of, found) if code is not None and code not in embedder.languages]
    who = []
    if asked is not None and asked not in embedder.languages:
        who.append(f"the query ({named([asked])})")
    if foreign:
        who.append(f"{len(foreign)} of the texts found ({named(foreign)})")
    if not who:
        return None
    which = " and ".join(who)
    return f"the sentence encoder does not know the language of {which}: words alone find what is said in it"


def unembedded(rows: Iterable[Row], *, waits: bool) -> str | None:
    """
    Return what a search by meaning lacks; None for nothing.

    Args:
        rows: what was found: they say how many of them have no vector.
        waits: whether vectors of what is searched are still to be made: without one and without a word of the query a
            text is not among the rows.
    """
    if without := next((row["unembedded"] for row in rows), 0):
        return f"{without} of the texts looked at have no vector yet and were found by words alone"
    return "some of the texts have no vector yet and are found by words alone" if waits else None


def joined(*reasons: str | None) -> str | None:
    """Return *reasons* as one; None where there is none."""
    return "; ".join(filter(None, reasons)) or None
