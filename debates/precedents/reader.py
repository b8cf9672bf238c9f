"""
Finds precedents: candidates by their texts, and their values as of the moment from the journal.

The search over texts lies on a floor beside this one; the caller hands it in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from imem.debates.precedents.model import Precedent, PrecedentQuestion, PrecedentWeights
from imem.debates.precedents.ranking import best, is_resolved, precedent
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, RecordAsOf, Ref, dated
from imem.kg.kinds.fields import parse_moment

CANDIDATES: Final = 50
"""Most debates that are compared."""

OF_SUBJECT: Final = 20
"""Those of them that are searched for among the debates about the same subject alone."""

RESOLUTIONS: Final = 20
"""Most resolutions of a debate that are read."""

TEXT_CHARS: Final = 1_000
"""Longest text that is searched for, in characters: an encoder reads the beginning alone."""


class TextMatch(NamedTuple):
    """
    A debate whose text was found.

    Attributes:
        score: comparable within one search.
        similarity: by meaning, 0 to 1, comparable between searches; None where a vector is missing.
    """

    debate_id: str
    score: float
    similarity: float | None


class SearchDebates(Protocol):
    """Searches texts of debates, best first."""

    async def __call__(
        self, text: str, *, subject_id: str | None, at: AsOf, limit: int, deadline: Deadline
    ) -> tuple[list[TextMatch], str | None]:
        """Return what was found as of *at*, and what is missing and why, None if nothing is."""
        ...


async def question_of(database: Database, what: str, at: AsOf, *, deadline: Deadline) -> PrecedentQuestion:
    """
    Return the question about the debate with the id *what*; if none was known, *what* is a topic.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    debate = (await dated(database, [("Debate", what)], at, deadline=deadline)).records.get(("Debate", what))
    if debate is None:
        return PrecedentQuestion(what[:TEXT_CHARS])
    domains = await _domains(database, {what: debate}, at, deadline)
    return PrecedentQuestion(
        "\n".join(filter(None, (debate.core["topic"], debate.get("challenge_basis"))))[:TEXT_CHARS],
        debate_id=what,
        subject_id=debate.core["subject_id"],
        challenger=debate.core["challenger_agent"],
        challenged=debate.core["challenged_agent"],
        domain=domains.get(what),
        priority=debate.get("priority"),
        before=min(parse_moment(debate.core["timestamp"]), debate.known_at),
    )


def opened(at: AsOf, question: PrecedentQuestion) -> AsOf:
    """Return *at*, or the last moment before the debate was opened, if that is earlier."""
    if question.before is None or question.before > at.at:
        return at
    return AsOf(question.before - timedelta(microseconds=1), at.clock, at.asked, at.complete_until)


async def find(
    database: Database,
    search: SearchDebates,
    question: PrecedentQuestion,
    *,
    at: AsOf,
    k: int,
    weights: PrecedentWeights,
    deadline: Deadline,
) -> tuple[list[Precedent], str | None]:
    """
    Return the *k* best precedents of *question* as of *at*, and what of the search is missing.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be found in time; retryable.
    """
    general = CANDIDATES if question.subject_id is None else CANDIDATES - OF_SUBJECT
    searches = [search(question.text, subject_id=None, at=at, limit=general, deadline=deadline)]
    if question.subject_id is not None:
        about = question.subject_id
        searches.append(search(question.text, subject_id=about, at=at, limit=OF_SUBJECT, deadline=deadline))
    answers = await asyncio.gather(*searches)
    texts = _likenesses([matches for matches, _ in answers])
    texts.pop(question.debate_id or "", None)
    given = {"debates": sorted(texts), "kinds": ["record.DebateResolution"], "limit": RESOLUTIONS}
    parts = await database.named("parts_of_debates", {**given, **at.limits}, deadline=deadline)
    refs: list[Ref] = [("Debate", key) for key in texts] + [(row["kind"], row["key"]) for row in parts]
    records = (await dated(database, refs, at, deadline=deadline)).records
    debates = {key: one for (kind, key), one in records.items() if kind == "Debate" and is_resolved(one)}
    ends: dict[str, list[RecordAsOf]] = {}
    for one in records.values():
        if one.kind == "DebateResolution":
            ends.setdefault(one.core["debate_id"], []).append(one)
    domains = await _domains(database, debates, at, deadline)
    found = [
        precedent(
            debate, ends.get(key, ()), domain=domains.get(key), text=texts[key], question=question, weights=weights
        )
        for key, debate in debates.items()
    ]
    return best(found, k), next((reason for _, reason in answers if reason is not None), None)


def _likenesses(searches: list[list[TextMatch]]) -> dict[str, float]:
    """
    Return how alike each text is, 0 to 1: by meaning, or, without vectors, by its place between worst and best score.

    Where both searches found a debate, the greater of the two likenesses counts.
    """
    texts: dict[str, float] = {}
    for matches in searches:
        scores = [one.score for one in matches]
        span = max(scores, default=0.0) - min(scores, default=0.0)
        for one in matches:
            likeness = (one.score - min(scores)) / span if span else 1.0
            if one.similarity is not None:
                likeness = min(max(one.similarity, 0.0), 1.0)
            texts[one.debate_id] = max(likeness, texts.get(one.debate_id, 0.0))
    return texts


async def _domains(
    database: Database, debates: Mapping[str, RecordAsOf], at: AsOf, deadline: Deadline
) -> dict[str, str]:
    """Return the domains of the findings that debates dispute, by debate."""
    disputed = {key: one.get("disputed_finding") for key, one in debates.items()}
    refs = [("Finding", str(finding)) for finding in disputed.values() if finding is not None]
    found = (await dated(database, refs, at, deadline=deadline)).records
    return {key: found["Finding", one].core["domain"] for key, one in disputed.items() if ("Finding", one) in found}
