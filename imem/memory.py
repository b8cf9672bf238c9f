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
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from imem.journal.actors import Actor
from imem.journal.arguments import checks_arguments, checks_call
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.kg.similarity.scoring import MIN_SCORE
from imem.kg.views import View
from imem.recall import single_reads, views
from imem.recall.brief import Recall
from imem.recall.model import (
    Briefing,
    DebatesSection,
    HistorySection,
    LongText,
    PanelsSection,
    RecordedDebate,
    RecordsSection,
    Rows,
    SimilarSection,
    TrackRecordsSection,
    TrackRecordsTable,
    WeightsTable,
)
from imem.recall.retrievers import Limits
from imem.recall.sections import contradictions, debates, history, lessons, panels, patterns
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, budget_ms, share
from imem.services.arguments import parameters as checked
from imem.services.connections import Part
from imem.services.delegation import delegated_actor
from imem.services.parts.debates_api import DebatesApi
from imem.services.parts.forecasts_api import ForecastsApi
from imem.services.parts.lessons_api import LessonsApi
from imem.services.parts.memories_api import MemoriesApi
from imem.services.parts.pause_api import PauseApi
from imem.services.parts.regime_api import RegimeApi
from imem.services.parts.review_api import ReviewApi
from imem.services.parts.scores_api import ScoresApi
from imem.services.parts.signals_api import SignalsApi
from imem.services.parts.sync_api import SyncApi
from imem.services.parts.trading_api import TradingApi
from imem.services.parts.values_api import ValuesApi
from imem.services.parts.work_api import WorkApi
from imem.services.recall import recall_over
from imem.services.stores import Stores

if TYPE_CHECKING:
    from imem.blocking.memory import SyncMemory
    from imem.recall.search.model import SearchSection
    from imem.recall.sections.contradictions import ContradictionsSection

WARM_MS: Final = 2_000
"""Default budget of :meth:`Memory.warm`, in milliseconds."""

LENDING_MS: Final = 2_000
"""Budget of looking up an agent for :meth:`Memory.acting_as`, in milliseconds."""

LONGEST_ACTOR: Final = 200
"""Most characters of an agent's name."""


_OF_THE_GRAPH: Final = (Part.GRAPH, Part.CACHE, Part.SCORES)
"""The parts that a read of the graph needs beside Postgres."""


class ReadOptions(TypedDict, total=False):
    """Options of every read; :class:`Memory` says what they mean."""

    as_of: datetime | None
    clock: str
    deadline_ms: float | None


class _ReadMoment(TypedDict):
    as_of: datetime | None
    clock: str
    deadline: Deadline


@checks_arguments
class Memory(
    ValuesApi,
    WorkApi,
    MemoriesApi,
    SignalsApi,
    ScoresApi,
    DebatesApi,
    ForecastsApi,
    LessonsApi,
    TradingApi,
    RegimeApi,
    PauseApi,
    ReviewApi,
    SyncApi,
):
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

    def __init__(self, stores: Stores, actor: Actor | None = None, recall: Recall | None = None) -> None:
        super().__init__(stores, actor)
        self._recall = recall or recall_over(stores, actor)

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
        async with Stores.open(settings) as stores:
            memory = cls(stores)
            if warm_up:
                await stores.connections.wait(*Part)
            try:
                yield memory
            finally:
                await memory._recall.sources.watch.close()

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
        if not 0 < len(agent) <= LONGEST_ACTOR or ":" in agent or not agent.isprintable():
            raise BadInput("agent", "is no name of an agent: 1 to 200 printable characters without a colon.")
        await self._stores.connections.wait(Part.POSTGRES)
        due = Deadline.after_ms(LENDING_MS)
        actor = await delegated_actor(self._stores.gateway, agent, lender=self._actor, deadline=due)
        yield type(self)(self._stores, actor, replace(self._recall, actor=actor))

    @staticmethod
    @checks_call
    def sync(settings: Settings | None = None, *, warm_up: bool = False) -> AbstractContextManager[SyncMemory]:
        """Open the memory for callers without an event loop: the same methods without ``await``; see :meth:`open`."""
        from imem.blocking.memory import SyncMemory  # noqa: PLC0415 - it imports this module

        return SyncMemory.open(settings, warm_up=warm_up)

    # Reading

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

    async def history(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> HistorySection:
        """Return the newest analyses of *subject* with findings, decisions and outcomes; at most *limit* (200)."""
        return await single_reads.part(self._recall, history.SECTION, subject, limit=limit, **await self._at(**asked))

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

    async def debates(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> DebatesSection:
        """Return the newest debates on *subject* and how they ended."""
        return await single_reads.part(self._recall, debates.SECTION, subject, limit=limit, **await self._at(**asked))

    async def contradictions(
        self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]
    ) -> ContradictionsSection:
        """
        Return contradictions between sources about *subject*: open ones first, by priority, then the newest.

        Without ``as_of`` the answer says who is asked about those that wait for a person, and until when.
        """
        at = await self._at(**asked)
        found = await single_reads.part(self._recall, contradictions.SECTION, subject, limit=limit, **at)
        if at["as_of"] is not None:
            return contradictions.ContradictionsSection(**dict(found))
        return await contradictions.with_persons_asked(found, self._stores.database, deadline=at["deadline"])

    async def patterns(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> RecordsSection:
        """Return the patterns that were active then, of the sector of *subject* or of none."""
        return await single_reads.part(self._recall, patterns.SECTION, subject, limit=limit, **await self._at(**asked))

    async def lessons(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> RecordsSection:
        """
        Return the lessons that concern *subject*: those that a person approved, and advisory ones.

        An advisory lesson is in the state ``pending_gate6``: a person reviewed what it is learned from.
        """
        return await single_reads.part(self._recall, lessons.SECTION, subject, limit=limit, **await self._at(**asked))

    async def track_record(
        self, agent: str, domain: str | None = None, **asked: Unpack[ReadOptions]
    ) -> TrackRecordsSection:
        """
        Return the track record of *agent* in *domain*, or in every domain in which it was scored.

        It holds the share right with its 95 % interval, and the skill.

        Raises:
            PermissionDenied: an agent reads its own record alone; briefings show those of agents with claims.
        """
        return await single_reads.agent_records(self._recall, agent, domain, **await self._at(**asked))

    async def track_records(
        self,
        agents: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        *,
        as_of: Sequence[datetime] | None = None,
        unscored: bool = False,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> TrackRecordsTable:
        """
        Return the track records of many agents in many domains as of many moments.

        Args:
            agents: None for all.
            domains: None for every domain in which one of the agents was scored.
            as_of: the moments; None for now.
            unscored: whether to include agents none of whose claims was settled; their ``evidence`` is "none".

        Raises:
            BadInput: more than 10,000 records are asked for, by agents and domains or as of several moments; what is
                known later does not count.
            PermissionDenied: an agent reads its own record alone.
        """
        return await single_reads.many_records(
            self._recall,
            agents,
            domains,
            as_of=as_of,
            unscored=unscored,
            clock=clock,
            deadline=await self._due(deadline_ms, Part.SCORES),
        )

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

    async def weights(
        self,
        agents: Sequence[str],
        domain: str,
        context: Mapping[str, str | None] | None = None,
        *,
        as_of: datetime | Sequence[datetime] | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> WeightsTable:
        """
        Return the weights of *agents* as one panel in *domain*, for those who pool answers themselves.

        ::

            days = [...]
            found = await memory.weights(["macro", "options", "news"], "rates", as_of=days)
            shares = found.at(days[0])

        They are those of a panel's answer: by earlier seasons, or by record, as of what was known by then. A baseline
        has none. Where an agent did not answer, divide the weights of the others by their sum.

        Args:
            context: values of the questions by dimension, as for :meth:`credibility`; observations that share fewer
                than four of the six count half. None: of any.
            as_of: one moment or many; None for now.

        Raises:
            BadInput: no agent is named, agents times moments are more than 100,000, or a dimension or its value is
                unknown.
            PermissionDenied: an agent reads its own alone; :meth:`panel` shows the weights of those who answered.
        """
        moments = [as_of] if isinstance(as_of, datetime) else as_of
        return await single_reads.weights(
            self._recall,
            agents,
            domain,
            context,
            as_of=moments,
            clock=clock,
            deadline=await self._due(deadline_ms, Part.SCORES),
        )

    async def debate(self, debate_id: str, **asked: Unpack[ReadOptions]) -> RecordedDebate:
        """
        Return a debate with every turn, verbatim.

        Raises:
            UnknownDebate: there was no such debate.
        """
        return await single_reads.debate(self._recall, debate_id, **await self._at(**asked))

    async def text(self, kind: str, key: str, **asked: Unpack[ReadOptions]) -> LongText | None:
        """
        Return the long text of a record; None if it had none.

        For a pattern that was not active it is None, unless the actor may validate patterns, and for a lesson that
        agents did not see, unless the actor may read lessons in every state.
        """
        return await single_reads.text(self._recall, kind, key, **await self._at(**asked))

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

        due = await self._due(deadline_ms, Part.ENCODER, *(() if subject is None else _OF_THE_GRAPH))
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

    async def warm(self, subject: str, *, deadline_ms: float | None = None) -> int:
        """
        Load the sections of *subject*'s briefing into the cache; return how many were loaded.

        A session does so for its subject when it begins, in the background.

        Raises:
            UnknownSubject: nothing is known under that name.
        """
        due_ms = budget_ms(deadline_ms, default=WARM_MS, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS)
        return await self._recall.warm(subject, deadline=Deadline.after_ms(due_ms), budget_ms=due_ms)

    async def query(self, name: str, parameters: Mapping[str, Any] | None = None, **asked: Unpack[ReadOptions]) -> Rows:
        """
        Run a named query of the graph (the reference lists them) and return its rows.

        The search text of a full-text index is plain text: each of its words counts, and nothing in it is syntax.

        Raises:
            BadInput: there is no such query, or a parameter is missing, unknown or of another type.
        """
        given = checked(name, parameters or {})
        return await single_reads.named(self._recall, name, given, **await self._at(**asked))

    async def _at(
        self, *, as_of: datetime | None = None, clock: str = "known", deadline_ms: float | None = None
    ) -> _ReadMoment:
        return {"as_of": as_of, "clock": clock, "deadline": await self._due(deadline_ms, *_OF_THE_GRAPH)}
