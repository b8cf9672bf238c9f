"""
Analyses of other subjects that are similar to the newest of this one, and their results.

As of now the stored neighbours are read by key. As of an earlier moment they cannot be used: analyses recorded since
have displaced some of the ten nearest. So all vectors valid at that moment are compared (exact search). Above
:data:`MOST_EXACT` vectors the index is used, which is approximate; the section is then labelled partial.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pydantic import Field

from imem.cache.tiers import tags
from imem.kg.asof import AsOfClock, RecordAsOf, active_among
from imem.kg.kinds.catalog import subject_ref
from imem.kg.similarity.neighbours import features_of, model_version
from imem.kg.similarity.scoring import CANDIDATES, MIN_SCORE, NEIGHBOURS, TIES, asks, reranked
from imem.recall.answers import (
    AnswerModel,
    BriefingSection,
    ClaimSummary,
    Completeness,
    DatedRecord,
    Quality,
    ReviewedDecision,
)
from imem.recall.rendering.formatting import conclusion, decision_text, label, quote_lead, result_text, share, when
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, claims_settled, record
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.8
FADING: Final = 0.75
SUMMARY_CHARS: Final = 90
"""Longest quotation of a summary, in characters."""

NEWEST: Final = 3
"""How many of the subject's newest analyses others are compared with."""

FEWER: Final = 5
"""Most items of the fallback."""

FRESH_S: Final = 60.0
"""Time within which a new analysis should be found, in seconds."""

_MARKET: Final = "market:"

COUNTED: Final = 10_000
"""Waiting statements are counted up to this many."""

MOST_EXACT: Final = 40_000
"""Most vectors of an exact search; 10,000 take 20 MB of reads."""


class SimilarItem(AnswerModel):
    """
    An analysis of another subject that is similar to one of the subject's own.

    Attributes:
        subject_id: its subject.
        like: key of the subject's own analysis that it is similar to.
        score: similarity, 0 to 1 (:mod:`imem.kg.similarity.scoring`).
        decisions: decisions that followed it, with their verdicts as of the moment.
        claims: how its claims turned out; None without any.
    """

    subject_id: str
    analysis: DatedRecord
    like: str
    score: float
    decisions: list[ReviewedDecision] = Field(default_factory=list)
    claims: ClaimSummary | None = None


class SimilarSection(BriefingSection):
    """
    Analyses of other subjects that are similar to the newest of this one, most similar first.

    Attributes:
        model_version: version of vectors and rules behind the scores; scores of two versions are not comparable.
    """

    items: list[SimilarItem] = Field(default_factory=list)
    model_version: str | None = None


# Retrieval


@dataclass(frozen=True, slots=True)
class _SimilarAnalysis:
    """
    One neighbour.

    Attributes:
        like: key of the subject's own analysis.
        key: key of the neighbour.
        score: their similarity.
    """

    like: str
    key: str
    score: float


@dataclass(frozen=True, slots=True)
class _SearchResult:
    """
    What a search found.

    Attributes:
        own: keys of the subject's own analyses.
        found: the neighbours.
        model_version: version of vectors and rules.
        reason: why the result is not complete; None if it is.
    """

    own: Sequence[str]
    found: Sequence[_SimilarAnalysis] = ()
    model_version: str | None = None
    reason: str | None = None


async def load(request: RetrievalRequest, *, min_score: float = MIN_SCORE) -> SimilarSection:
    """Return analyses of other subjects similar to the newest ones of the subject, most similar first."""
    return await _like(request, None, NEWEST, min_score)


async def load_like(request: RetrievalRequest, analysis_id: str, *, min_score: float = MIN_SCORE) -> SimilarSection:
    """Return analyses of other subjects similar to the given one, most similar first."""
    return await _like(request, [analysis_id], 1, min_score)


async def load_from_newest(request: RetrievalRequest) -> SimilarSection:
    """Return the first analyses similar to the newest one of the subject alone; a fallback."""
    few = replace(request, limits=replace(request.limits, similar=min(FEWER, request.limits.similar)))
    section = await _like(few, None, 1, MIN_SCORE)
    why = {"quality": Quality.PARTIAL, "reason": "only the newest analysis was compared"}
    return section.model_copy(update={**why, "completeness": Completeness.TOP_N})


async def _like(request: RetrievalRequest, keys: Sequence[str] | None, newest: int, min_score: float) -> SimilarSection:
    """Return analyses similar to *keys*, or to the subject's *newest* analyses."""
    of_now = request.at.asked is None and request.at.clock is AsOfClock.KNOWN
    looked = await (
        _stored(request, keys, newest, min_score) if of_now else _searched(request, keys, newest, min_score)
    )
    if not looked.own:
        return SimilarSection()
    best: dict[str, _SimilarAnalysis] = {}
    for one in sorted(looked.found, key=lambda one: (-one.score, one.key, one.like)):
        best.setdefault(one.key, one)
    (items, total), behind = await asyncio.gather(_items(request, list(best.values())), _behind(request, looked.own))
    reason = looked.reason or behind
    quality = Quality.EXACT if reason is None else Quality.PARTIAL
    return SimilarSection(
        items=items, total=total, quality=quality, reason=reason, model_version=looked.model_version,
    )  # fmt: skip


# Nearest neighbours


async def _newest(request: RetrievalRequest, count: int) -> list[str]:
    given = {"subject_id": request.subject_id, "kinds": ["Analysis"], "limit": count, **request.at.limits}
    return [row["key"] for row in await request.database.named("records_of_subject", given, deadline=request.deadline)]


async def _stored(
    request: RetrievalRequest, keys: Sequence[str] | None, newest: int, min_score: float
) -> _SearchResult:
    own = list(keys) if keys is not None else await _newest(request, newest)
    if not own:
        return _SearchResult(own)
    rows = await request.database.named(
        "similar_stored", {"keys": own, "min_score": min_score}, deadline=request.deadline
    )
    found = [_SimilarAnalysis(row["analysis_id"], row["neighbour_id"], row["score"]) for row in rows]
    return _SearchResult(own, found, rows[0]["model_version"] if rows else None)


async def _searched(
    request: RetrievalRequest, keys: Sequence[str] | None, newest: int, min_score: float
) -> _SearchResult:
    given = {
        "keys": keys, "subject_id": request.subject_id, "newest": newest, "most": MOST_EXACT, "limit": CANDIDATES,
        "ties": TIES, "recorded": request.at.clock is AsOfClock.RECORDED, **request.at.limits,
    }  # fmt: skip
    rows = await request.database.named("similar_as_of", given, deadline=request.deadline)
    own = list(dict.fromkeys(row["key"] for row in rows))
    if not own:
        return _SearchResult(own)
    if rows[0]["model"] is None:
        return _SearchResult(own, reason="no analysis has been compared yet")
    space, reason = rows[0], None
    if space["known"] > MOST_EXACT:
        near = {"model": space["model"], "keys": own, "limit": CANDIDATES, "ties": TIES, **request.at.limits}
        rows = await request.database.named("nearest", near, deadline=request.deadline)
        reason = f"more than {MOST_EXACT:,} analyses were known, so an approximate index was searched"
    candidates: dict[str, list[tuple[str, float]]] = {key: [] for key in own}
    for row in rows:
        if row["candidate"] is not None:
            candidates[row["key"]].append((row["candidate"], row["distance"]))
    wanted = sorted({*own, *(key for close in candidates.values() for key, _ in close)})
    facts = await request.database.named(
        "similar_features", {"keys": wanted, **request.at.limits}, deadline=request.deadline
    )
    shown = (pattern for row in facts for pattern in row["patterns"])
    active = await active_among(shown, request.database, request.at, deadline=request.deadline)
    features = {row["key"]: features_of(row, active) for row in facts}
    found = [
        _SimilarAnalysis(key, one.key, one.score)
        for key, close in candidates.items()
        if key in features
        for one in reranked(features[key], close, features, NEIGHBOURS)
        if one.score >= min_score
    ]
    return _SearchResult(own, found, model_version(space["model_id"], space["dimension"]), reason)


async def _behind(request: RetrievalRequest, own: Sequence[str]) -> str | None:
    """Return why known analyses may be missing from the result: their vectors are not compared yet; else None."""
    given = {"keys": list(own), "limit": COUNTED + 1}
    row = (await request.database.named("similarity_waiting", given, deadline=request.deadline))[0]
    if not row["waiting"] or row["since"] > request.at.recorded_until:
        return None
    if row["own"]:
        return "the subject's newest analyses are not all compared yet"
    many = f"{row['waiting']:,}" if row["waiting"] <= COUNTED else f"more than {COUNTED:,}"
    return f"{many} statements about analyses are not compared yet" if row["age_s"] > FRESH_S else None


# Contents of neighbours


async def _items(request: RetrievalRequest, found: Sequence[_SimilarAnalysis]) -> tuple[list[SimilarItem], int]:
    """Return the known neighbours, up to the limit, with decisions and claims, and how many there are in all."""
    if not found:
        return [], 0
    known = (await request.dated(("Analysis", one.key) for one in found)).records
    alike = [(one, known["Analysis", one.key]) for one in found if ("Analysis", one.key) in known]
    alike = await _of_other_questions(request, alike)
    # Scores are shown with two digits; of those that round to the same, the newest come first.
    alike.sort(key=lambda pair: pair[0].key)
    alike.sort(key=lambda pair: str(pair[1].core["date"]), reverse=True)
    alike.sort(key=lambda pair: round(pair[0].score, 2), reverse=True)
    shown = alike[: request.limits.similar]
    keys = [one.key for one, _ in shown]
    decided, claims = await asyncio.gather(_decided(request, keys), claims_settled(request, keys))
    items = [
        SimilarItem(
            subject_id=analysis.core["subject_id"],
            analysis=record(analysis),
            like=one.like,
            score=one.score,
            decisions=decided.get(one.key, []),
            claims=claims.get(one.key),
        )
        for one, analysis in shown
    ]
    return items, len(alike)


async def _of_other_questions(
    request: RetrievalRequest, alike: list[tuple[_SimilarAnalysis, RecordAsOf]]
) -> list[tuple[_SimilarAnalysis, RecordAsOf]]:
    """
    Return the neighbours that ask another question than the subject does, as of the moment.

    The index excludes the same question by its text when it was indexed (imem.kg.similarity.scoring.comparable); the
    text may have been corrected since.
    """
    subjects = {str(analysis.core["subject_id"]) for _, analysis in alike} | {request.subject_id}
    refs = {subject_id: subject_ref(subject_id) for subject_id in subjects if subject_id.startswith(_MARKET)}
    if request.subject_id not in refs:
        return alike
    known = (await request.dated(refs.values())).records
    asked = {subject_id: _asks(known.get(ref)) for subject_id, ref in refs.items()}
    own = asked[request.subject_id]
    return [
        pair for pair in alike
        if own.isdisjoint(asked.get(str(pair[1].core["subject_id"]), frozenset()))
    ]  # fmt: skip


def _asks(market: RecordAsOf | None) -> frozenset[str]:
    """Return the keys that identify a market's question; see :func:`asks`."""
    if market is None:
        return frozenset()
    return asks(market.core["question"], market.get("series_id"))


async def _decided(request: RetrievalRequest, analyses: Sequence[str]) -> dict[str, list[ReviewedDecision]]:
    """Return the decisions that followed each of the given analyses."""
    if not analyses:
        return {}
    given = {"analyses": list(analyses), **request.at.limits}
    parts = await request.database.named("parts_of_analyses", given, deadline=request.deadline)
    keys = [(row["analysis_id"], row["key"]) for row in parts if row["kind"] == "Decision"]
    answer = await request.dated(("Decision", key) for _, key in keys)
    found: dict[str, list[ReviewedDecision]] = {}
    for analysis, key in keys:
        if (decision := answer.records.get(("Decision", key))) is not None:
            found.setdefault(analysis, []).append(ReviewedDecision(decision=record(decision)))
    return found


async def subject_of(request: RetrievalRequest, what: str) -> str | None:
    """Return the subject of the analysis with the key *what*; None if no such analysis was known."""
    found = (await request.dated([("Analysis", what)])).records.get(("Analysis", what))
    return None if found is None else str(found.core["subject_id"])


def _tags(section: SimilarSection) -> frozenset[str]:
    return frozenset(tags.subject(item.subject_id) for item in section.items)


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the similar analyses, most similar first."""
    answer = context.briefing.similar_analyses
    return rendered_section(
        "Similar analyses of other subjects",
        answer,
        faded((similar_text(item, context.briefing.as_of) for item in answer.items), WORTH, FADING),
        nouns=("similar analysis", "similar analyses"),
        call=follow_up_call(context.own, "similar", answer.total),
    )


def similar_text(item: SimilarItem, at: datetime | None = None) -> str:
    """Return a similar analysis as a list item, as of *at*."""
    core = item.analysis.core
    concluded = conclusion(item.analysis) or label(core["kind"])
    conclusions = ", ".join([concluded, *map(decision_text, item.decisions)])
    end = result_text(item.decisions, item.claims, at, core.get("probability"))
    summary = f"; {quote_lead(core['summary'], SUMMARY_CHARS)}" if core.get("summary") else ""
    head = f"- {share(item.score)} {label(item.subject_id)} {when(core['date'])}"
    return f"{head}: {conclusions}{f' → {end}' if end else ''}{summary}"


SECTION: Final = SectionSpec(
    name="similar_analyses",
    model=SimilarSection,
    load=load,
    fallbacks=(load_from_newest,),
    limits=("similar",),
    tags=_tags,
    current_only=True,
    renderers=(render,),
    item_text=similar_text,
)
