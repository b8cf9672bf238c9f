"""
``Memory``: the institution's memory, as agents import it.

::

    async with Memory.open() as memory:
        receipt = await memory.record_finding(finding, wait_visible=True)

    with Memory.sync() as memory:
        receipt = memory.record_finding(finding)

The methods without ``await`` are listed in :mod:`imem.blocking.memory`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

from imem.credibility.disputes.reading import MetricValue, Period, value_at
from imem.credibility.regimes.readings import MARKET, MarketRegime, market_regime
from imem.journal.actors import Action, Actor, Resource, ResourceType, checked_name
from imem.journal.arguments import check_int, checks_call
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.kg.asof import parse_as_of
from imem.kg.similarity.scoring import MIN_SCORE
from imem.kg.views import View
from imem.recall import single_reads, views
from imem.recall.memories.model import RememberedMemory
from imem.recall.model import Briefing, HistorySection, LongText, PanelsSection, Rows, SimilarSection
from imem.recall.read_horizon import fetch_read_horizon
from imem.recall.retrievers import Limits
from imem.recall.sections import history, panels
from imem.recall.subjects import checked_candidates
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, budget_ms, share
from imem.services.arguments import parameters as checked
from imem.services.connections import Part
from imem.services.delegation import delegated_actor
from imem.services.facets.agent_work import AgentWork
from imem.services.facets.directory import FacetDirectory
from imem.services.facets.facet import OF_THE_GRAPH, ReadOptions
from imem.services.facets.record_writer import RecordWriter
from imem.services.operations import declares_operations, reads, writes
from imem.services.stores import Stores

if TYPE_CHECKING:
    from imem.blocking.memory import SyncMemory
    from imem.recall.search.model import SearchSection

WARM_MS: Final = 2_000
"""Default budget of :meth:`Memory.warm`, in milliseconds."""

LENDING_MS: Final = 2_000
"""Budget of looking up an agent for :meth:`Memory.acting_as`, in milliseconds."""

MOST_READINGS: Final = 10_000
"""Most readings of a market's regime in one answer."""


@declares_operations()
class Memory(RecordWriter, AgentWork, FacetDirectory):
    """
    The memory of one process and one event loop; made by :meth:`open`.

    **What every writing method takes** beside its content:

    * ``known_at``: earliest moment at which it could have been known, aware; the present by default. Stating it takes
      the import right.
    * ``occurred_at``: when it was true in the world, aware; by default what the record itself says, or when it was
      known.
    * ``wait_visible``: make it urgent (tier 1) and wait, at most ``visible_wait_ms`` of the settings, until the graph
      holds it; the receipt says whether it does.
    * ``deadline_ms``: budget until it is durable, in milliseconds, at least 1; 2,000 by default.

    **What every writing method promises.** It returns when the journal has committed, with a receipt that names the
    event. The same content again is ``identical`` and writes nothing, so that a call whose answer was lost may be
    repeated. They raise:

    * :class:`~imem.journal.errors.BadInput`: something is wrong with the content; names the field; nothing was written.
    * :class:`~imem.journal.errors.CoreConflict`: the record exists with another core; :meth:`correct` replaces it.
    * :class:`~imem.journal.errors.PermissionDenied`: the actor's role does not allow it; a denial row was written.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: nothing was
      written; retry.
    * :class:`~imem.journal.errors.OutcomeUnknown`: the connection broke while committing; repeating the call is safe.

    **What every reading method takes** beside its own arguments:

    * ``as_of``: the moment for which the answer holds, aware; the present by default. It is clamped to the safe
      horizon, and the answer states the moment used.
    * ``clock``: ``known`` (what could have been known by then, the default) or ``recorded`` (what was recorded here).
    * ``deadline_ms``: when the answer is due, 10 to 30,000 ms; ``deadline_ms`` of the settings by default. The time
      begins when the process is connected: its first read waits up to 5 s for servers, its first search up to 30 s for
      the local encoder.

    **What every reading method promises.** It ends by its deadline; an answer that is late all the same, because the
    machine is overloaded, states by how much in ``late_ms``. They raise:

    * :class:`~imem.journal.errors.BadInput`: an argument is wrong; names it.
    * :class:`~imem.journal.errors.PermissionDenied`: the actor's role does not allow it; a denial row was written.
    * :class:`~imem.journal.errors.StoreUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: no answer in time
      (a briefing labels its sections instead); retry.

    A crash of the caller leaves either the whole write or nothing. A graph that is away delays visibility alone.

    The settings name the actor (``actor``, ``role``, ``may_import``), never a writing call; a process that runs several
    agents opens one memory per agent with :meth:`acting_as`.
    """

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, warm_up: bool = False) -> AsyncIterator[Self]:
        """
        Open the memory that *settings* name, the environment's by default; connections are made when first used.

        The first read waits until the process is connected, and the first search until the encoder is loaded: their
        deadlines begin after that.

        Args:
            warm_up: whether to connect to every server and to load the encoder now, so that no read waits for it. A
                server that is away is no error here: the calls that need it say so.

        If the program has not configured structlog, events are logged to standard error, from ``log_level`` on.

        Raises:
            SettingsError: a setting is wrong.
            StackError: a server is not named and no local stack runs.
        """
        async with Stores.open(settings) as stores, cls.over(stores) as memory:
            if warm_up:
                await stores.connections.wait(*Part)
            yield memory

    @classmethod
    @asynccontextmanager
    async def over(cls, stores: Stores) -> AsyncIterator[Self]:
        """Open the memory of the process' own actor over *stores*; at the end its counts of late reads are written."""
        memory = cls(stores)
        try:
            yield memory
        finally:
            await memory._recall.sources.watch.close()

    def of(self, actor: Actor) -> Self:
        """Return the memory that acts as *actor* over the same stores; for who has authenticated it."""
        return type(self)(self._stores, actor, replace(self._recall, actor=actor))

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, token: str) -> AsyncIterator[Self]:
        """
        Open the memory that a server at *url* gives to the identity of *token*: the same methods without the stores.

        ::

            async with Memory.connect("https://memory.example.com", token) as memory:
                briefing = await memory.brief("MU")

        Sessions, working memories and conversations belong to a process with stores, and are not among them. Beside
        its own errors each method raises :class:`~imem.journal.errors.NotAuthenticated`,
        :class:`~imem.journal.errors.TooManyRequests`, and :class:`~imem.journal.errors.StoreUnavailable` where the
        server cannot be reached.

        Raises:
            BadInput: *url* or *token* is none.
        """
        from imem.services.remote import NoStores, RemoteMemory  # noqa: PLC0415 - who has stores needs none of it

        async with RemoteMemory.open(url, token) as remote:
            yield cls(cast("Stores", NoStores()), remote=remote)

    @asynccontextmanager
    async def acting_as(self, agent: str) -> AsyncIterator[Self]:
        """
        Open a memory for one of several agents of this process, over the same connections.

        ::

            async with memory.acting_as("valuation_agent") as mine, mine.session("mu-valuation", …) as session:
                …

        What it writes is that agent's, and its rights are an agent's. The process vouches for the name: nothing proves
        it, as nothing proves ``IMEM_ACTOR``; every audit row names the process' own actor beside it, as ``lent_by``.

        Args:
            agent: its name, 1 to 200 characters; names with a colon are those of imports and services.

        Raises:
            BadInput: *agent* is not a valid name.
            PermissionDenied: it is the name of a baseline, an ensemble or a human, and the process' role may append its
                own facts alone; or that role only reads. One denial row was written.
            PostgresUnavailable, BudgetExceeded: the agent's kind could not be looked up within 2 s; retryable. For
                roles that may append everything it is not looked up.
        """
        checked_name(agent, "agent")
        await self._stores.connections.wait(Part.POSTGRES)
        due = Deadline.after_ms(LENDING_MS)
        actor = await delegated_actor(self._stores.gateway, agent, lender=self._actor, deadline=due)
        yield self.of(actor)

    @staticmethod
    @checks_call
    def sync(settings: Settings | None = None, *, warm_up: bool = False) -> AbstractContextManager[SyncMemory]:
        """Open the memory for callers without an event loop: the same methods without ``await``; see :meth:`open`."""
        from imem.blocking.memory import SyncMemory  # noqa: PLC0415 - it imports this module

        return SyncMemory.open(settings, warm_up=warm_up)

    # Reading

    @reads(ResourceType.GRAPH)
    async def brief(
        self, subject: str, *, for_agent: str | None = None, limits: Limits | None = None, **asked: Unpack[ReadOptions]
    ) -> Briefing:
        """
        Return what the institution knew about *subject*: a subject id, a ticker, or a name.

        Each section is labelled with its quality; one that fails or is late does not affect the others.

        Args:
            for_agent: the agent that asks; its own track record is included. An agent may name itself alone.
            limits: most items of each section.

        Raises:
            UnknownSubject: nothing is known under that name; nearest names are given.
        """
        return await self._recall.brief(subject, for_agent=for_agent, limits=limits, **await self._at(**asked))

    @reads(ResourceType.GRAPH)
    async def search(
        self,
        query: str,
        *,
        kinds: Sequence[str] | None = None,
        subject: str | None = None,
        recent_days: float | None = None,
        limit: int = 10,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> SearchSection:
        """
        Return what the institution knows about *query*, by words and by meaning, best first.

        It searches analyses, findings, decisions, debates with their turns, lessons that agents see, active patterns,
        subjects, contradictions, and the memories that the actor may read; each hit states where it stands and why it
        was found.
        What was recorded in the last seconds, and what has no vector yet, is missing or found by words alone: then the
        answer is ``partial`` and says so.

        ::

            found = await memory.search("HBM supply tightness", kinds=["finding", "debate"], subject="MU")

        Args:
            query: 1 to 10,000 characters of plain text; nothing in it is syntax.
            kinds: of ``analysis``, ``finding``, ``decision``, ``debate``, ``lesson``, ``pattern``, ``subject``,
                ``contradiction`` and ``memory``; by default all that the actor may read.
            subject: what is about this subject alone: its id, ticker or name; of memories those below
                ``symbol/`` and its ticker.
            recent_days: prefer what is new, with a bonus that halves each so many days; None: age does not count.
            limit: most results, 1 to 200.
            as_of: the moment for which the answer holds, on the known clock; memories count from when they were stored.

        Raises:
            UnknownSubject: nothing is known under the name of the subject; nearest names are given.
        """
        from imem.services.search import search  # noqa: PLC0415 - what makes vectors takes long to import

        due = await self._due(deadline_ms, Part.ENCODER, *(() if subject is None else OF_THE_GRAPH))
        return await search(
            self._stores,
            self._recall,
            query,
            kinds=kinds,
            subject=subject,
            recent_days=recent_days,
            limit=limit,
            as_of=as_of,
            deadline=due,
        )

    @reads(ResourceType.GRAPH)
    async def history(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> HistorySection:
        """Return the newest analyses of *subject* with findings, decisions and outcomes; at most *limit* (200)."""
        return await single_reads.part(self._recall, history.SECTION, subject, limit=limit, **await self._at(**asked))

    @reads(ResourceType.GRAPH)
    async def similar(
        self, what: str, *, limit: int | None = None, min_score: float = MIN_SCORE, **asked: Unpack[ReadOptions]
    ) -> SimilarSection:
        """
        Return analyses of other subjects similar to *what*, most similar first, with the decisions that followed them.

        A new analysis is found within a minute, from either side; until then the answer says what it lacks.

        Args:
            what: an analysis, by its id, or a subject, whose newest analyses count.
            limit: most results, 10 by default; as of now ten are stored per analysis.
            min_score: least similarity, 0 to 1.

        Raises:
            UnknownSubject: nothing is known under that name; nearest names are given.
        """
        share("min_score", min_score)
        return await single_reads.similar_to(
            self._recall, what, limit=limit, min_score=min_score, **await self._at(**asked)
        )

    @reads(ResourceType.GRAPH)
    async def panel(
        self,
        subject: str,
        *,
        metric: str | None = None,
        target_at: datetime | None = None,
        limit: int | None = None,
        **asked: Unpack[ReadOptions],
    ) -> PanelsSection:
        """
        Return what several agents said about the same question on *subject*, pooled in every way that panels keep.

        ::

            [panel] = (await memory.panel("market:fed-june")).items
            print(panel.equal.value, panel.weighted.value, [(one.agent, one.weight) for one in panel.answers])

        Each agent counts with its newest answer. Probabilities and votes are pooled by their mean, values by their
        median. Baselines are shown and never pooled: where they alone answered, ``equal`` and ``weighted`` are None.
        ``pools`` holds every pool with its record, ``best`` the one that ``weighted`` comes from. The weights are those
        of :meth:`weights`; an agent sees them here, with the answers that they are of.

        Args:
            subject: a market is one question; of a company each metric and moment is one, the last one first.
            metric, target_at: the question alone that is about them; None for any.
            limit: most questions (200).
        """
        if metric is None and target_at is None:
            return await single_reads.part(
                self._recall, panels.SECTION, subject, limit=limit, **await self._at(**asked)
            )
        question: dict[str, Any] = {"metric": metric, "target_at": target_at, "limit": limit}
        return await single_reads.panels_on(self._recall, subject, **question, **await self._at(**asked))

    @reads(ResourceType.GRAPH)
    async def value(
        self,
        subject: str,
        metric: str,
        period: Period,
        *,
        unit: str | None = None,
        basis: str | None = None,
        used_by: str | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> MetricValue:
        """
        Return the value of *metric* of *subject* over *period*: what counts, how sure that is, and what contradicts it.

        ::

            year = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 12, 31, tzinfo=UTC)
            revenue = await memory.value("company:MU", "revenue", year, used_by="desk:MU-1")
            print(revenue.value, revenue.confidence, revenue.provisional, revenue.standing)

        It follows from the data points that were known by then. The latest document of each source counts; between
        sources filings, primary sources, much newer documents and at last the scores of the sources decide. A value is
        provisional until a person has reviewed it, and None while it is uncertain.

        Args:
            subject: the subject's id, or a ticker.
            period: an instant, or beginning and end; as the data points state it.
            unit, basis: needed where the period has values in several units or on several accounting bases. Without
                *basis* the values that state none count, if there are any.
            used_by: the id of an analysis of the actor's that rests on the value; it is linked with the data point.

        Raises:
            BadInput: a unit or a basis is needed, a moment names no zone, or *subject* cannot be a name.
        """
        for name, moment in (("period", one) for one in (period if isinstance(period, tuple) else (period,))):
            if moment is not None and moment.utcoffset() is None:
                raise BadInput(name, "must name its zone; a time without one is ambiguous.")
        asked, on = parse_as_of(as_of, clock)
        ids = checked_candidates(subject)
        due = await self._due(deadline_ms)
        guard = self._stores.settings.contradiction_guard

        async def read() -> MetricValue:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            for one in ids:
                question = (one, metric, period)
                value = await value_at(database, at, question, unit=unit, basis=basis, guard=guard, deadline=due)
                if value.standing is not None:
                    break
            return value

        found = await self._allowed(Resource(ResourceType.GRAPH, f"value of {subject}"), Action.READ, read, due)
        if used_by is not None and found.point is not None:
            await self.link("USES_VALUE", ("Analysis", used_by), ("DataPoint", found.point.key))
        return found

    @reads(ResourceType.GRAPH)
    async def regime(
        self,
        *,
        market: str = MARKET,
        limit: int = 1,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> MarketRegime:
        """
        Return the regime that a market was in, with its newest readings, the one in force first.

        In force is the latest reading by ``observed_at`` that is not withdrawn; of two at one moment the one that was
        known later. Where none was known it is NORMAL, and stale. A person, or the import right, records one with
        :meth:`record`, and takes one back with :meth:`correct` and ``withdrawn``; the worker records what it detects.

        Args:
            market: which.
            limit: most readings, 0 to 10,000.
        """
        check_int("limit", limit)
        if not 0 <= limit <= MOST_READINGS:
            raise BadInput("limit", f"must be a whole number from 0 to {MOST_READINGS:,}.")
        asked, on = parse_as_of(as_of, clock)
        due = await self._due(deadline_ms)

        async def read() -> MarketRegime:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            return await market_regime(database, at, market=market, limit=limit, deadline=due)

        return await self._allowed(Resource(ResourceType.GRAPH, f"regime of {market}"), Action.READ, read, due)

    @reads(ResourceType.GRAPH)
    async def text(self, kind: str, key: str, **asked: Unpack[ReadOptions]) -> LongText | None:
        """
        Return the long text of a record; None if it had none.

        For a pattern that was not active it is None, unless the actor may validate patterns, and for a lesson that
        agents did not see, unless the actor may read lessons in every state.
        """
        return await single_reads.text(self._recall, kind, key, **await self._at(**asked))

    @reads(ResourceType.GRAPH)
    async def view(self, name: str, key: str, *, deadline_ms: float | None = None) -> View | None:
        """
        Return a row of a materialised view as of its last build, some minutes ago, which the row names.

        Args:
            name: ``top_patterns`` of a sector, or ``*`` for those of none: active ones, the most successful first;
                ``agent_credibility``: the sums of an agent's track records; ``company_summaries`` of a subject;
                ``peer_comparisons``: the companies of a sector side by side.
            key: the sector, agent or subject; if the view has no row of it, the value is None.

        Returns:
            None if the view was never built.

        Raises:
            UnknownSubject: nothing is known under the name of a subject; nearest names are given.
        """
        return await views.row_of(self._recall, name, key, deadline=await self._due(deadline_ms))

    @reads(ResourceType.GRAPH)
    async def query(self, name: str, parameters: Mapping[str, Any] | None = None, **asked: Unpack[ReadOptions]) -> Rows:
        """
        Run a named query of the graph (the reference lists them) and return its rows.

        The search text of a full-text index is plain text: each of its words counts, and nothing in it is syntax.

        Raises:
            BadInput: there is no such query, or a parameter is missing, unknown or of another type.
        """
        given = checked(name, parameters or {})
        return await single_reads.named(self._recall, name, given, **await self._at(**asked))

    @reads(ResourceType.GRAPH)
    async def warm(self, subject: str, *, deadline_ms: float | None = None) -> int:
        """
        Load the sections of *subject*'s briefing into the cache; return how many were loaded.

        A session does so for its subject when it begins, in the background.

        Raises:
            UnknownSubject: nothing is known under that name.
        """
        due_ms = budget_ms(deadline_ms, default=WARM_MS, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS)
        return await self._recall.warm(subject, deadline=Deadline.after_ms(due_ms), budget_ms=due_ms)

    # Memories

    @writes(ResourceType.MEMORIES, Action.WRITE)
    async def remember(
        self,
        text: str,
        *,
        namespace: str | None = None,
        memory_type: str = "semantic",
        metadata: Mapping[str, Any] | None = None,
        importance: float = 0.5,
        user_id: str | None = None,
        conversation_id: str | None = None,
        author: str | None = None,
        occurred_at: datetime | None = None,
        extract: bool = False,
        deadline_ms: float | None = None,
    ) -> RememberedMemory:
        """
        Store *text* as a memory, to be found again by its words and its meaning with :attr:`memories`.

        ::

            await memory.remember("HBM is sold out until 2027.", namespace="symbol/MU")
            found = await memory.memories.search("Is there enough memory for AI?")

        If the actor said it there in nearly the same words, with the same figures, names and directions ("will rise" is
        not "will fall"), of the same user and type, that memory has a new version: with this text, the higher
        importance, and the metadata of both. Its earlier versions stay. The same text again is ``identical``. If
        another actor said it, both hold the memory, each with its own words, metadata and importance. If the encoder is
        away, it is found by its words until a worker has made its vector.

        Args:
            text: 1 to 10,000 characters.
            namespace: ``global``, ``agent/NAME``, ``symbol/TICKER``, ``user/NAME`` or a path below; ``agent/`` and the
                actor's name by default. Agents write below their own name, ``symbol`` and ``user``.
            memory_type: ``semantic`` (what holds), ``episodic`` (what happened) or ``procedural`` (how to).
            metadata: an object of JSON values, at most 64 KiB.
            importance: 0 to 1.
            user_id: whom it is about.
            conversation_id: the conversation that it is the next message of; with it, what stands beside a message
                helps to find it.
            author: who said it: the name is searched like the text, and a question that names them prefers it.
            occurred_at: when it was said, aware and not in the future; by default when it is stored. It takes the
                import right. Answers as of a moment from then on find the memory, and a question that names a date, a
                month or a year prefers what was said then. A repeat of the text leaves the time of the first.
            extract: whether a model is to find the facts in it, which become memories too, with the ``source_id`` of
                this one in their metadata; the settings name the endpoint (``extraction_url``).
            deadline_ms: until it is durable, in milliseconds, encoding included; 10,000 by default, 30,000 to extract.

        Raises:
            BadInput: an argument is wrong; names it.
            TooLarge: the namespace holds as many memories as the settings allow (``memory_namespace_limit``).
            PermissionDenied: the actor may not write there, or may not state *occurred_at*; a denial row was written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retry.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
            SettingsError, StoreUnavailable, StatementRejected: there is no endpoint to extract with, it is away,
                refuses, or its answer is unusable; nothing was written.
        """
        return await self.memories.store(
            text,
            namespace=namespace,
            memory_type=memory_type,
            metadata=metadata,
            importance=importance,
            user_id=user_id,
            conversation_id=conversation_id,
            author=author,
            occurred_at=occurred_at,
            extract=extract,
            deadline_ms=deadline_ms,
        )
