"""
Context of one request: cache lookup, load from the stores (L3), fallbacks, each with its share of the deadline.

The cache lookup takes at most 30 ms, the load four fifths of the whole budget (400 of 500 ms), fallbacks the rest: a
stale copy of the cached result first, else at most two fallback retrievers, which read fewer records or a sample. A
fallback is labelled ``stale`` or ``partial``. A section without any is ``unavailable``: its being empty does not mean
that nothing is known.

The gateway authorizes each section on every request, before a cached result is used. Reads of patterns are audited:
their audit row is written while the cache lookup runs. Fresh cached results are used without a task of their own. The
read horizon is fetched at most once per request, and once more for a load that needs a later one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from imem.cache.tiers import tags
from imem.cache.tiers.cached_result import Freshness
from imem.cache.tiers.tag_versions import TagVersions
from imem.cache.tiers.tiered import ANY_TIME, FRESH_S, JITTER, CacheLookup, Load, Loaded, Query, TieredCache, key_of
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, ImemError, PermissionDenied
from imem.journal.gateway import Gateway
from imem.journal.telemetry.tracing import TRACER
from imem.kg.asof import AsOf, AsOfClock, dated
from imem.kg.engine import Graph
from imem.kg.kinds.catalog import subject_ref
from imem.recall.answers import AWAY, EXHAUSTED, BriefingSection, Quality
from imem.recall.immutable import sealed
from imem.recall.read_horizon import ReadHorizon, fetch_read_horizon, pattern_epoch
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.sections.spec import SectionSpec, schema_of
from imem.recall.subjects import PRESENT
from imem.recall.timing.assembly import AssemblyTime
from imem.recall.timing.latency_watch import AnswerSource, LatencyWatch

A = TypeVar("A", bound=BriefingSection)
T = TypeVar("T")

log = structlog.get_logger()

MAX_FALLBACKS: Final = 2
"""Most fallback retrievers tried when the load fails or is late."""

L3_SHARE: Final = 0.8
"""Share of the whole budget that a load from L3 may take."""

FIRST_FALLBACK_SHARE: Final = 0.6
"""Share of the time left that the first of two fallback retrievers may take."""

HORIZON_REFRESH_S: Final = 2.0
"""Age of the process's last read horizon, in seconds, from which a request served by the cache fetches a new one."""

REVALIDATE_S: Final = 600.0
"""How long after its expiry an unchanged entry is served as stale while it is revalidated, in seconds."""


@dataclass(slots=True)
class LastReadHorizon:
    """
    The newest read horizon that this process has fetched.

    Attributes:
        read_horizon: the horizon; a cached result that is valid now is complete up to it at least.
        noted_s: when it was fetched, or its next fetch began, on the monotonic clock.
    """

    read_horizon: ReadHorizon | None = None
    noted_s: float = float("-inf")

    def note(self, read_horizon: ReadHorizon) -> None:
        """Keep *read_horizon* if it is newer than the one held."""
        if self.read_horizon is None or read_horizon.now > self.read_horizon.now:
            self.read_horizon, self.noted_s = read_horizon, time.monotonic()

    def due(self) -> bool:
        """Return whether the horizon should be fetched again; true for one caller per interval, who fetches it."""
        now_s = time.monotonic()
        due = now_s - self.noted_s > HORIZON_REFRESH_S
        if due:
            self.noted_s = now_s
        return due


@dataclass(frozen=True, slots=True)
class RecallDependencies:
    """
    What requests of one process share.

    Attributes:
        gateway: authorizes and audits every read.
        graph: the Neo4j client.
        tiers: the tiered cache; None loads from L3 each time.
        halflife_years: age at which an observation weighs half.
        journal: the journal's id, part of every cache key.
        last_horizon: the newest read horizon fetched.
        watch: counts requests and timeouts.
        assembly: how long before the deadline sections are due.
    """

    gateway: Gateway
    graph: Graph
    tiers: TieredCache | None = None
    halflife_years: float = 2.0
    journal: str = ""
    last_horizon: LastReadHorizon = field(default_factory=LastReadHorizon)
    watch: LatencyWatch = field(default_factory=LatencyWatch)
    assembly: AssemblyTime = field(default_factory=AssemblyTime)


@dataclass(slots=True)
class RequestContext:
    """
    One request about one subject, under way.

    Attributes:
        sources: what requests of the process share.
        subject_id: the subject.
        asked, on: the as-of asked for (None: now), and its clock.
        limits: most items of each sort.
        for_agent: the agent that asks, if known.
        deadline: when the answer is due.
        budget_ms: the whole budget, in milliseconds.
        moments: the as-of of each section so far.
        loaded: whether any section was loaded from L3.
        before: the process's last read horizon when the request began.
    """

    sources: RecallDependencies
    subject_id: str
    asked: datetime | None
    on: AsOfClock
    limits: Limits
    for_agent: str | None
    deadline: Deadline
    budget_ms: float
    moments: list[datetime] = field(default_factory=list)
    loaded: bool = False
    before: ReadHorizon | None = None
    _queries: dict[str, Query[Any]] = field(default_factory=dict)
    _read_horizon: asyncio.Task[ReadHorizon] | None = None
    _horizon_asked_s: float = ANY_TIME
    _later: asyncio.Task[ReadHorizon] | None = None
    _later_s: float = ANY_TIME
    _pattern_grant: asyncio.Task[int] | None = None
    _pattern_epoch: asyncio.Task[int] | None = None
    _found: asyncio.Task[dict[bytes, CacheLookup]] | None = None
    _series: tuple[ReadHorizon, asyncio.Task[frozenset[str]]] | None = None

    def __post_init__(self) -> None:
        """Keep the process's read horizon of before the cache lookup."""
        self.before = self.sources.last_horizon.read_horizon

    @property
    def l3(self) -> Deadline:
        """Deadline of loads from L3."""
        return l3_of(self.deadline, self.budget_ms)

    # Cache lookup

    def query(self, kind: SectionSpec[A]) -> Query[A]:
        """Return the cache query of a section: its key and codec."""
        if kind.name not in self._queries:
            self._queries[kind.name] = self._query(kind)
        return self._queries[kind.name]

    def _query(self, kind: SectionSpec[A]) -> Query[A]:
        key = None
        # On the recorded clock "now" is the safe horizon, which advances without an invalidation.
        of_now = self.asked is None and self.on is AsOfClock.KNOWN
        if self.sources.tiers is not None and (of_now or (self.asked is not None and not kind.current_only)):
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
            key = key_of(kind.name, schema_of(kind.model), self.sources.gateway.actor.role.value, arguments)
        return Query(
            kind.name,
            key,
            lambda section: section.model_dump_json(exclude_defaults=True).encode(),
            lambda data: sealed(kind.model.model_validate_json(data)),
            kind.shows_patterns,
        )

    def look(self, kinds: Sequence[SectionSpec[Any]], *more: Query[Any]) -> None:
        """Start the cache lookup of *kinds* and *more*; on any miss, start fetching the read horizon as well."""
        tiers = self.sources.tiers
        queries = [*(self.query(kind) for kind in kinds), *more]

        async def found() -> dict[bytes, CacheLookup]:
            here: dict[bytes, CacheLookup] = {}
            if tiers is not None:
                here = await tiers.lookup(queries, deadline=self.deadline.within_ms(tiers.cache_timeout_ms))
            kept = {key: one for key, one in here.items() if one.state is not Freshness.ABSENT}
            if kept and len(kept) == len(here) and self.before is not None:
                if self.sources.last_horizon.due():
                    self._start_read_horizon()
                return here
            # Loads must see at least the changes that the lookup saw, so they need a read horizon from now on. The
            # entries found are validated again after it is known.
            self._start_read_horizon()
            if tiers is None or not kept:
                return here
            try:
                await self.read_horizon()
            except ImemError:
                return here
            return {**here, **await tiers.recheck(kept, deadline=self.deadline.within_ms(tiers.cache_timeout_ms))}

        self._found = asyncio.create_task(found())

    def grant(self, kinds: Sequence[SectionSpec[Any]]) -> None:
        """Start the authorization of patterns (an audit row) or the read of their epoch, if *kinds* show any."""
        if any(kind.resource is ResourceType.PATTERNS for kind in kinds):
            self._start_pattern_grant()
        elif any(kind.shows_patterns for kind in kinds):
            self._begin_epoch()

    async def found(self, query: Query[Any]) -> CacheLookup:
        """Return the lookup of *query*, awaiting it."""
        if query.key is None:
            return CacheLookup()
        return (await self._all_found()).get(query.key, CacheLookup())

    async def _all_found(self) -> dict[bytes, CacheLookup]:
        return {} if self._found is None else await asyncio.shield(self._found)

    async def known(self, kinds: Sequence[SectionSpec[Any]]) -> TagVersions | None:
        """Return the tag versions of a fresh, non-empty cached result of *kinds*: it proves that the subject exists."""
        for kind in kinds:
            found = await self.found(self.query(kind))
            # Patterns of no sector apply to unknown subjects too, so they prove nothing.
            says = found.entry is not None and not found.entry.negative and not kind.shows_patterns
            if says and found.state is Freshness.FRESH:
                return found.tag_versions
        return None

    async def tag_versions(self) -> TagVersions | None:
        """Return the tag versions that the lookup saw; None if it could not read them."""
        return next((one.tag_versions for one in (await self._all_found()).values()), None)

    async def moment(self) -> AsOf:
        """
        Return the as-of at which the subject must exist; for "now" on the known clock, all that is recorded counts.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        if self.asked is None and self.on is AsOfClock.KNOWN:
            return PRESENT
        if self.asked is not None and self._complete():
            return AsOf(self.asked, self.on, self.asked)
        return (await self.read_horizon()).at(self.asked, self.on)

    async def read_horizon(self, since_s: float = ANY_TIME) -> ReadHorizon:
        """
        Return the read horizon, fetched once per request; once more if the first fetch began before *since_s*.

        Args:
            since_s: earliest start of the fetch, on the monotonic clock.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        first = self._start_read_horizon()
        if self._horizon_asked_s >= since_s:
            return await asyncio.shield(first)
        if self._later is None or self._later_s < since_s:
            self._later_s, self._later = time.monotonic(), self._fetch_read_horizon()
        return await asyncio.shield(self._later)

    def _start_read_horizon(self) -> asyncio.Task[ReadHorizon]:
        if self._read_horizon is None:
            self._horizon_asked_s, self._read_horizon = time.monotonic(), self._fetch_read_horizon()
        return self._read_horizon

    def _fetch_read_horizon(self) -> asyncio.Task[ReadHorizon]:
        async def opened() -> ReadHorizon:
            read_horizon = await fetch_read_horizon(self.sources.gateway.database, self.on, deadline=self.l3)
            self.sources.last_horizon.note(read_horizon)
            return read_horizon

        return _background_task(opened())

    async def end(self) -> None:
        """Cancel the cache lookup; fetches of the read horizon go on, since a shared load may wait for them."""
        if self._found is not None:
            self._found.cancel()
            await asyncio.gather(self._found, return_exceptions=True)

    # Loading

    async def section(self, kind: SectionSpec[A]) -> A:
        """
        Return a section: cached, loaded, or from a fallback.

        Raises:
            PermissionDenied: the actor may not read it.
            ImemError: neither the load nor any fallback succeeded.
        """

        async def through() -> A:
            return await self._through(kind)

        with TRACER.start_as_current_span("imem.section", attributes={"imem.section": kind.name}):
            if kind.resource is ResourceType.PATTERNS:
                await asyncio.shield(self._start_pattern_grant())
                return await through()
            return await self.sources.gateway.authorize_and_execute(
                Resource(kind.resource, self.subject_id), Action.READ, through, deadline=self.deadline
            )

    async def cached_sections(self, kinds: Sequence[SectionSpec[Any]]) -> dict[str, Any]:
        """
        Return by name the sections of *kinds* that fresh cached results answer.

        Sections that show patterns are included only if all others are: they have to wait for the audit row.
        """
        shown: dict[str, Any] = {}
        gateway, tiers, found = self.sources.gateway, self.sources.tiers, await self._all_found()
        if tiers is None or not self._complete():
            return shown
        # One decision per resource type; a refusal is made and audited per section, in section().
        sorts = {kind.resource for kind in kinds} - {ResourceType.PATTERNS}
        if not all(gateway.may(Resource(sort, self.subject_id), Action.READ) for sort in sorts):
            return shown
        plain = [kind for kind in kinds if not kind.shows_patterns]
        # Lets the statement just started be sent before entries are decoded: Postgres writes the row meanwhile.
        await asyncio.sleep(0)
        for kind in plain:
            self._take(kind, found, None, shown)
        if self._pattern_grant is None or len(shown) < len(plain):
            return shown
        try:
            epoch = await asyncio.shield(self._pattern_grant)
        except ImemError:
            return shown
        for kind in kinds:
            if kind.shows_patterns:
                self._take(kind, found, epoch, shown)
        return shown

    def _take(
        self, kind: SectionSpec[Any], found: Mapping[bytes, CacheLookup], epoch: int | None, shown: dict[str, Any]
    ) -> None:
        """Add the section to *shown* if its cached result is fresh."""
        query, tiers = self.query(kind), self.sources.tiers
        one = found.get(query.key) if query.key is not None else None
        answer = tiers.fresh(query, one, epoch) if tiers is not None and one is not None else None
        if answer is not None:
            shown[kind.name] = answer.value
            self.moments.append(answer.moment)
            self.sources.watch.observe(kind.name, AnswerSource.CACHED)

    async def _through(self, kind: SectionSpec[A]) -> A:
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
                self.sources.watch.observe(
                    kind.name, AnswerSource.CACHED if answer.age_s is None else AnswerSource.STALE
                )
                if answer.age_s is None:
                    return answer.value
                return _mark_stale(answer.value, answer.age_s, "it is being renewed")
        try:
            section = await self._loaded(query, kind, found, epoch)
        except (PermissionDenied, BadInput):
            raise
        except ImemError as error:
            return await self._fall_back(query, kind, found, epoch, error)
        self.sources.watch.observe(kind.name, AnswerSource.EXACT)
        return section

    async def _loaded(self, query: Query[A], kind: SectionSpec[A], found: CacheLookup, epoch: int | None) -> A:
        self.loaded = True
        tiers, load = self.sources.tiers, self.loader(kind)
        if tiers is None:
            try:
                async with asyncio.timeout(self.l3.left_s()):
                    loaded = await load(self.l3, ANY_TIME)
            except TimeoutError as error:
                raise BudgetExceeded("It was not there before the deadline.") from error
            self.moments.append(loaded.moment)
            return loaded.value
        if query.key is not None and await self._clamped():
            query = replace(query, key=None)
        answer = await tiers.load(query, found, load, deadline=self.l3, epoch=epoch)
        self.moments.append(answer.moment)
        return answer.value

    def loader(self, kind: SectionSpec[A]) -> Load[A]:
        """Return the function that loads a section from L3."""

        async def load(due: Deadline, since_s: float) -> Loaded[A]:
            read_horizon = await self.read_horizon(since_s)
            at = read_horizon.at(self.asked, self.on)
            ask = self.retrieval_request(at, due)
            section, about = await asyncio.gather(kind.load(ask), self._about(kind, read_horizon))
            return Loaded(
                sealed(section),
                at.at,
                about | kind.tags(section),
                keep=section.quality is Quality.EXACT and (self.asked is None or at.at == self.asked),
                negative=not section.total,
                epoch=read_horizon.epoch,
            )

        return load

    def retrieval_request(self, at: AsOf, due: Deadline) -> RetrievalRequest:
        """Return the arguments of a retriever."""
        sources = self.sources
        return RetrievalRequest(
            self.subject_id,
            at,
            sources.gateway,
            sources.graph,
            due,
            self.limits,
            sources.halflife_years,
            self.for_agent,
        )

    async def _about(self, kind: SectionSpec[Any], read_horizon: ReadHorizon) -> frozenset[str]:
        """Return the subject's dependency tags: its own record's alone, or all records' about it and its series."""
        if kind.own_record:
            return frozenset({tags.record(*subject_ref(self.subject_id))})
        return frozenset({tags.subject(self.subject_id)}) | await self._of_series(read_horizon)

    async def _of_series(self, read_horizon: ReadHorizon) -> frozenset[str]:
        """Return the tag of a market's series: analyses of other markets in it are part of the answer."""
        kind, key = subject_ref(self.subject_id)
        if kind != "Market":
            return frozenset()
        if self._series is None or self._series[0] is not read_horizon:

            async def asked() -> frozenset[str]:
                answer = await dated(
                    self.sources.gateway.database, [(kind, key)], AsOf(read_horizon.now), deadline=self.l3
                )
                record = answer.records.get((kind, key))
                found = record.get("series_id") if record is not None else None
                return frozenset({tags.series(str(found))}) if found else frozenset()

            self._series = read_horizon, _background_task(asked())
        return await asyncio.shield(self._series[1])

    async def _epoch(self) -> int | None:
        """Return the epoch of pattern statuses: from the authorization, else read by itself; None if both fail."""
        for begin in (*((self._start_pattern_grant,) if self._pattern_grant is not None else ()), self._begin_epoch):
            try:
                return await asyncio.shield(begin())
            except ImemError:
                continue
        return None

    def _start_pattern_grant(self) -> asyncio.Task[int]:
        """Start the authorization of reading patterns, once per request."""
        if self._pattern_grant is None:
            resource = Resource(ResourceType.PATTERNS, self.subject_id)
            self._pattern_grant = _background_task(self.sources.gateway.authorize_patterns(resource, deadline=self.l3))
        return self._pattern_grant

    def _begin_epoch(self) -> asyncio.Task[int]:
        if self._pattern_epoch is None:
            self._pattern_epoch = _background_task(pattern_epoch(self.sources.gateway.database, deadline=self.l3))
        return self._pattern_epoch

    def _complete(self) -> bool:
        """Return whether the as-of asked for lies within the read horizon held, or is now."""
        if self.asked is None:
            return True
        return self.before is not None and self.on is AsOfClock.KNOWN and self.asked <= self.before.horizon

    async def _clamped(self) -> bool:
        """Return whether the as-of asked for is clamped to the read horizon: then no cache entry is for it."""
        if self.asked is None or self._complete():
            return False
        try:
            return (await self.read_horizon()).at(self.asked, self.on).at != self.asked
        except ImemError:
            return False

    def _still_good(self, found: CacheLookup) -> bool:
        """Return whether an expired entry may be served while it is revalidated: at most REVALIDATE_S past expiry."""
        if found.entry is None or found.tag_versions is None or self.sources.tiers is None:
            return False
        age_s = found.entry.age_s(self.sources.tiers.clock.now())
        return age_s < FRESH_S * (1 + JITTER) + REVALIDATE_S

    # Fallbacks

    async def _fall_back(
        self, query: Query[A], kind: SectionSpec[A], found: CacheLookup, epoch: int | None, error: ImemError
    ) -> A:
        late = isinstance(error, BudgetExceeded)
        tiers = self.sources.tiers
        if tiers is not None and not await self._clamped():
            kept = tiers.stale(query, found, epoch)
            if kept is not None:
                self.moments.append(kept.moment)
                self.sources.watch.observe(kind.name, AnswerSource.STALE, late=late)
                return _mark_stale(kept.value, kept.age_s or 0.0, sentence(str(error)))
        steps = kind.fallbacks[:MAX_FALLBACKS]
        for number, step in enumerate(steps, 1):
            share = FIRST_FALLBACK_SHARE if number < len(steps) else 1.0
            due = self.deadline.within_ms(self.deadline.left_ms() * share)
            try:
                async with asyncio.timeout(due.left_s()):
                    at = (await self.read_horizon()).at(self.asked, self.on)
                    section = await step(self.retrieval_request(at, due))
            except PermissionDenied:
                raise
            except (TimeoutError, ImemError):
                continue
            self.moments.append(at.at)
            self.sources.watch.observe(kind.name, AnswerSource.REDUCED, depth=number, late=late)
            return section
        self.sources.watch.observe(kind.name, AnswerSource.NONE, depth=len(steps) + 1, late=late)
        log.warning("recall.exhausted", query=kind.name, subject=self.subject_id, error=_code(error), reason=str(error))
        raise error

    # Resolved as-of

    def resolved_as_of(self, read_horizon: ReadHorizon | None) -> AsOf | None:
        """Return the as-of of the whole answer, after its sections are complete; None if no section has one."""
        if self.asked is not None and not self.loaded and self.moments:
            return AsOf(max(self.moments), self.on, self.asked, self.before.horizon if self.before else None)
        if read_horizon is None or not self.loaded:
            read_horizon = self.before or read_horizon
        if read_horizon is None:
            return AsOf(max(self.moments), self.on, self.asked) if self.moments else None
        at = read_horizon.at(self.asked, self.on)
        return replace(at, at=max([at.at, *self.moments])) if self.asked is None else at


def l3_of(deadline: Deadline, budget_ms: float) -> Deadline:
    """Return the deadline of loads from L3, of a request that has *budget_ms* until *deadline*."""
    return Deadline(deadline.at_s - budget_ms / 1000.0 * (1 - L3_SHARE))


def _background_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return *work* as a task whose exception is consumed even if it is never awaited."""
    task = asyncio.create_task(work)
    task.add_done_callback(_consume_exception)
    return task


def _consume_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task, so that asyncio does not log it as lost."""
    if not task.cancelled():
        task.exception()


def _mark_stale(section: A, age_s: float, reason: str) -> A:
    update = {"quality": Quality.STALE, "age_s": round(age_s, 3), "reason": f"as known {_ago(age_s)}; {reason}"}
    return section.model_copy(update=update)


def _ago(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s ago"
    return f"{age_s / 60:.0f} min ago" if age_s < 7200 else f"{age_s / 3600:.0f} h ago"


def _code(error: ImemError) -> str:
    return EXHAUSTED if isinstance(error, BudgetExceeded) else AWAY


def unavailable(make: type[A], error: ImemError) -> A:
    """Return an empty section labelled unavailable, with the error's code and reason."""
    return make(quality=Quality.UNAVAILABLE, reason=sentence(str(error)), error=_code(error), fallback_exhausted=True)


def sentence(reason: str) -> str:
    """Return *reason* as part of a sentence: without its full stop, on one line."""
    return reason.rstrip(".").replace("\n", " ")
