"""
Analyses of other subjects that are like those of this one: what was concluded in a like case, and what was decided.

For the present the stored neighbours answer, a lookup by key. As of a day nothing stored does: what is near changes
with everything that is recorded later, and a place among the ten nearest that somebody took since would be missed. So
the vectors that stood then are searched, all of them, and compared by what was known then. Only where those are very
many does the index help, which looks at part of them; the answer then says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kg.asof import Answer, Clock, Ref
from kg.neighbours import features_of, model_version
from kg.similarity import CANDIDATES, NEIGHBOURS, SERVED, reranked
from recall.arms import Question, record
from recall.model import Completeness, Quality, SimilarArm, SimilarItem, TakenDecision
from recall.rows import active_patterns

NEWEST: Final = 3
"""How many of the subject's own analyses others are compared with: what it is like now, not what it was like once."""

FEWER: Final = 5
"""How many are shown where there is no time for all."""

FRESH_S: Final = 60.0
"""How long a new analysis may take until it is found, in seconds."""

COUNTED: Final = 10_000
"""Statements that wait to be compared are counted up to here."""

MOST_EXACT: Final = 40_000
"""Most vectors of which a search as of a day looks at each; 20 MB of them are read for 10,000."""


@dataclass(frozen=True, slots=True)
class _Found:
    """
    One neighbour.

    Attributes:
        like: the analysis that it is like.
        key: which it is.
        score: how alike they are.
    """

    like: str
    key: str
    score: float


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a search found, from which vectors and rules, and why it is not everything."""

    found: Sequence[_Found]
    model_version: str | None = None
    reason: str | None = None


async def analyses(ask: Question, *, min_score: float = SERVED) -> SimilarArm:
    """Return analyses of other subjects that are like the newest ones of the subject, most alike first."""
    return await _like(ask, await _newest(ask, NEWEST), min_score)


async def analyses_like(ask: Question, analysis_id: str, *, min_score: float = SERVED) -> SimilarArm:
    """Return analyses of other subjects that are like the given one, most alike first."""
    return await _like(ask, [analysis_id], min_score)


async def fewer(ask: Question) -> SimilarArm:
    """Return the first of those that are like the newest analysis of the subject alone."""
    few = replace(ask, limits=replace(ask.limits, similar=min(FEWER, ask.limits.similar)))
    arm = await _like(few, await _newest(ask, 1), SERVED)
    why = {"quality": Quality.PARTIAL, "reason": "only the newest analysis was compared"}
    return arm.model_copy(update={**why, "completeness": Completeness.TOP_N})


async def _newest(ask: Question, count: int) -> list[str]:
    given = {"subject_id": ask.subject_id, "kinds": ["Analysis"], "limit": count, **ask.at.limits}
    return [row["key"] for row in await ask.database.named("records_of_subject", given, deadline=ask.deadline)]


async def _like(ask: Question, own: Sequence[str], min_score: float) -> SimilarArm:
    if not own:
        return SimilarArm()
    of_now = ask.at.asked is None and ask.at.clock is Clock.KNOWN
    looked = await (_stored(ask, own, min_score) if of_now else _searched(ask, own, min_score))
    reason = looked.reason or await _behind(ask, own)
    best: dict[str, _Found] = {}
    for one in sorted(looked.found, key=lambda one: (-one.score, one.key, one.like)):
        best.setdefault(one.key, one)
    items = await _items(ask, list(best.values()))
    quality = Quality.EXACT if reason is None else Quality.PARTIAL
    return SimilarArm(
        items=items[: ask.limits.similar], total=len(items), quality=quality, reason=reason,
        model_version=looked.model_version,
    )  # fmt: skip


# Who is near


async def _stored(ask: Question, own: Sequence[str], min_score: float) -> _Looked:
    given = {"keys": list(own), "min_score": min_score}
    rows = await ask.database.named("similar_stored", given, deadline=ask.deadline)
    found = [_Found(row["analysis_id"], row["neighbour_id"], row["score"]) for row in rows]
    return _Looked(found, rows[0]["model_version"] if rows else None)


async def _searched(ask: Question, own: Sequence[str], min_score: float) -> _Looked:
    models = await ask.database.named("model_in_use", deadline=ask.deadline)
    if not models:
        return _Looked([], reason="no analysis was compared yet")
    model = models[0]
    given = {"model": model["model"], "keys": list(own), "limit": CANDIDATES, **ask.at.limits}
    counted = {"model": model["model"], "limit": MOST_EXACT + 1, **ask.at.limits}
    count = "vectors_known" if ask.at.clock is Clock.KNOWN else "vectors_recorded"
    exact = (await ask.database.named(count, counted, deadline=ask.deadline))[0]["known"] <= MOST_EXACT
    rows = await ask.database.named("nearest_exact" if exact else "nearest", given, deadline=ask.deadline)
    candidates: dict[str, list[tuple[str, float]]] = {key: [] for key in own}
    for row in rows:
        candidates[row["key"]].append((row["candidate"], row["distance"]))
    wanted = sorted({*own, *(key for near in candidates.values() for key, _ in near)})
    active = frozenset(await active_patterns(ask.database, ask.at, deadline=ask.deadline))
    values = {"keys": wanted, **ask.at.limits}
    facts = await ask.database.named("similar_features", values, deadline=ask.deadline)
    features = {row["key"]: features_of(row, active) for row in facts}
    found = [
        _Found(key, one.key, one.score)
        for key, near in candidates.items()
        if key in features
        for one in reranked(features[key], near, features, NEIGHBOURS)
        if one.score >= min_score
    ]
    reason = None if exact else f"more than {MOST_EXACT:,} analyses were known: the nearest were looked for by an index"
    return _Looked(found, model_version(model["model_id"], model["dimension"]), reason)


async def _behind(ask: Question, own: Sequence[str]) -> str | None:
    """Return why something may be missing that was known: it is not compared yet."""
    given = {"keys": list(own), "limit": COUNTED + 1}
    row = (await ask.database.named("similarity_waiting", given, deadline=ask.deadline))[0]
    if not row["waiting"] or row["since"] > ask.at.recorded_until:
        return None
    if row["own"]:
        return "the subject's newest analyses are not all compared yet"
    many = f"{row['waiting']:,}" if row["waiting"] <= COUNTED else f"more than {COUNTED:,}"
    return f"{many} statements about analyses are not compared yet" if row["age_s"] > FRESH_S else None


# What they say


async def _items(ask: Question, found: Sequence[_Found]) -> list[SimilarItem]:
    """Return the neighbours that were known, with what was decided after them."""
    if not found:
        return []
    given = {"analyses": [one.key for one in found], **ask.at.limits}
    parts = await ask.database.named("parts_of_analyses", given, deadline=ask.deadline)
    decided: dict[str, list[str]] = {}
    for row in parts:
        if row["kind"] == "Decision":
            decided.setdefault(row["analysis_id"], []).append(row["key"])
    refs: list[Ref] = [("Analysis", one.key) for one in found]
    refs += [("Decision", key) for keys in decided.values() for key in keys]
    answer = await ask.dated(refs)
    return [
        SimilarItem(
            subject_id=analysis.core["subject_id"],
            analysis=record(analysis),
            like=one.like,
            score=one.score,
            decisions=_decisions(decided.get(one.key, []), answer),
        )
        for one in found
        if (analysis := answer.records.get(("Analysis", one.key))) is not None
    ]


def _decisions(keys: Sequence[str], answer: Answer) -> list[TakenDecision]:
    found = [answer.records[ref] for key in keys if (ref := ("Decision", key)) in answer.records]
    return [TakenDecision(decision=record(one)) for one in found]


async def subject_of(ask: Question, what: str) -> str | None:
    """Return the subject of the analysis that is called *what*; None when no analysis was known under that name."""
    found = (await ask.dated([("Analysis", what)])).records.get(("Analysis", what))
    return None if found is None else str(found.core["subject_id"])
