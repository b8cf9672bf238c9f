"""
The briefing: all arms at once, under one deadline.

One arm that fails or comes late never empties the others; each says what it is worth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Final, TypeVar

from journal.actors import Action, Resource, ResourceType
from journal.clock import Clock, SystemClock
from journal.deadline import Deadline
from journal.errors import (
    BadInput,
    BudgetExceeded,
    ImemError,
    PermissionDenied,
    PostgresUnavailable,
    Searched,
    UnknownSubject,
)
from journal.gateway import Gateway
from kg.asof import AsOf, Dated, checked, dated, resolve
from kg.catalog import subject_ref
from kg.engine import Graph
from kg.queries import names_search
from recall import arms, similar
from recall.arms import Limits, Question
from recall.model import (
    Arm,
    Briefing,
    DebatesArm,
    HistoryArm,
    Quality,
    RecordsArm,
    SimilarArm,
    Subject,
    TrackRecordsArm,
)

A = TypeVar("A", bound=Arm)

NAMES: Final = 5
"""How many nearest names an unknown subject is answered with."""

RESERVE_MS: Final = 25.0
"""Kept back from the arms to put the answer together, in milliseconds."""

LONGEST_NAME: Final = 200

KEYS: Final = 2000
"""How many keys an unknown name is compared with where the graph is away; some 10 ms."""

_KINDS: Final = {"Company": "company:", "Market": "market:"}
_PREFIXES: Final = tuple(_KINDS.values())


@dataclass(frozen=True, slots=True)
class Recall:
    """
    Answers questions about subjects.

    Attributes:
        gateway: through which everything is read.
        graph: the graph.
        halflife_years: age at which an observation weighs half.
        clock: for the moment of an answer when Postgres cannot tell it.
    """

    gateway: Gateway
    graph: Graph
    halflife_years: float = 2.0
    clock: Clock = field(default_factory=SystemClock)

    async def brief(
        self,
        subject: str,
        *,
        for_agent: str | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        limits: Limits | None = None,
        deadline: Deadline,
    ) -> Briefing:
        """
        Return what was known about *subject*.

        Args:
            subject: a subject id, a ticker, or a market id.
            for_agent: who asks; its own track record is shown as well.
            as_of: the moment; none means now.
            clock: ``known`` or ``recorded``.
            limits: how much of each is wanted.
            deadline: by when the answer is due; what is not there by then is left out and said.

        Raises:
            UnknownSubject: nothing is known under that name; nearest names are given.
            BadInput: an argument is wrong.
            PermissionDenied: the actor may not read, or not the record of *for_agent*.
        """
        started = time.monotonic()
        asked, _ = checked(as_of, clock)
        if for_agent is not None:
            await self.gateway.authorize_and_execute(
                Resource(ResourceType.CREDIBILITY, for_agent, owner=for_agent), Action.READ, _granted, deadline=deadline
            )
        try:
            async with asyncio.timeout(deadline.left_s()):
                at, subject_id = await asyncio.gather(
                    self.moment(as_of, clock, deadline), self.subject(subject, deadline=deadline)
                )
        except (PostgresUnavailable, BudgetExceeded, TimeoutError) as error:
            briefing = self._without_journal(subject, asked, clock, str(error) or "Postgres did not answer in time")
        else:
            left = deadline.within_ms(max(1.0, deadline.left_ms() - RESERVE_MS))
            briefing = await _answer(self.question(subject_id, at, left, limits or Limits(), for_agent))
        return briefing.model_copy(update={"for_agent": for_agent, "took_ms": (time.monotonic() - started) * 1000.0})

    def question(
        self, subject_id: str, at: AsOf, deadline: Deadline, limits: Limits, for_agent: str | None = None
    ) -> Question:
        """Return what the arms are given."""
        return Question(subject_id, at, self.gateway, self.graph, deadline, limits, self.halflife_years, for_agent)

    async def moment(self, as_of: datetime | None, clock: str, deadline: Deadline) -> AsOf:
        """Return the moment to use; on the recorded clock also nothing later than what is scored."""
        at = await resolve(self.gateway.database, as_of, clock, deadline=deadline)
        if clock != "recorded":
            return at
        scored = (await self.gateway.database.named("scored_horizon", deadline=deadline))[0]["horizon"]
        return replace(at, at=min(at.at, scored))

    async def subject(self, subject: str, *, deadline: Deadline) -> str:
        """
        Return the subject id of what a person calls *subject*.

        Raises:
            UnknownSubject: nothing is known under that name.
            BadInput: it is no name at all.
        """
        if not subject.strip() or len(subject) > LONGEST_NAME or "\x00" in subject:
            raise BadInput("subject", f"must be a name of 1 to {LONGEST_NAME} characters.")
        candidates = [subject] if subject.startswith(_PREFIXES) else [f"{prefix}{subject}" for prefix in _PREFIXES]
        if not subject.startswith(_PREFIXES) and subject.upper() != subject:
            candidates.append(f"company:{subject.upper()}")
        for candidate in candidates:
            if await self._exists(candidate, deadline):
                return candidate
        nearest, searched = await self._nearest(subject, deadline)
        raise UnknownSubject(subject, nearest, searched)

    async def _exists(self, subject_id: str, deadline: Deadline) -> bool:
        try:
            kind, key = subject_ref(subject_id)
        except ValueError:
            return False
        parameters = {"kind": kind, "key": key, "subject_id": subject_id}
        return bool((await self.gateway.database.named("subject_exists", parameters, deadline=deadline))[0]["known"])

    async def _nearest(self, subject: str, deadline: Deadline) -> tuple[list[str], Searched]:
        """Return names that look like *subject*, and where they were looked for: without the graph, among keys."""

        async def ask() -> list[str]:
            rows = await self.graph.read(
                "nearest_names",
                {"search": names_search(subject), "limit": NAMES},
                deadline=deadline.within_ms(deadline.left_ms() * arms.GRAPH_SHARE),
            )
            return [row["subject_id"] for row in rows]

        async def ask_journal() -> list[str]:
            return await self._nearest_keys(subject, deadline)

        for operation, searched in ((ask, Searched.NAMES), (ask_journal, Searched.KEYS)):
            try:
                names = await self.gateway.authorize_and_execute(
                    Resource(ResourceType.GRAPH, None), Action.READ, operation, deadline=deadline
                )
            except PermissionDenied:
                raise
            except ImemError:
                continue
            return names, searched
        return [], Searched.NOTHING

    async def _nearest_keys(self, subject: str, deadline: Deadline) -> list[str]:
        """Return subjects whose key is like *subject*, from the journal."""
        kinds = [kind for kind, prefix in _KINDS.items() if subject.startswith(prefix)] or list(_KINDS)
        name = subject.removeprefix(_KINDS[kinds[0]]).strip().lower()
        rows = await self.gateway.database.named(
            "subject_keys", {"kinds": kinds, "name": name, "limit": KEYS}, deadline=deadline
        )
        by_key: dict[str, list[str]] = {}
        for row in rows:
            by_key.setdefault(row["key"].lower(), []).append(f"{_KINDS[row['kind']]}{row['key']}")
        like = [*get_close_matches(name, by_key, NAMES), *(key for key in by_key if name in key)]
        return [subject_id for key in dict.fromkeys(like) for subject_id in by_key[key]][:NAMES]

    def _without_journal(self, subject: str, asked: datetime | None, clock: str, reason: str) -> Briefing:
        """Return the answer of an institution whose journal is away: nothing, labelled as such."""
        away = {"quality": Quality.UNAVAILABLE, "reason": _sentence(reason)}
        return Briefing(
            subject=Subject(subject_id=subject),
            as_of=asked or self.clock.now(),
            clock=clock,
            asked_as_of=asked,
            mode="degraded",
            history=HistoryArm(**away),
            similar_analyses=SimilarArm(**away),
            debates=DebatesArm(**away),
            track_records=TrackRecordsArm(**away),
            contradictions=RecordsArm(**away),
            patterns=RecordsArm(**away),
            lessons=RecordsArm(**away),
        )


async def _granted() -> None:
    """Stand for the operation where only the decision is wanted."""


async def _answer(question: Question) -> Briefing:
    (about, history, debates, track_records), (contradictions, patterns, lessons, alike) = await asyncio.gather(
        asyncio.gather(
            _about(question),
            _guarded(question, arms.history(question), HistoryArm),
            _guarded(question, arms.debates(question), DebatesArm),
            _guarded(question, arms.speakers(question), TrackRecordsArm),
        ),
        asyncio.gather(
            _guarded(question, arms.contradictions(question), RecordsArm),
            _guarded(question, arms.patterns(question), RecordsArm),
            _guarded(question, arms.lessons(question), RecordsArm),
            _guarded(question, similar.analyses(question), SimilarArm),
        ),
    )
    at = question.at
    briefing = Briefing(
        subject=Subject(subject_id=question.subject_id, record=arms.record(about) if about is not None else None),
        as_of=at.at,
        clock=at.clock.value,
        asked_as_of=at.asked,
        complete_until=at.complete_until,
        history=history,
        similar_analyses=alike,
        debates=debates,
        track_records=track_records,
        contradictions=contradictions,
        patterns=patterns,
        lessons=lessons,
    )
    return briefing.model_copy(update={"mode": "degraded"}) if briefing.degraded else briefing


async def _about(question: Question) -> Dated | None:
    """Return the subject's own record, or none when there is none, or none in time."""
    ref = subject_ref(question.subject_id)
    try:
        answer = await dated(question.database, [ref], question.at, deadline=question.deadline)
    except ImemError:
        return None
    return answer.records.get(ref)


async def _guarded(question: Question, work: Awaitable[A], make: type[A]) -> A:
    """Return the arm, or one that says why there is none."""
    try:
        async with asyncio.timeout(question.deadline.left_s()):
            return await work
    except PermissionDenied:
        raise
    except TimeoutError:
        reason = "it was not there before the deadline"
    except ImemError as error:
        reason = str(error)
    return make(quality=Quality.UNAVAILABLE, reason=_sentence(reason))


def _sentence(reason: str) -> str:
    """Return *reason* as the inner part of a note."""
    return reason.rstrip(".").replace("\n", " ")
