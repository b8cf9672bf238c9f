"""
The briefing: all sections in parallel, under one deadline.

A section that fails or is late does not affect the others; each is labelled with its quality.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from imem.cache.tiers import tags
from imem.cache.tiers.cached_result import CacheEntry, Freshness
from imem.cache.tiers.tag_versions import TagVersions
from imem.cache.tiers.tiered import Loaded, Query, key_of
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError, PermissionDenied, PostgresUnavailable
from imem.journal.modes import Health, Mode
from imem.journal.postgres.database import Database
from imem.journal.telemetry.correlation import correlated
from imem.journal.telemetry.tracing import TRACER
from imem.kg.asof import AsOf, parse_as_of
from imem.kg.asof import AsOfClock as On
from imem.recall.answers import BriefingSection, Quality
from imem.recall.model import Briefing, Subject
from imem.recall.read_horizon import ReadHorizon, fetch_read_horizon
from imem.recall.request.context import RecallDependencies, RequestContext
from imem.recall.request.fallbacks import unavailable
from imem.recall.request.reader import SectionReader
from imem.recall.retrievers import Limits
from imem.recall.section_registry import BRIEFING_SECTIONS, SUBJECT
from imem.recall.sections.own_signals import SECTION as OWN_SIGNALS
from imem.recall.sections.own_signals import OwnSignalsSection
from imem.recall.sections.spec import SectionSpec
from imem.recall.sections.subject import SubjectSection
from imem.recall.signals.reader import SWITCHED_OFF
from imem.recall.subjects import (
    LONGEST_NAME,
    PREFIXES,
    PRESENT,
    SubjectFinder,
    SubjectName,
    candidates,
    checked_candidates,
    label_of,
)
from imem.recall.timing.lateness import reports_lateness

A = TypeVar("A", bound=BriefingSection)
T = TypeVar("T")

WARMING_MS: Final = 2_000.0
"""Budget of one load when warming, in milliseconds."""

_ALL: Final = (SUBJECT, *BRIEFING_SECTIONS)
_WITHOUT_AGENT: Final = tuple(spec for spec in _ALL if not spec.needs_agent)
"""The sections of a briefing for no agent in particular."""


@dataclass(frozen=True, slots=True)
class Recall:
    """
    Answers requests of one actor about subjects.

    Attributes:
        sources: what requests of the process share.
        actor: who asks.
        clock: dates an answer when Postgres does not.
    """

    sources: RecallDependencies
    actor: Actor
    clock: Clock = field(default_factory=SystemClock)

    @property
    def database(self) -> Database:
        """Postgres."""
        return self.sources.gateway.database

    def may(self, resource: Resource, action: Action) -> bool:
        """Return whether the actor may do *action* to *resource*, without an audit row."""
        return self.sources.gateway.may(resource, action, actor=self.actor)

    async def authorized(
        self, resource: Resource, action: Action, ask: Callable[[], Awaitable[T]], *, deadline: Deadline
    ) -> T:
        """
        Return the answer of *ask* if the actor may do *action* to *resource*.

        Raises:
            PermissionDenied: the actor's role does not allow it; one denial row was written.
        """
        return await self.sources.gateway.authorize_and_execute(
            resource, action, ask, deadline=deadline, actor=self.actor
        )

    @reports_lateness
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
            subject: a subject id, a ticker, a market id, the name of a company, or the text of a market.
            for_agent: the agent that asks; its own track record is included.
            as_of: the moment; none means now.
            clock: ``known`` or ``recorded``.
            limits: most items of each section.
            deadline: when the answer is due; a section that is late is labelled unavailable.

        Raises:
            UnknownSubject: nothing was known under that name; nearest names are given.
            AmbiguousSubject: several subjects had that name; their ids are given.
            BadInput: an argument is wrong.
            PermissionDenied: the actor may not read, or not the record of *for_agent*.
        """
        started = time.monotonic()
        with correlated(), TRACER.start_as_current_span("imem.brief", attributes={"imem.subject": subject}):
            briefing = await self._brief(
                subject, for_agent=for_agent, as_of=as_of, clock=clock, limits=limits or Limits(), deadline=deadline
            )
        took_ms = (time.monotonic() - started) * 1000.0
        return briefing.model_copy(update={"for_agent": for_agent, "took_ms": took_ms})

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
        asked, on = parse_as_of(as_of, clock)
        if for_agent is not None:
            own_record = Resource(ResourceType.CREDIBILITY, for_agent, owner=for_agent)
            await self.sources.gateway.authorize(own_record, Action.READ, deadline=deadline, actor=self.actor)
        # Reserved for assembling the answer.
        reserve_ms = self.sources.assembly.reserve_ms(deadline.left_ms())
        due = deadline.within_ms(max(1.0, deadline.left_ms() - reserve_ms))
        specs = _WITHOUT_AGENT if for_agent is None else _ALL
        try:
            reader = await self.open_reader(
                subject,
                specs,
                asked=asked,
                on=on,
                limits=limits,
                for_agent=for_agent,
                deadline=due,
            )
        except (PostgresUnavailable, BudgetExceeded) as error:
            reason = str(error) or "Postgres did not answer in time"
            return self._without_journal(subject, specs[1:], asked, clock, reason)
        try:
            switched_off: dict[str, Any] = {}
            if for_agent is not None and not self.sources.shows_signals(reader.context.subject_id.partition(":")[2]):
                specs, switched_off = _WITHOUT_AGENT, {OWN_SIGNALS.name: OwnSignalsSection(reason=SWITCHED_OFF)}
            answers = await self._answers(reader, specs) | switched_off
            due_s = min(due.at_s, time.monotonic())
            briefing = _labelled(await self._assembled(reader, answers, reserve_ms), subject)
        finally:
            await reader.lookup.end()
        self.sources.assembly.note(due_s)
        return briefing

    async def open_reader(
        self,
        subject: str,
        specs: Sequence[SectionSpec[Any]],
        *,
        asked: datetime | None,
        on: On,
        limits: Limits,
        for_agent: str | None = None,
        deadline: Deadline,
    ) -> SectionReader:
        """
        Resolve *subject* and start the cache lookup of *specs*.

        Postgres is not asked for the name if the cache answers: either the name's own entry is fresh, or a fresh
        cached result about the likeliest candidate proves that this subject exists.

        Raises:
            UnknownSubject, AmbiguousSubject, BadInput: as :meth:`subject`.
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        budget_ms = deadline.left_ms()

        def opened(subject_id: str, *more: Query[str]) -> SectionReader:
            asking = self.sources, self.actor
            reader = SectionReader(
                RequestContext(*asking, subject_id, asked, on, limits, for_agent, deadline, budget_ms)
            )
            reader.lookup.start(specs, *more)
            return reader

        tiers, name = self.sources.tiers, _name_query(self.sources, subject, asked, on)
        held = tiers.local.get(name.key) if tiers is not None and name.key is not None else None
        meant = name.decode(held.value) if held is not None else checked_candidates(subject)[0]
        reader = opened(meant, *((name,) if held is not None else ()))
        found: str | None = None
        try:
            if held is not None:
                reader.patterns.start(specs)
                if (await reader.lookup.found(name)).state is Freshness.FRESH:
                    found = meant
            elif (tag_versions := await reader.lookup.known(specs)) is not None:
                found = meant
                self._cache_name(name, subject, meant, tag_versions)
            if found is None:
                found = await self._named(name, subject, held, reader)
        finally:
            if found != meant:
                await reader.lookup.end()
        if found != meant:
            reader = opened(found)
        reader.patterns.start(specs)
        return reader

    async def _named(self, name: Query[str], subject: str, held: CacheEntry | None, reader: SectionReader) -> str:
        """
        Look *subject* up and return its id; if Postgres does not answer, the cached one.

        Raises:
            UnknownSubject, AmbiguousSubject, BadInput: as :meth:`subject`.
            PostgresUnavailable, BudgetExceeded: Postgres did not answer, and neither cache nor *subject* tells the id.
        """
        # Read before the lookup, so that whatever is recorded after it invalidates the entry.
        tag_versions, due = await reader.lookup.tag_versions(), reader.context.l3

        async def find() -> tuple[AsOf, SubjectName]:
            at = await reader.horizon.moment_of_subject()
            return at, await self.subjects.find(subject, at, deadline=due)

        try:
            at, found = await self.sources.assembly.in_time(find(), due)
        except (PostgresUnavailable, BudgetExceeded, TimeoutError) as error:
            # Cached results are keyed by id and as-of, so an old name shows nothing later than that moment.
            if held is not None:
                return name.decode(held.value)
            if subject.startswith(PREFIXES):
                return subject
            if isinstance(error, TimeoutError):
                raise BudgetExceeded("Postgres did not answer in time.") from error
            raise
        # A change of name invalidates no tag of the candidates, so subjects found by name are not cached.
        if tag_versions is not None and not found.by_name and reader.context.asked in {None, at.at}:
            self._cache_name(name, subject, found.subject_id, tag_versions)
        return found.subject_id

    def _cache_name(self, name: Query[str], subject: str, subject_id: str, tag_versions: TagVersions) -> None:
        """Cache the subject id of a name, valid since *tag_versions*."""
        if self.sources.tiers is not None:
            about = frozenset(tags.subject(one) for one in candidates(subject))
            self.sources.tiers.put_local(name, Loaded(subject_id, self.clock.now(), about), tag_versions.bookmark)

    async def _answers(self, reader: SectionReader, specs: Sequence[SectionSpec[Any]]) -> dict[str, Any]:
        """Return all sections by name; a failed or late one is labelled unavailable."""
        shown = await reader.cached_sections(specs)
        asked = [spec for spec in specs if spec.name not in shown]
        if asked:
            answers = await asyncio.gather(*(_guarded(reader, spec) for spec in asked))
            shown |= {spec.name: answer for spec, answer in zip(asked, answers, strict=True)}
        return shown

    async def _assembled(self, reader: SectionReader, shown: dict[str, Any], reserve_ms: float) -> Briefing:
        """Return the briefing of the sections *shown*; waits at most *reserve_ms* past their deadline."""
        about = shown.pop(SUBJECT.name)
        whole = all(section.quality is Quality.EXACT for section in shown.values())
        read_horizon, mode = await self.horizon_and_mode(reader, whole=whole, reserve_ms=reserve_ms / 2.0)
        context, at = reader.context, reader.horizon.as_of_answer(read_horizon)
        record = about.record if isinstance(about, SubjectSection) else None
        return Briefing(
            subject=Subject(subject_id=context.subject_id, record=record),
            as_of=at.at if at is not None else context.asked or self.clock.now(),
            clock=context.on.value,
            asked_as_of=context.asked,
            complete_until=at.complete_until if at is not None else None,
            mode=mode,
            **shown,
        )

    async def horizon_and_mode(
        self, reader: SectionReader, *, whole: bool, reserve_ms: float = 0.0
    ) -> tuple[ReadHorizon | None, Mode]:
        """
        Return the read horizon of *reader* (None if not fetched in time) and the mode of its answer.

        Args:
            whole: whether the answer is exact.
            reserve_ms: how long past the deadline to wait for the horizon, in milliseconds.
        """
        horizon = reader.horizon
        try:
            async with asyncio.timeout(reader.context.deadline.left_s() + reserve_ms / 1000.0):
                read_horizon = await horizon.read() if horizon.loaded or horizon.before is None else None
        except (TimeoutError, ImemError):
            read_horizon = None
        # With cached results alone, or without an answer of Postgres, the process's last horizon gives the mode.
        return read_horizon, self.mode(read_horizon or horizon.before, whole=whole)

    def mode(self, read_horizon: ReadHorizon | None, *, whole: bool = True) -> Mode:
        """
        Return the mode of an answer; Postgres counts as away only if the failure detector says so.

        Args:
            read_horizon: tells how far the applier is behind; None counts as not behind.
            whole: whether the answer is exact.
        """
        away = self.database.detector.away
        behind_s = (read_horizon.now - read_horizon.horizon).total_seconds() if read_horizon is not None else 0.0
        interval_s = self.sources.gateway.applier_interval_s
        return Health(postgres=not away, graph=whole, behind_s=behind_s, applier_interval_s=interval_s).mode

    async def mode_now(self, deadline: Deadline) -> Mode:
        """Return the present mode, for an exact answer that read nothing from Postgres."""
        try:
            read_horizon = await fetch_read_horizon(self.database, On.KNOWN, deadline=deadline)
        except (PostgresUnavailable, BudgetExceeded):
            return self.mode(self.sources.last_horizon.read_horizon)
        return self.mode(read_horizon)

    async def warm(self, subject: str, *, deadline: Deadline, budget_ms: float = WARMING_MS) -> int:
        """
        Load the sections of *subject*'s briefing into the cache, three at a time; return how many were loaded.

        Raises:
            UnknownSubject: nothing is known under that name.
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        tiers = self.sources.tiers
        if tiers is None:
            return 0
        subject_id = await self.subject(subject, deadline=deadline)
        asking = self.sources, self.actor
        reader = SectionReader(
            RequestContext(*asking, subject_id, None, On.KNOWN, Limits(), None, deadline, deadline.left_ms())
        )
        return await tiers.warm(
            [(reader.lookup.query(spec), reader.loader.loader(spec)) for spec in _WITHOUT_AGENT[1:]],
            budget_ms=budget_ms,
        )

    async def begin(self, as_of: datetime | None, clock: str, deadline: Deadline) -> tuple[AsOf, ReadHorizon]:
        """
        Return the resolved as-of and the read horizon; on the recorded clock it is clamped to the scored horizon too.

        Raises:
            BadInput: *as_of* or *clock* is invalid.
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time; retryable.
        """
        asked, on = parse_as_of(as_of, clock)
        read_horizon = await fetch_read_horizon(self.database, on, deadline=deadline)
        return read_horizon.resolve(asked, on), read_horizon

    @property
    def subjects(self) -> SubjectFinder:
        """Finds subjects by id, ticker or name."""
        return SubjectFinder(self.sources.gateway, self.actor, self.sources.graph)

    async def subject(self, subject: str, at: AsOf = PRESENT, *, deadline: Deadline) -> str:
        """
        Return the subject id of an id, ticker or name, as known at *at*.

        Raises:
            UnknownSubject: nothing was known under that name.
            AmbiguousSubject: several subjects had that name.
            BadInput: *subject* cannot be a name.
        """
        return (await self.found_subject(subject, at, deadline=deadline)).subject_id

    async def found_subject(self, subject: str, at: AsOf = PRESENT, *, deadline: Deadline) -> SubjectName:
        """
        Return the subject of an id, ticker or name, and how it was found.

        Raises: as :meth:`subject`.
        """
        return await self.subjects.find(subject, at, deadline=deadline)

    def _without_journal(
        self, subject: str, specs: Sequence[SectionSpec[Any]], asked: datetime | None, clock: str, reason: str
    ) -> Briefing:
        """Return the briefing without Postgres: every section unavailable."""
        error = PostgresUnavailable(reason)
        return Briefing(
            subject=Subject(subject_id=subject),
            as_of=asked or self.clock.now(),
            clock=clock,
            asked_as_of=asked,
            mode=self.mode(None, whole=False),
            **{spec.name: unavailable(spec.model, error) for spec in specs},
        )


def _name_query(sources: RecallDependencies, subject: str, asked: datetime | None, on: On) -> Query[str]:
    """
    Return the cache query of a name; the same for all roles.

    The key holds the as-of: that a name means a subject now does not prove that it was known then. "Now" on the
    recorded clock is not cached: it is the safe horizon, which advances without an invalidation.
    """
    key = None
    if _sendable(subject) and (asked is not None or on is On.KNOWN):
        at = asked.isoformat() if asked is not None else None
        key = key_of("name", "2", "all", {"journal": sources.journal, "name": subject, "at": at, "clock": on.value})
    return Query("name", key, str.encode, bytes.decode)


def _sendable(text: str) -> bool:
    return text.isprintable() and len(text) <= LONGEST_NAME


async def _guarded(reader: SectionReader, spec: SectionSpec[A]) -> A:
    """Return the section; on an error or a missed deadline an unavailable one."""
    try:
        return await reader.context.sources.assembly.in_time(reader.section(spec), reader.context.deadline)
    except PermissionDenied:
        raise
    except TimeoutError:
        error: ImemError = BudgetExceeded("The result did not come before the deadline.")
    except ImemError as failure:
        error = failure
    return unavailable(spec.model, error)


def _labelled(briefing: Briefing, asked: str) -> Briefing:
    """Return the briefing; it says so where the name of its subject differs from what was asked in accents."""
    about = briefing.subject
    name = None
    if about.record is not None:
        name = about.record.groups.get("profile", {}).get("name") or about.record.core.get("question")
    label = label_of(asked, about.subject_id, name)
    return briefing.model_copy(update={"subject": about.model_copy(update={"label": label})}) if label else briefing
