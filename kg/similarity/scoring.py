"""
The similarity of two analyses: cosine of their texts, and their common features. Pure.

Only features that both state count; the weight of the others is distributed over them, so that an institution that
records no sizes loses nothing. The score is symmetric.

Two analyses of one subject, or of the same question, are history and not similar. Questions are the same if they differ
in numbers alone, or belong to one series.

============  ======  ==========================================================================
part          weight  value
============  ======  ==========================================================================
text          0.55    cosine of the two vectors, from that of unrelated texts on, nothing below 0
sector        0.20    1 for the same sector of the two subjects, else 0
size          0.05    1 for the same size of the two companies, 0.5 for the next, else 0
metrics       0.10    metrics about which both make claims, as a share of those about which either does
patterns      0.10    active patterns seen in both, as a share of those seen in either
============  ======  ==========================================================================
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from imem.kg.kinds.enums import SizeClass

RULES: Final = "2"
"""Version of the rules above; scores of two versions are never mixed."""

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {"text": 0.55, "sector": 0.20, "size": 0.05, "metrics": 0.10, "patterns": 0.10}
)

CANDIDATES: Final = 50
"""How many of the nearest by text are scored."""

TIES: Final = 500
"""Most candidates with those as near as the last, such as equal texts."""

NEIGHBOURS: Final = 10
"""Neighbours that are stored."""

MIN_SCORE: Final = 0.8
"""Default score from which a neighbour is shown."""

_NO_WORDS: Final = re.compile(r"[\W\d_]+")

_SIZES: Final = {size.value: place for place, size in enumerate(SizeClass)}


@dataclass(frozen=True, slots=True)
class Features:
    """
    The features of an analysis, beside its text.

    Attributes:
        key: which.
        subject_id: its subject; two on one subject are not similar but history.
        sector: of the subject.
        size: of the company, a value of :class:`imem.kg.kinds.enums.SizeClass`.
        metrics: metrics of its claims.
        patterns: active ones that it identified.
        asks: by what its question is recognised, of an analysis of a market.
    """

    key: str
    subject_id: str | None = None
    sector: str | None = None
    size: str | None = None
    metrics: frozenset[str] = field(default_factory=frozenset)
    patterns: frozenset[str] = field(default_factory=frozenset)
    asks: frozenset[str] = field(default_factory=frozenset)


class Neighbour(NamedTuple):
    """One neighbour: its score, 0 to 1, and its key."""

    score: float
    key: str


def asks(question: str | None, series_id: str | None) -> frozenset[str]:
    """Return by what a question is recognised: its words without numbers, and its series."""
    found = set()
    if question is not None:
        found.add(f"asks {words_of(question)}")
    if series_id is not None:
        found.add(f"series {series_id}")
    return frozenset(found)


def words_of(question: str) -> str:
    """Return the words of a question without numbers, in small letters."""
    return " ".join(_NO_WORDS.sub(" ", question.lower()).split())


def hash64(text: str) -> int:
    """Return a signed 64-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)


def comparable(one: Features, other: Features) -> bool:
    """Return whether the two are on different subjects, and on different questions."""
    if one.subject_id is not None and one.subject_id == other.subject_id:
        return False
    return one.asks.isdisjoint(other.asks)


def score(cosine: float, one: Features, other: Features) -> float:
    """Return the similarity of the two, 0 to 1; see the table above."""
    total, weights = WEIGHTS["text"] * min(max(cosine, 0.0), 1.0), WEIGHTS["text"]
    for name, value in _common(one, other).items():
        total += WEIGHTS[name] * value
        weights += WEIGHTS[name]
    # Rounded, so that it is symmetric in spite of floating-point order.
    return round(min(total / weights, 1.0), 9)


def _common(one: Features, other: Features) -> dict[str, float]:
    """Return the similarity of each feature that both state, 0 to 1."""
    found: dict[str, float] = {}
    if one.sector is not None and other.sector is not None:
        found["sector"] = float(one.sector == other.sector)
    if one.size in _SIZES and other.size in _SIZES:
        found["size"] = 1.0 - abs(_SIZES[one.size] - _SIZES[other.size]) / 2.0
    if one.metrics and other.metrics:
        found["metrics"] = len(one.metrics & other.metrics) / len(one.metrics | other.metrics)
    if one.patterns and other.patterns:
        found["patterns"] = len(one.patterns & other.patterns) / len(one.patterns | other.patterns)
    return found


def ranked(neighbours: Iterable[Neighbour], most: int = NEIGHBOURS) -> list[Neighbour]:
    """Return the best neighbours, without duplicates; those of one score by key."""
    best: dict[str, float] = {}
    for value, key in neighbours:
        if value >= best.get(key, 0.0):
            best[key] = value
    # As rank_of, without a call for each: an import ranks millions.
    return [Neighbour(-value, key) for value, key in sorted([(-value, key) for key, value in best.items()])[:most]]


def rank_of(one: Neighbour) -> tuple[float, str]:
    """Return what neighbours are ordered by: the best first, those of one score by key."""
    return -one.score, one.key


def reranked(
    own: Features, candidates: Sequence[tuple[str, float]], features: Mapping[str, Features], most: int = NEIGHBOURS
) -> list[Neighbour]:
    """
    Score the candidates, given as key and distance by text (1 minus cosine), and return the best.

    Those on the same subject or question, or without features, are left out.
    """
    found = []
    for key, distance in candidates:
        other = features.get(key)
        if other is None or key == own.key or not comparable(own, other):
            continue
        found.append(Neighbour(score(1.0 - distance, own, other), key))
    return ranked(found, most)
