"""
A question about a subject, through the tiers and within its budget.

Of the time that a caller gives, the caches have at most 30 ms and L3 four fifths of the whole (400 of 500 ms); what is
left is for what may stand in, of which at most two things are tried: a stale copy, which was fetched meanwhile, what
can be made of fewer records, or of every other one. What stands in says what it is. An arm for which nothing does is
empty and says that as well: it does not mean that nothing is known.

The gateway is asked for each arm, each time, before any tier is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from cache import tagging
from cache.entry import State
from cache.tiered import FRESH_S, JITTER, Found, Loaded, Query, Tiered, key_of
from journal.actors import Action, Resource
from journal.deadline import Deadline
from journal.errors import BadInput, BudgetExceeded, ImemError, PermissionDenied
from journal.gateway import Gateway
from journal.tracing import TRACER
from kg.asof import AsOf, Clock, dated
from kg.catalog import subject_ref
from kg.engine import Graph
from recall.arms import Limits, Question
from recall.kinds import MOST_STEPS, ArmKind, schema_of
from recall.model import AWAY, EXHAUSTED, Arm, Quality
from recall.opening import Opening, open_question, pattern_epoch
from recall.sealing import sealed
from recall.watching import Outcome, Watch

A = TypeVar("A", bound=Arm)

log = structlog.get_logger()

L3_SHARE: Final = 0.8
"""Share of the whole time that L3 may take."""

STEP_SHARE: Final = 0.6
"""Share of what is left then that the first of two things that stand in may take."""

SEEN_S: Final = 2.0
"""How long ago a process may have asked how things stand, in seconds, before it does so beside what is kept."""

REVALIDATE_S: Final = 600.0
"""How long after its time a copy that still holds is served at once, labelled, while another is loaded, in seconds."""


@dataclass(slots=True)
class Seen:
    """
    What a process remembers of its last question.

    Attributes:
        opening: how things stood then: what holds now is complete until that horizon at least.
    """

    opening: Opening | None = None
    noted_s: float = float("-inf")

    def note(self, opening: Opening) -> None:
        """Remember it, if it is news."""
        if self.opening is None or opening.now > self.opening.now:
            self.opening, self.noted_s = opening, time.monotonic()

    @property
    def old(self) -> bool:
        """Whether it should be asked again."""
        return time.monotonic() - self.noted_s > SEEN_S


@dataclass(frozen=True, slots=True)
class Sources:
    """
    What questions are asked of.

    Attributes:
        gateway: through which everything is read.
        graph: the graph.
        tiers: kept answers; none asks L3 each time.
        halflife_years: age at which an observation weighs half.
        journal: which journal this is: answers of another are others.
        seen: what the process remembers.
        watch: counts what is asked.
    """

    gateway: Gateway
    graph: Graph
    tiers: Tiered | None = None
    halflife_years: float = 2.0
    journal: str = ""
    seen: Seen = field(default_factory=Seen)
    watch: Watch = field(default_factory=Watch)


@dataclass(slots=True)
class Inquiry:
    """
    One question about one subject, under way.

    Attributes:
        sources: what is asked.
        subject_id: what about.
        asked, on: the moment, and the clock.
        limits: how much is wanted.
        for_agent: for whom, if that is known.
        deadline: when the answer is due.
        budget_ms: the whole time that it had, in milliseconds.
    """

    sources: Sources
    subject_id: str
    asked: datetime | None
    on: Clock
    limits: Limits
    for_agent: str | None
    deadline: Deadline
    budget_ms: float
    moments: list[datetime] = field(default_factory=list)
    loaded: bool = False
    before: Opening | None = None
    _queries: dict[str, Query[Any]] = field(default_factory=dict)
    _opening: asyncio.Task[Opening] | None = None
    _pattern_epoch: asyncio.Task[int] | None = None
    _found: asyncio.Task[dict[bytes, Found]] | None = None
    _series: asyncio.Task[frozenset[str]] | None = None

    def __post_init__(self) -> None:
        """Remember how things stood before anything was looked at."""
        self.before = self.sources.seen.opening

    @property
    def l3(self) -> Deadline:
        """Until when L3 may take."""
        return l3_of(self.deadline, self.budget_ms)

    # What is kept

    def query(self, kind: ArmKind[A]) -> Query[A]:
        """Return what is asked for an arm, and under which key its answer is kept."""
        if kind.name not in self._queries:
            self._queries[kind.name] = self._query(kind)
        return self._queries[kind.name]

    def _query(self, kind: ArmKind[A]) -> Query[A]:
        key = None
        # On the recorded clock "now" is what is complete: its answer grows without anything being told.
        of_now = self.asked is None and self.on is Clock.KNOWN
        if self.sources.tiers is not None and (of_now or (self.asked is not None and not kind.of_now_alone)):
            arguments = {
                "journal": self.sources.journal,
                "subject": self.subject_id,
                "at": self.asked.isoformat() if self.asked is not None else None,
                "clock": self.on.value,
                "halflife": self.sources.halflife_years,
                **kind.arguments(self.limits),
            }
            if kind.for_agent:
                arguments["for"] = self.for_agent
            key = key_of(kind.name, schema_of(kind.make), self.sources.gateway.actor.role.value, arguments)
        return Query(
            kind.name,
            key,
            lambda arm: arm.model_dump_json(exclude_defaults=True).encode(),
            lambda data: sealed(kind.make.model_validate_json(data)),
            kind.shows_patterns,
        )

    def look(self, kinds: Sequence[ArmKind[Any]], *more: Query[Any]) -> None:
        """Begin to look for what is kept of all that will be asked, and at how things stand."""
        tiers = self.sources.tiers
        queries = [*(self.query(kind) for kind in kinds), *more]
        if self.sources.seen.old:
            self._begin_opening()
        elif any(kind.shows_patterns for kind in kinds):
            self._begin_epoch()

        async def found() -> dict[bytes, Found]:
            if tiers is None:
                return {}
            here = await tiers.look(queries, deadline=self.deadline.within_ms(tiers.caches_ms))
            kept = {key: one for key, one in here.items() if one.state is not State.ABSENT}
            if not kept or (len(kept) == len(here) and self.before is not None):
                return here
            # Some have to be loaded: whether the others hold is asked after it is known up to when all is complete.
            try:
                await self.opening()
            except ImemError:
                return here
            return {**here, **await tiers.again(kept, deadline=self.deadline.within_ms(tiers.caches_ms))}

        self._found = asyncio.create_task(found())

    async def found(self, query: Query[Any]) -> Found:
        """Return what is kept for a query that was looked for."""
        if self._found is None or query.key is None:
            return Found()
        return (await asyncio.shield(self._found)).get(query.key, Found())

    async def opening(self) -> Opening:
        """
        Return how things stand, asked once for the whole question.

        Raises:
            PostgresUnavailable, BudgetExceeded: nobody can say in time.
        """
        return await asyncio.shield(self._begin_opening())

    def _begin_opening(self) -> asyncio.Task[Opening]:
        if self._opening is None:

            async def opened() -> Opening:
                opening = await open_question(self.sources.gateway.database, self.on, deadline=self.l3)
                self.sources.seen.note(opening)
                return opening

            self._opening = asyncio.create_task(opened())
            self._opening.add_done_callback(_heard)
        return self._opening

    async def end(self) -> None:
        """End what nobody waits for any more; how things stand may still be asked for somebody who shares a load."""
        if self._found is not None:
            self._found.cancel()
            await asyncio.gather(self._found, return_exceptions=True)

    # Asking

    async def arm(self, kind: ArmKind[A]) -> A:
        """
        Return an arm, or what stands in for it.

        Raises:
            PermissionDenied: the actor may not read it.
            ImemError: it could not be asked, and nothing stands in for it.
        """

        async def through() -> A:
            return await self._through(kind)

        with TRACER.start_as_current_span("imem.arm", attributes={"imem.arm": kind.name}):
            return await self.sources.gateway.authorize_and_execute(
                Resource(kind.resource, self.subject_id), Action.READ, through, deadline=self.deadline
            )

    async def _through(self, kind: ArmKind[A]) -> A:
        query, tiers = self.query(kind), self.sources.tiers
        found = await self.found(query)
        epoch = await self._epoch() if kind.shows_patterns else None
        if tiers is not None and found.entry is not None and not await self._clamped():
            answer = tiers.fresh(query, found, epoch)
            if answer is None and self._still_good(found):
                answer = tiers.stale(query, found, epoch)
                if answer is not None:
                    tiers.revalidate(query, found, self.loader(kind), budget_ms=self.budget_ms)
            if answer is not None:
                self.moments.append(answer.moment)
                self.sources.watch.observe(kind.name, Outcome.KEPT if answer.age_s is None else Outcome.STALE)
                if answer.age_s is None:
                    return answer.value
                return _aged(answer.value, answer.age_s, "it is being renewed")
        try:
            arm = await self._loaded(query, kind, found, epoch)
        except (PermissionDenied, BadInput):
            raise
        except ImemError as error:
            return await self._instead(query, kind, found, epoch, error)
        self.sources.watch.observe(kind.name, Outcome.EXACT)
        return arm

    async def _loaded(self, query: Query[A], kind: ArmKind[A], found: Found, epoch: int | None) -> A:
        self.loaded = True
        tiers, load = self.sources.tiers, self.loader(kind)
        if tiers is None:
            try:
                async with asyncio.timeout(self.l3.left_s()):
                    loaded = await load(self.l3)
            except TimeoutError as error:
                raise BudgetExceeded("It was not there before the deadline.") from error
            self.moments.append(loaded.moment)
            return loaded.value
        if query.key is not None and await self._clamped():
            query = replace(query, key=None)
        answer = await tiers.load(query, found, load, deadline=self.l3, epoch=epoch)
        self.moments.append(answer.moment)
        return answer.value

    def loader(self, kind: ArmKind[A]) -> Callable[[Deadline], Awaitable[Loaded[A]]]:
        """Return what asks L3 for an arm."""

        async def load(due: Deadline) -> Loaded[A]:
            opening = await self.opening()
            at = opening.at(self.asked, self.on)
            ask = self.question(at, due)
            arm, about = await asyncio.gather(kind.exact(ask), self._about(kind))
            return Loaded(
                sealed(arm),
                at.at,
                about | kind.tags(arm),
                keep=arm.quality is Quality.EXACT and (self.asked is None or at.at == self.asked),
                negative=not arm.total,
                epoch=opening.epoch,
            )

        return load

    def question(self, at: AsOf, due: Deadline) -> Question:
        """Return what arms are given."""
        sources = self.sources
        return Question(
            self.subject_id,
            at,
            sources.gateway,
            sources.graph,
            due,
            self.limits,
            sources.halflife_years,
            self.for_agent,
        )

    async def _about(self, kind: ArmKind[Any]) -> frozenset[str]:
        """Return the tags of the subject, as far as an arm hangs on them."""
        if kind.own_record:
            return frozenset({tagging.record(*subject_ref(self.subject_id))})
        return frozenset({tagging.subject(self.subject_id)}) | await self._of_series()

    async def _of_series(self) -> frozenset[str]:
        """Return the tag of the series that a question belongs to: other questions of it join its answers."""
        kind, key = subject_ref(self.subject_id)
        if kind != "Market":
            return frozenset()
        if self._series is None:

            async def asked() -> frozenset[str]:
                now = AsOf((await self.opening()).now)
                answer = await dated(self.sources.gateway.database, [(kind, key)], now, deadline=self.l3)
                record = answer.records.get((kind, key))
                found = record.get("series_id") if record is not None else None
                return frozenset({tagging.series(str(found))}) if found else frozenset()

            self._series = asyncio.create_task(asked())
            self._series.add_done_callback(_heard)
        return await asyncio.shield(self._series)

    async def _epoch(self) -> int | None:
        try:
            if self._opening is not None:
                return (await self.opening()).epoch
            return await asyncio.shield(self._begin_epoch())
        except ImemError:
            return None

    def _begin_epoch(self) -> asyncio.Task[int]:
        if self._pattern_epoch is None:
            asked = pattern_epoch(self.sources.gateway.database, deadline=self.l3)
            self._pattern_epoch = asyncio.create_task(asked)
            self._pattern_epoch.add_done_callback(_heard)
        return self._pattern_epoch

    async def _clamped(self) -> bool:
        """Return whether the moment asked for is later than what is complete: then no kept answer is for it."""
        if self.asked is None:
            return False
        known = self.before
        if known is not None and self.on is Clock.KNOWN and self.asked <= known.horizon:
            return False
        try:
            return (await self.opening()).at(self.asked, self.on).at != self.asked
        except ImemError:
            return False

    def _still_good(self, found: Found) -> bool:
        """Return whether a copy past its time is served while another is loaded: it holds, and is not long past it."""
        if found.entry is None or found.standing is None or self.sources.tiers is None:
            return False
        age_s = found.entry.age_s(self.sources.tiers.clock.now())
        return age_s < FRESH_S * (1 + JITTER) + REVALIDATE_S

    # What stands in

    async def _instead(self, query: Query[A], kind: ArmKind[A], found: Found, epoch: int | None, error: ImemError) -> A:
        late = isinstance(error, BudgetExceeded)
        tiers = self.sources.tiers
        if tiers is not None and not await self._clamped():
            kept = tiers.stale(query, found, epoch)
            if kept is not None:
                self.moments.append(kept.moment)
                self.sources.watch.observe(kind.name, Outcome.STALE, late=late)
                return _aged(kept.value, kept.age_s or 0.0, sentence(str(error)))
        steps = kind.instead[:MOST_STEPS]
        for number, step in enumerate(steps, 1):
            share = STEP_SHARE if number < len(steps) else 1.0
            due = self.deadline.within_ms(self.deadline.left_ms() * share)
            try:
                async with asyncio.timeout(due.left_s()):
                    at = (await self.opening()).at(self.asked, self.on)
                    arm = await step(self.question(at, due))
            except PermissionDenied:
                raise
            except (TimeoutError, ImemError):
                continue
            self.moments.append(at.at)
            self.sources.watch.observe(kind.name, Outcome.LESS, depth=number, late=late)
            return arm
        self.sources.watch.observe(kind.name, Outcome.NONE, depth=len(steps) + 1, late=late)
        log.warning("recall.exhausted", query=kind.name, subject=self.subject_id, error=_code(error), reason=str(error))
        raise error

    # The moment

    def placed(self, opening: Opening | None) -> AsOf | None:
        """Return the moment for which the answer holds, once all of it is there."""
        if self.asked is not None and not self.loaded and self.moments:
            return AsOf(max(self.moments), self.on, self.asked, self.before.horizon if self.before else None)
        if opening is None or not self.loaded:
            opening = self.before or opening
        if opening is None:
            return AsOf(max(self.moments), self.on, self.asked) if self.moments else None
        at = opening.at(self.asked, self.on)
        return replace(at, at=max([at.at, *self.moments])) if self.asked is None else at


def l3_of(deadline: Deadline, budget_ms: float) -> Deadline:
    """Return until when L3 may take, of a question that has *budget_ms* until *deadline*."""
    return Deadline(deadline.at_s - budget_ms / 1000.0 * (1 - L3_SHARE))


def _heard(task: asyncio.Task[Any]) -> None:
    """Take note of how a task ended that perhaps nobody waits for."""
    if not task.cancelled():
        task.exception()


def _aged(arm: A, age_s: float, reason: str) -> A:
    update = {"quality": Quality.STALE, "age_s": round(age_s, 3), "reason": f"as known {_ago(age_s)}; {reason}"}
    return arm.model_copy(update=update)


def _ago(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s ago"
    return f"{age_s / 60:.0f} min ago" if age_s < 7200 else f"{age_s / 3600:.0f} h ago"


def _code(error: ImemError) -> str:
    return EXHAUSTED if isinstance(error, BudgetExceeded) else AWAY


def unavailable(make: type[A], error: ImemError) -> A:
    """Return the arm that says that nothing could be asked, and nothing stands in."""
    return make(quality=Quality.UNAVAILABLE, reason=sentence(str(error)), error=_code(error), fallback_exhausted=True)


def sentence(reason: str) -> str:
    """Return *reason* as the inner part of a note."""
    return reason.rstrip(".").replace("\n", " ")


def warmed(inquiry: Inquiry, kinds: Iterable[ArmKind[Any]]) -> list[tuple[Query[Any], Any]]:
    """Return what is loaded beforehand for whoever will ask."""
    return [(inquiry.query(kind), inquiry.loader(kind)) for kind in kinds]
