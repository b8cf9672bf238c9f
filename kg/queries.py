"""
The named queries of the graph: parameters, columns, order, and whether they take an as-of moment.

The statement files are the only definition. Each statement opens with a comment of a fixed form, which this module
parses::

    // name //
    // What it is for.
    // parameters: subject_id (string), limit (int)
    // columns: analysis (map), total (int)
    // order: date descending, then id
    // as_of: yes

:func:`arguments` refuses a missing or unknown parameter before the call, since the server's error would not name the
query. User text never becomes query syntax: :func:`names_search` and :func:`topic_search` keep its words and drop the
operators of the full-text language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from imem.journal.statements import Statement, load, root_of

AREAS: Final = ("subjects", "agents", "patterns", "debates", "learning", "evidence", "contradictions")
"""The files of ``cypher/queries`` that hold named queries; the others hold statements of migrations and the applier."""

AS_OF: Final = frozenset({"known_until", "recorded_until"})
"""Parameters of an as-of query: the latest known_at and recorded_at that count."""

_FIELD = re.compile(r"^// (parameters|columns|order|as_of): ?(.*(?:\n//   .*)*)$", re.MULTILINE)
_ENTRY = re.compile(r"([a-z_]+(?:, [a-z_]+)*) \(((?:[^()]|\([^()]*\))*)\)")

_WORD = re.compile(r"\w+")
_MOST_WORDS: Final = 12
_MOST_NAMES: Final = 6
_LONGEST_WORD: Final = 40
"""Bounds of a full-text expression; a word with two misspellings takes the server 10 to 20 ms."""

_LONG_NAME: Final = 8
"""Length from which a word may have two misspelt letters."""


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """
    One named query.

    Attributes:
        name: its heading, by which ``Graph.read`` runs it.
        area: the file that holds it.
        purpose: what it is for.
        parameters: name → type, unit and meaning.
        columns: name → type and meaning, in their order.
        order: how rows are sorted.
        as_of: whether it takes an as-of moment, by :data:`AS_OF`.
    """

    name: str
    area: str
    purpose: str
    parameters: Mapping[str, str]
    columns: Mapping[str, str]
    order: str
    as_of: bool


def _entries(text: str, statement: Statement) -> Mapping[str, str]:
    """Return name → meaning of ``name (meaning), one, other (meaning)``."""
    found = {name: meaning for names, meaning in _ENTRY.findall(text) for name in names.split(", ")}
    if not found:
        raise ValueError(f"{statement.path.name}: {statement.name} names none of its {text!r}.")
    return MappingProxyType(found)


def read_header(statement: Statement) -> NamedQuery:
    """
    Parse the comment of a statement.

    Raises:
        ValueError: the comment is not of the fixed form.
    """
    fields = {name: re.sub(r"\n//\s+", " ", text) for name, text in _FIELD.findall(statement.text)}
    answer = fields.get("as_of", "").partition(" ")[0]
    if set(fields) != {"parameters", "columns", "order", "as_of"} or answer not in {"yes", "no"}:
        raise ValueError(f"{statement.path.name}: {statement.name} lacks a line of its comment.")
    return NamedQuery(
        name=statement.name,
        area=statement.path.stem,
        purpose=" ".join(statement.text.partition("// parameters:")[0].replace("//", " ").split()),
        parameters=_entries(fields["parameters"], statement),
        columns=_entries(fields["columns"], statement),
        order=fields["order"],
        as_of=answer == "yes",
    )


@cache
def named_queries() -> Mapping[str, NamedQuery]:
    """Return every named query by its name."""
    statements = load(root_of("kg", "cypher") / "queries", ".cypher").values()
    return MappingProxyType({one.name: read_header(one) for one in statements if one.path.stem in AREAS})


def arguments(name: str, **values: Any) -> dict[str, Any]:
    """
    Return *values* as the parameters of the named query.

    Raises:
        KeyError: there is no such query.
        TypeError: a parameter is missing or unknown.
    """
    wanted = set(named_queries()[name].parameters)
    wrong = {"missing": sorted(wanted - set(values)), "unknown": sorted(set(values) - wanted)}
    if any(wrong.values()):
        found = (f"{what} parameters {', '.join(names)}" for what, names in wrong.items() if names)
        raise TypeError(f"{name}: {'; '.join(found)}.")
    return values


def _words(text: str, most: int) -> list[str]:
    """Return the words of *text* in small letters, without duplicates, bounded in number and length."""
    words = dict.fromkeys(word[:_LONGEST_WORD] for word in _WORD.findall(text.lower()) if word.strip("_"))
    return list(words)[:most]


def names_search(text: str) -> str:
    """
    Return the full-text expression for ``nearest_names``: each word exact, as a prefix, or misspelt.

    A word may have one letter wrong, left out, added or swapped with the next, a long one two. Only the first six words
    count. The result is empty when *text* holds no word; the prefix of a subject id (``company:``, ``market:``) is
    removed.
    """
    for prefix in ("company:", "market:"):
        text = text.removeprefix(prefix)
    words = _words(text, _MOST_NAMES)
    return " ".join(f"{word}^4 {word}*^2 {word}~{1 if len(word) < _LONG_NAME else 2}" for word in words)


def topic_search(text: str) -> str:
    """Return the full-text expression for ``similar_debates``: any of the words; empty when *text* holds none."""
    return " ".join(_words(text, _MOST_WORDS))


SEARCHES: Final[Mapping[str, Callable[[str], str]]] = {"nearest_names": names_search, "similar_debates": topic_search}
"""Query → what builds its full-text expression from the user's text."""
