"""
The order in which candidates for a query are shown. Pure.

Three raw scores are each scaled over all candidates to mean 0 and deviation 1: words, the cosine of the text, and that
of the text with the message before it. To their weighted mean are added a share of that of the neighbours in the
conversation, since an answer often stands beside the sentence that is found, and a bonus where the query names the
author, or the date on which it was said. The weights were chosen on three conversations of LoCoMo and measured on two
others; ``docs/reference/benchmarks`` has the figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from imem.journal.texts.spelling import without_accents
from imem.recall.memories.dates import NamedDate, named_dates

CANDIDATES: Final = 50
"""Candidates of each list: by words, by vectors, by those of contexts."""

WORDS, OWN, CONTEXT = 1.0, 2.0, 2.0
"""Weights of the three scores."""

BEFORE, AFTER = 0.2, 0.1
"""Shares of the scores of the message before and the one after."""

NAMED: Final = 0.5
"""Bonus of an author whom the query names, in deviations."""

DATED: Final = 1.5
"""Bonus of what was said on a date that the query names, in deviations."""

DATE_HALVES_DAYS: Final = 7.0
"""How many days before or after that date the bonus has halved: what happens then is told later, or announced."""

NEW: Final = 1.0
"""Bonus of what is new, in deviations; it halves with each half-life, where one is asked for."""

_DAY_S: Final = 86_400.0

Place = tuple[str, str, int]
"""Collection (such as a namespace), conversation, and ordinal in it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A memory that may answer a query.

    Attributes:
        id: of the memory.
        words: how well its words match, 0 for not at all.
        own, context: cosines of its vectors with the query's; None where one of them is missing.
        place: its position in a conversation; None outside conversations.
        author: who said it, if known.
        at: since when it says so.
        occurred_at: when it was said.
    """

    id: UUID
    words: float
    own: float | None = None
    context: float | None = None
    place: Place | None = None
    author: str | None = None
    at: datetime | None = None
    occurred_at: datetime | None = None


def rank(
    candidates: Sequence[Candidate], query: str, *, now: datetime | None = None, half_life_days: float | None = None
) -> list[tuple[Candidate, float]]:
    """
    Return *candidates* with their scores, best first, equal ones by id.

    Args:
        now: the moment of the query, from which ages and dates such as "last May" count; None: no date counts.
        half_life_days: age at which the bonus of what is new has halved; None: there is none.
    """
    scaled = [
        (WORDS, _scaled([one.words for one in candidates])),
        (OWN, _scaled([one.own for one in candidates])),
        (CONTEXT, _scaled([one.context for one in candidates])),
    ]
    # Without vectors the words alone decide, on the same scale.
    used = [(weight, scores) for weight, scores in scaled if any(score is not None for score in scores)]
    total = sum(weight for weight, _ in used)
    fused = [
        sum(weight * (scores[nth] or 0.0) for weight, scores in used) / total if total else 0.0
        for nth in range(len(candidates))
    ]
    places = {one.place: score for one, score in zip(candidates, fused, strict=True) if one.place is not None}
    dates = named_dates(query, now) if now is not None else []
    # Messages of a session share a moment.
    dated = {at: _dated(at, dates) for at in {one.occurred_at for one in candidates}} if dates else {}
    named = {author for author in {one.author for one in candidates} if author and _names(query, author)}
    found = [
        (
            one,
            score
            + _beside(places, one.place)
            + (NAMED if one.author in named else 0.0)
            + dated.get(one.occurred_at, 0.0)
            + _newness(one.at, now, half_life_days),
        )
        for one, score in zip(candidates, fused, strict=True)
    ]
    return sorted(found, key=lambda pair: (-pair[1], pair[0].id))


def _scaled(scores: Sequence[float | None]) -> list[float | None]:
    """Scale to mean 0 and deviation 1; what is None stays so. The sums do not depend on the order."""
    known = [score for score in scores if score is not None]
    if not known:
        return list(scores)
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in known) / len(known))
    if deviation <= 1e-9 * max(1.0, abs(mean)):
        return [None if score is None else 0.0 for score in scores]
    return [None if score is None else (score - mean) / deviation for score in scores]


def _beside(places: dict[Place, float], place: Place | None) -> float:
    if place is None:
        return 0.0
    namespace, conversation, ordinal = place
    before = places.get((namespace, conversation, ordinal - 1), 0.0)
    return BEFORE * before + AFTER * places.get((namespace, conversation, ordinal + 1), 0.0)


def _newness(at: datetime | None, now: datetime | None, half_life_days: float | None) -> float:
    if at is None or now is None or half_life_days is None:
        return 0.0
    return NEW * math.exp2(-max(0.0, (now - at).total_seconds()) / (_DAY_S * half_life_days))


def _dated(at: datetime | None, dates: Sequence[NamedDate]) -> float:
    if at is None:
        return 0.0
    days = min(abs(named.days_from(at.astimezone(UTC).date())) for named in dates)
    return DATED * math.exp2(-days / DATE_HALVES_DAYS)


def _names(query: str, author: str) -> bool:
    """Return whether *query* names *author*, as whole words, whatever the case, the accents and the form."""
    return re.search(rf"(?<!\w){re.escape(without_accents(author))}(?!\w)", without_accents(query)) is not None


def similarity(cosine: float, unrelated: float) -> float:
    """Return the similarity, 0 to 1, that *cosine* means where that of unrelated texts is *unrelated*."""
    return min(1.0, max(0.0, (cosine - unrelated) / (1.0 - unrelated)))
