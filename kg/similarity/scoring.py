"""
How alike two analyses are: the nearness of what they say, and what they have in common. Pure.

The nearness of the texts decides most; what the analyses are about decides the rest. Only what both state counts: the
weight of the others is shared out, so that an institution that notes no sizes is not punished for it. The score of two
is the same from either side.

Two on one subject, or on the same question, are history and not alike: the same words with other numbers are one
question at another time or horizon, and so are the questions of one series.

============  ======  ==========================================================================
part          weight  what it is
============  ======  ==========================================================================
text          0.55    cosine of the two vectors, nothing below 0
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
"""Version of what is said above; scores of two versions are never mixed."""

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {"text": 0.55, "sector": 0.20, "size": 0.05, "metrics": 0.10, "patterns": 0.10}
)

CANDIDATES: Final = 50
"""How many of the nearest by text are looked at."""

TIES: Final = 500
"""How many are looked at where many are as near as the last of them: texts that say the same."""

NEIGHBOURS: Final = 10
"""How many of them are kept."""

MIN_SCORE: Final = 0.8
"""Score from which on a neighbour is shown, where the question does not say."""

_NO_WORDS: Final = re.compile(r"[\W\d_]+")

_SIZES: Final = {size.value: place for place, size in enumerate(SizeClass)}


@dataclass(frozen=True, slots=True)
class Features:
    """
    What an analysis is compared by, beside its text.

    Attributes:
        key: which.
        subject_id: what it is about; two on one subject are history, and not alike.
        sector: of the subject.
        size: of the company, a word of :class:`imem.kg.kinds.enums.SizeClass`.
        metrics: about which it makes claims.
        patterns: active ones that it identified.
        asks: by what its question is known again, of an analysis of a market.
    """

    key: str
    subject_id: str | None = None
    sector: str | None = None
    size: str | None = None
    metrics: frozenset[str] = field(default_factory=frozenset)
    patterns: frozenset[str] = field(default_factory=frozenset)
    asks: frozenset[str] = field(default_factory=frozenset)


class Neighbour(NamedTuple):
    """One neighbour: how alike, 0 to 1, and which."""

    score: float
    key: str


def asks(question: str | None, series_id: str | None) -> frozenset[str]:
    """Return by what a question is known again: its words without numbers, and its series."""
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
    """Return a number of 64 bits, with its sign, for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)


def comparable(one: Features, other: Features) -> bool:
    """Return whether the two are on different subjects, and on different questions."""
    if one.subject_id is not None and one.subject_id == other.subject_id:
        return False
    return one.asks.isdisjoint(other.asks)


def score(cosine: float, one: Features, other: Features) -> float:
    """Return how alike the two are, 0 to 1; see the table above."""
    total, weights = WEIGHTS["text"] * min(max(cosine, 0.0), 1.0), WEIGHTS["text"]
    for name, value in _common(one, other).items():
        total += WEIGHTS[name] * value
        weights += WEIGHTS[name]
    # Rounded, so that it is the same from either side whatever the last bit of a product says.
    return round(min(total / weights, 1.0), 9)


def _common(one: Features, other: Features) -> dict[str, float]:
    """Return what the two have in common, each 0 to 1; what either does not state is left out."""
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
    """Return the most alike first, none twice, those of one score by key."""
    best: dict[str, float] = {}
    for one in neighbours:
        best[one.key] = max(one.score, best.get(one.key, 0.0))
    return sorted((Neighbour(value, key) for key, value in best.items()), key=lambda one: (-one.score, one.key))[:most]


def reranked(
    own: Features, candidates: Sequence[tuple[str, float]], features: Mapping[str, Features], most: int = NEIGHBOURS
) -> list[Neighbour]:
    """
    Return the best of the candidates, which are given as key and distance by text (1 minus cosine).

    Who is on the same subject or question, or of whom nothing is known, is left out.
    """
    found = []
    for key, distance in candidates:
        other = features.get(key)
        if other is None or key == own.key or not comparable(own, other):
            continue
        found.append(Neighbour(score(1.0 - distance, own, other), key))
    return ranked(found, most)
