"""
The briefing: all arms at once, under one deadline.

One arm that fails or comes late never empties the others; each says what it is worth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from cache import tagging
from cache.entry import Entry, State
from cache.epochs import Standing
from cache.tiered import Loaded, Query, key_of
from journal.actors import Action, Resource, ResourceType
from journal.clock import Clock, SystemClock
from journal.correlation import correlated
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
from journal.modes import Health, Mode
from journal.tracing import TRACER
from kg.asof import AsOf, checked
from kg.asof import Clock as On
from kg.catalog import subject_ref
from kg.engine import Graph
from kg.queries import names_search
from recall import arms
from recall.arms import Limits
from recall.kinds import ARMS, SUBJECT, ArmKind
from recall.model import Arm, Briefing, Quality, Subject, SubjectArm
from recall.opening import Opening, open_question
from recall.through import Inquiry, Sources, l3_of, unavailable

A = TypeVar("A", bound=Arm)

NAMES: Final = 5
"""How many nearest names an unknown subject is answered with."""

RESERVE_MS: Final = 40.0
RESERVE_SHARE: Final = 0.08
"""Kept back from the arms to put the answer together: this share of the budget, and at most so many milliseconds."""

WARMING_MS: Final = 2_000.0
"""How long one load may take that nobody waits for, in milliseconds."""

LONGEST_NAME: Final = 200

KEYS: Final = 2000
"""How many keys an unknown name is compared with where the graph is away; some 10 ms."""

_ALL: Final = (SUBJECT, *ARMS)

_KINDS: Final = {"Company": "company:", "Market": "market:"}
_PREFIXES: Final = tuple(_KINDS.values())


@dataclass(frozen=True, slots=True)
class Recall:
    """
    Answers questions about subjects.

    Attributes:
        sources: what is asked.
        clock: for the moment of an answer when Postgres cannot tell it.
    """

    sources: Sources
    clock: Clock = field(default_factory=SystemClock)

    @property
    def gateway(self) -> Gateway:
        """Through which everything is read."""
        return self.sources.gateway

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.sources.graph

    @property
    def halflife_years(self) -> float:
        """Age at which an observation weighs half."""
        return self.sources.halflife_years

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
        with correlated(), TRACER.start_as_current_span("imem.brief", attributes={"imem.subject": subject}):
            briefing = await self._brief(
                subject, for_agent=for_agent, as_of=as_of, clock=clock, limits=limits or Limits(), deadline=deadline
            )
        return briefing.model_copy(update={"for_agent": for_agent, "took_ms": (time.monotonic() - started) * 1000.0})

    async def _brief(
        self,
        subject: str,
        *,
        for_agent: str | None,
        as_of: datetime | None,
        clock: str,
        limits: Limits,
        deadline: Deadline,
    ) -> Briefing:
        asked, on = checked(as_of, clock)
        if for_agent is not None:
            await self.gateway.authorize_and_execute(
                Resource(ResourceType.CREDIBILITY, for_agent, owner=for_agent), Action.READ, _granted, deadline=deadline
            )
        # Kept back to put the answer together.
        reserve_ms = min(RESERVE_MS, deadline.left_ms() * RESERVE_SHARE)
        due = deadline.within_ms(max(1.0, deadline.left_ms() - reserve_ms))
        try:
            inquiry = await self.inquire(
                subject,
                _ALL,
                asked=asked,
                on=on,
                limits=limits,
                for_agent=for_agent,
                deadline=due,
            )
        except (PostgresUnavailable, BudgetExceeded) as error:
            return self._without_journal(subject, asked, clock, str(error) or "Postgres did not answer in time")
        try:
            return await self._answer(inquiry, reserve_ms)
        finally:
            await inquiry.end()

    async def inquire(
        self,
        subject: str,
        kinds: Sequence[ArmKind[Any]],
        *,
        asked: datetime | None,
        on: On,
        limits: Limits,
        for_agent: str | None = None,
        deadline: Deadline,
    ) -> Inquiry:
        """
        Begin a question about what a person calls *subject*, with a look at what is kept of *kinds*.

        A name that was found once is remembered, as a kept answer like the others; and kept answers about the subject
        that is meant first, if there is one, say that there is. Nobody is asked for it then.

        Raises:
            UnknownSubject, BadInput: as :meth:`subject`.
            PostgresUnavailable, BudgetExceeded: nobody can say what it names.
        """
        budget_ms = deadline.left_ms()

        def begun(subject_id: str, *more: Query[str]) -> Inquiry:
            inquiry = Inquiry(self.sources, subject_id, asked, on, limits, for_agent, deadline, budget_ms)
            inquiry.look(kinds, *more)
            return inquiry

        tiers, name = self.sources.tiers, _name_query(self.sources, subject)
        held = tiers.local.get(name.key) if tiers is not None and name.key is not None else None
        meant = name.decode(held.value) if held is not None else _checked(subject)[0]
        if name.key is None:
            # No name of anything that could be kept.
            meant = await self._named(name, subject, None, None, l3_of(deadline, budget_ms))
        inquiry = begun(meant, *((name,) if held is not None else ()))
        found: str | None = None
        try:
            if held is not None:
                inquiry.grant(kinds)
                if (await inquiry.found(name)).state is State.FRESH:
                    found = meant
            elif name.key is None:
                found = meant
            elif (standing := await inquiry.known(kinds)) is not None:
                found = meant
                self._remember(name, subject, meant, standing)
            if found is None:
                found = await self._named(name, subject, held, await inquiry.standing(), inquiry.l3)
        finally:
            if found != meant:
                await inquiry.end()
        if found != meant:
            inquiry = begun(found)
        inquiry.grant(kinds)
        return inquiry

    async def _named(
        self, name: Query[str], subject: str, held: Entry | None, standing: Standing | None, deadline: Deadline
    ) -> str:
        """
        Return the subject id of what a person calls *subject*, asked anew; where nobody can say, as it was remembered.

        Args:
            standing: what had changed before: what is stated meanwhile ends what is remembered.

        Raises:
            UnknownSubject, BadInput: as :meth:`subject`.
            PostgresUnavailable, BudgetExceeded: nobody can say.
        """
        try:
            async with asyncio.timeout(deadline.left_s()):
                subject_id = await self.subject(subject, deadline=deadline)
        except (PostgresUnavailable, BudgetExceeded, TimeoutError) as error:
            # What is kept of it, is kept under that id.
            if held is not None:
                return name.decode(held.value)
            if subject.startswith(_PREFIXES):
                return subject
            if isinstance(error, TimeoutError):
                raise BudgetExceeded("Postgres did not answer in time.") from error
            raise
        if standing is not None:
            self._remember(name, subject, subject_id, standing)
        return subject_id

    def _remember(self, name: Query[str], subject: str, subject_id: str, standing: Standing) -> None:
        """Keep what a name means, as of when *standing* was asked."""
        if self.sources.tiers is not None:
            tags = frozenset(tagging.subject(one) for one in _candidates(subject))
            self.sources.tiers.keep_here(name, Loaded(subject_id, self.clock.now(), tags), standing.bookmark)

    async def _answer(self, inquiry: Inquiry, reserve_ms: float) -> Briefing:
        """Return all arms, *reserve_ms* after their deadline at most; one that fails or is late empties no other."""
        shown = await inquiry.at_once(_ALL)
        asked = [kind for kind in _ALL if kind.name not in shown]
        if asked:
            answers = await asyncio.gather(*(_guarded(inquiry, kind) for kind in asked))
            shown |= {kind.name: answer for kind, answer in zip(asked, answers, strict=True)}
        about = shown.pop(SUBJECT.name)
        whole = all(arm.quality is Quality.EXACT for arm in shown.values())
        opening, mode = await self.stood(inquiry, whole=whole, reserve_ms=reserve_ms / 2.0)
        at = inquiry.placed(opening)
        record = about.record if isinstance(about, SubjectArm) else None
        return Briefing(
            subject=Subject(subject_id=inquiry.subject_id, record=record),
            as_of=at.at if at is not None else inquiry.asked or self.clock.now(),
            clock=inquiry.on.value,
            asked_as_of=inquiry.asked,
            complete_until=at.complete_until if at is not None else None,
            mode=mode,
            **shown,
        )

    async def stood(self, inquiry: Inquiry, *, whole: bool, reserve_ms: float = 0.0) -> tuple[Opening | None, Mode]:
        """
        Return how things stood when *inquiry* began, and how well it could be answered.

        Args:
            whole: whether its answer is exact.
            reserve_ms: how long after its deadline that may still be waited for.
        """
        try:
            async with asyncio.timeout(inquiry.deadline.left_s() + reserve_ms / 1000.0):
                opening = await inquiry.opening() if inquiry.loaded or inquiry.before is None else None
            journal = True
        except (TimeoutError, ImemError):
            opening, journal = None, False
        # A load begins with how things stand: where that was asked for another question, the journal has answered.
        # Where all is kept, what was last heard of it counts.
        answered = journal or (whole and inquiry.loaded)
        return opening, self.mode(opening or inquiry.before, whole=whole, journal=answered)

    def mode(self, opening: Opening | None, *, whole: bool = True, journal: bool = True) -> Mode:
        """
        Return how well the institution could answer.

        Args:
            opening: how things stood, where anybody had to ask.
            whole: whether the answer is exact.
            journal: whether Postgres answered.
        """
        behind_s = (opening.now - opening.horizon).total_seconds() if opening is not None else 0.0
        return Health(postgres=journal, graph=whole, behind_s=behind_s, cycle_s=self.gateway.cycle_s).mode

    async def mode_now(self, deadline: Deadline) -> Mode:
        """Return how well the institution can answer now, for an answer that is whole and asked the journal nothing."""
        try:
            opening = await open_question(self.gateway.database, On.KNOWN, deadline=deadline)
        except (PostgresUnavailable, BudgetExceeded):
            return Mode.READ_ONLY
        return self.mode(opening)

    async def warm(self, subject: str, *, deadline: Deadline, budget_ms: float = WARMING_MS) -> int:
        """
        Load what briefings of *subject* will ask for, three arms at a time; return how many were loaded.

        Raises:
            UnknownSubject: nothing is known under that name.
            PostgresUnavailable, BudgetExceeded: nobody can say what it names.
        """
        tiers = self.sources.tiers
        if tiers is None:
            return 0
        subject_id = await self.subject(subject, deadline=deadline)
        inquiry = Inquiry(self.sources, subject_id, None, On.KNOWN, Limits(), None, deadline, deadline.left_ms())
        return await tiers.warm([(inquiry.query(kind), inquiry.loader(kind)) for kind in ARMS], budget_ms=budget_ms)

    async def begin(self, as_of: datetime | None, clock: str, deadline: Deadline) -> tuple[AsOf, Opening]:
        """
        Return the moment to use, and how things stand; on the recorded clock nothing later than what is scored.

        Raises:
            BadInput: *as_of* or *clock* is none.
            PostgresUnavailable, BudgetExceeded: nobody can say; retryable.
        """
        asked, on = checked(as_of, clock)
        opening = await open_question(self.gateway.database, on, deadline=deadline)
        return opening.at(asked, on), opening

    async def subject(self, subject: str, *, deadline: Deadline) -> str:
        """
        Return the subject id of what a person calls *subject*.

        Raises:
            UnknownSubject: nothing is known under that name.
            BadInput: it is no name at all.
        """
        for candidate in _checked(subject):
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
        error = PostgresUnavailable(reason)
        return Briefing(
            subject=Subject(subject_id=subject),
            as_of=asked or self.clock.now(),
            clock=clock,
            asked_as_of=asked,
            mode=Mode.READ_ONLY,
            **{kind.name: unavailable(kind.make, error) for kind in ARMS},
        )


async def _granted() -> None:
    """Stand for the operation where only the decision is wanted."""


def _checked(subject: str) -> list[str]:
    """
    Return the subject ids that somebody may mean by *subject*, as :func:`_candidates`.

    Raises:
        BadInput: it is no name at all.
    """
    if not subject.strip() or len(subject) > LONGEST_NAME or "\x00" in subject:
        raise BadInput("subject", f"must be a name of 1 to {LONGEST_NAME} characters.")
    return _candidates(subject)


def _candidates(subject: str) -> list[str]:
    """Return the subject ids that somebody may mean by *subject*, in the order in which they are tried."""
    if subject.startswith(_PREFIXES):
        return [subject]
    candidates = [f"{prefix}{subject}" for prefix in _PREFIXES]
    return candidates if subject.upper() == subject else [*candidates, f"company:{subject.upper()}"]


def _name_query(sources: Sources, subject: str) -> Query[str]:
    """Return under what the subject is remembered that a name means; no actor sees another's names differently."""
    key = key_of("name", "1", "all", {"journal": sources.journal, "name": subject}) if _sendable(subject) else None
    return Query("name", key, str.encode, bytes.decode)


def _sendable(text: str) -> bool:
    return text.isprintable() and len(text) <= LONGEST_NAME


async def _guarded(inquiry: Inquiry, kind: ArmKind[A]) -> A:
    """Return the arm, or one that says why there is none."""
    try:
        async with asyncio.timeout(inquiry.deadline.left_s()):
            return await inquiry.arm(kind)
    except PermissionDenied:
        raise
    except TimeoutError:
        error: ImemError = BudgetExceeded("It was not there before the deadline.")
    except ImemError as failure:
        error = failure
    return unavailable(kind.make, error)
