"""
``Memory``: the institution's memory, as agents import it.

::

    async with Memory.open() as memory:
        receipt = await memory.record_finding(finding, wait_visible=True)

    with Memory.sync() as memory:
        receipt = memory.record_finding(finding)

The methods without ``await`` are generated from this module (``tools/make_sync.py``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from imem.answering import recall_over, while_warming
from imem.asking import (
    LEAST_BUDGET_MS,
    MOST_BUDGET_MS,
    MOST_WRITE_BUDGET_MS,
    budget_ms,
    share,
    texts,
    whole,
)
from imem.asking import (
    parameters as checked,
)
from imem.exchanging import Exchanging
from imem.stating import Stating
from imem.stores import Stores
from journal.deadline import Deadline
from journal.settings import Settings
from kg.similarity import SERVED
from kg.views import View
from recall import single, views
from recall.arms import Limits
from recall.model import (
    Briefing,
    DebateOnFile,
    DebatesArm,
    HistoryArm,
    RecordsArm,
    Rows,
    SimilarArm,
    Text,
    TrackRecordsArm,
)

if TYPE_CHECKING:
    from checkpoints.conversation import Conversations
    from checkpoints.pause_rows import Pause
    from checkpoints.pauses import PauseResult, PauseState, ResumeResult
    from checkpoints.plan import Plan
    from checkpoints.session import Session
    from imem.conversing import Conversation
    from imem.sync_memory import SyncMemory
    from imem.working import GuardedMemory, Work

SESSION_BUDGET_MS: Final = 40_000
"""How long an agent may take to come back, in milliseconds, where the call does not say: the slowest store has 30 s."""

ORDER_BUDGET_MS: Final = 90_000
"""How long an order about a pause is carried out here, in milliseconds, where the call does not say."""


class Asking(TypedDict, total=False):
    """
    What every asking method takes beside its question.

    Attributes:
        as_of: the moment for which the answer holds, aware; the present by default. An earlier one is clamped to the
            moment up to which everything is in place, and the answer says which was used.
        clock: ``known`` (what could have been known by then, the default) or ``recorded`` (what was on file here).
        deadline_ms: when the answer is due, 10 to 2,000 ms; ``deadline_ms`` of the settings by default.
    """

    as_of: datetime | None
    clock: str
    deadline_ms: int


class _Asked(TypedDict):
    as_of: datetime | None
    clock: str
    deadline: Deadline


def _order_due(deadline_ms: float) -> Deadline:
    return Deadline.after_ms(budget_ms(deadline_ms, default=ORDER_BUDGET_MS, least=1, most=MOST_WRITE_BUDGET_MS))


class Memory(Stating, Exchanging):
    """
    The memory of one process and one event loop; made by :meth:`open`.

    **What every writing method promises.** It returns when the journal has committed, with a receipt that names the
    event. The same content again is ``identical`` and writes nothing, so that a call whose answer was lost may be
    repeated. They raise:

    * :class:`~journal.errors.BadInput`: something is wrong with the content; names the field; nothing was written.
    * :class:`~journal.errors.CoreConflict`: the record is on file with another core; :meth:`correct` replaces it.
    * :class:`~journal.errors.PermissionDenied`: the actor's role does not allow it; a denial row was written.
    * :class:`~journal.errors.PostgresUnavailable`, :class:`~journal.errors.BudgetExceeded`: nothing was written; retry.
    * :class:`~journal.errors.OutcomeUnknown`: the connection broke while committing; repeating the call is safe.

    **What every asking method promises.** It ends by its deadline. They raise:

    * :class:`~journal.errors.BadInput`: something is wrong with the question; names the argument.
    * :class:`~journal.errors.PermissionDenied`: the actor's role does not allow it; a denial row was written.
    * :class:`~journal.errors.StoreUnavailable`, :class:`~journal.errors.BudgetExceeded`: it could not be asked in time
      (a briefing says so in its arms instead); retry.

    A crash of the caller leaves either the whole write or nothing. A graph that is away delays visibility alone.

    Who writes is said by the settings (``actor``, ``role``, ``may_import``), never by a call.
    """

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self._work: Work | None = None
        self._conversations: Conversations | None = None
        self._recall = recall_over(stores)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None) -> AsyncIterator[Self]:
        """
        Open the memory that *settings* name, the environment's by default; connections are made when first used.

        Where the program has not configured structlog, its events go to standard error, from ``log_level`` on.

        Raises:
            SettingsError: a setting is wrong.
            StackError: a server is not named and no local stack runs.
        """
        async with Stores.open(settings) as stores:
            memory = cls(stores)
            try:
                yield memory
            finally:
                await memory._recall.sources.watch.close()
                if memory._work is not None:
                    await memory._work.close()

    @staticmethod
    def sync(settings: Settings | None = None) -> AbstractContextManager[SyncMemory]:
        """Open the memory for callers without an event loop: the same methods without ``await``; see :meth:`open`."""
        from imem.sync_memory import SyncMemory  # noqa: PLC0415 - generated from this module, which it imports

        return SyncMemory.open(settings)

    # Working

    @property
    def work(self) -> Work:
        """What agents under way need: sessions, working memories, checkpoints; made on first use."""
        if self._work is None:
            from imem.working import Work  # noqa: PLC0415 - who only asks needs none of it

            self._work = Work(self._stores)
        return self._work

    def working(self, agent_id: str) -> GuardedMemory:
        """
        Return the working memory of an agent instance: like a dict, of texts, lists, hashes, sets and sorted sets.

        An agent has its own alone; a person may look and not write. It is there while a :meth:`session` of the agent
        runs, or is paused.
        """
        return self.work.memory(agent_id)

    def session(
        self,
        agent_id: str,
        *,
        analysis_id: str,
        agent_type: str,
        subject_id: str,
        agent_config: Mapping[str, Any] | None = None,
        wait_ms: int = 0,
        deadline_ms: int = SESSION_BUDGET_MS,
    ) -> AbstractAsyncContextManager[Session]:
        """
        Begin or go on with the work of an agent instance: at its next subtask, with exactly what it knew.

        ::

            async with memory.session("mu-valuation", analysis_id=…, agent_type="valuation", subject_id=…) as session:
                while (subtask := session.current) is not None:
                    await session.memory.set("stage", subtask)
                    await session.deliver(subtask, postgres={"rate": 0.09}, graph=NOTHING)
                    await session.complete(subtask)

        Args:
            agent_id: the instance: letters, digits, ``_`` and ``-``, at most 64.
            agent_type: one that is defined; ``IMEM_AGENTS`` names a file with more.
            wait_ms: how long to wait for another process that runs the agent, in milliseconds. One that was killed
                keeps the agent for 30 s after its last sign of life.
            deadline_ms: how long the recovery may take after that, in milliseconds.

        Raises:
            NotResumable: nothing that is stored is what it was; an alert was raised, and nothing was started.
            LeaseHeld: another process runs the agent; retryable.
            LeaseLost: another process has taken over; the block ends at its next call.
            PermissionDenied: the instance is another agent's.
        """
        most = MOST_WRITE_BUDGET_MS
        waiting_ms = budget_ms(wait_ms, default=0, least=0, most=most, name="wait_ms")
        recovering_ms = budget_ms(deadline_ms, default=SESSION_BUDGET_MS, least=1, most=most)
        session = self.work.session(
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            agent_config=agent_config,
            wait=Deadline.after_ms(waiting_ms),
            deadline=Deadline.after_ms(waiting_ms + recovering_ms),
        )
        return while_warming(self._recall, subject_id, session)

    def conversation(self, workflow_id: str, thread_id: str) -> Conversation:
        """
        Return a thread of messages that stays short without being forgotten; it begins with its first message.

        ::

            talk = memory.conversation("analysis-7", "valuation")
            await talk.add(Message(role="user", content="What drives the margin?"))
            messages = [message.to_chat() for message in await talk.window()]

        It belongs to the actor that begins it: nobody else adds to it, people may read and delete it.

        Args:
            workflow_id: whose thread it is, such as an analysis; at most 200 characters.
            thread_id: its name there; at most 255 characters.

        Raises:
            BadInput: an id is wrong.
            SettingsError: the settings name an endpoint for summaries, and no model.
        """
        from imem.conversing import Conversation  # noqa: PLC0415 - what makes summaries takes long to import

        if self._conversations is None:
            from checkpoints.conversation import Conversations  # noqa: PLC0415 - as above
            from checkpoints.summaries import summariser_of  # noqa: PLC0415 - as above

            self._conversations = Conversations(self._stores.database, summariser_of(self._stores.settings))
        return Conversation(self._stores.gateway, self._conversations, workflow_id, thread_id)

    # Pausing

    async def pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseResult:
        """
        Pause an analysis, named by its id or by its stock: its agents stop at a safe point, what they know is proven.

        What is not done by the deadline, or after a crash, the workers go on with; :meth:`pause_state` says how it
        stands. Orders are for people.

        Raises:
            BadInput: nothing runs under that name, or several analyses do.
        """
        return await self.work.orders.pause(what, reason, deadline=_order_due(deadline_ms))

    async def resume(
        self,
        what: str,
        plan: Plan | Mapping[str, Any] | None = None,
        *,
        notify: bool = True,
        deadline_ms: float = ORDER_BUDGET_MS,
    ) -> ResumeResult:
        """
        Resume a paused analysis, each agent as *plan* says, once its memory is proven.

        Args:
            plan: ``{"restart": {agent: "checkpoint" or "clean"}, "skip": […], "wait": […]}``; agents that it does not
                name do what failure and dependencies ask for.
            notify: tell people when it runs.

        Raises:
            TransitionRefused: it is not paused, or somebody else resumes it already.
        """
        return await self.work.orders.resume(what, plan, notify=notify, deadline=_order_due(deadline_ms))

    async def extend_pause(
        self, what: str, until: datetime, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS
    ) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """
        return await self.work.orders.extend(what, until, reason, deadline=_order_due(deadline_ms))

    async def cancel_pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> str:
        """Give a paused analysis up: it has failed, its memories go at once; return its id."""
        return await self.work.orders.cancel(what, reason, deadline=_order_due(deadline_ms))

    async def paused(self, *, everything: bool = False, deadline_ms: float = ORDER_BUDGET_MS) -> list[Pause]:
        """Return what is paused; *everything*: and what was resumed of late."""
        return await self.work.orders.listed(everything=everything, deadline=_order_due(deadline_ms))

    async def pause_state(self, what: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        return await self.work.orders.state(what, deadline=_order_due(deadline_ms))

    # Asking

    async def brief(
        self, subject: str, *, for_agent: str | None = None, limits: Limits | None = None, **options: Unpack[Asking]
    ) -> Briefing:
        """
        Return what the institution knew about *subject*: a subject id, a ticker, or a market id.

        Each arm of the answer says how good it is; one that fails or comes late leaves the others whole.

        Args:
            for_agent: who asks; its own track record is shown as well. An agent asks for itself alone.
            limits: how much of each is wanted.

        Raises:
            UnknownSubject: nothing is known under that name; nearest names are given.
        """
        texts(subject=subject, for_agent=for_agent)
        return await self._recall.brief(subject, for_agent=for_agent, limits=limits, **self._asked(options))

    async def history(self, subject: str, *, limit: int | None = None, **options: Unpack[Asking]) -> HistoryArm:
        """Return the newest analyses of *subject* with findings, decisions and outcomes; at most *limit* (200)."""
        texts(subject=subject)
        whole("limit", limit)
        return await single.part(self._recall, HistoryArm, "history", subject, limit=limit, **self._asked(options))

    async def similar(
        self, what: str, *, limit: int | None = None, min_score: float = SERVED, **options: Unpack[Asking]
    ) -> SimilarArm:
        """
        Return analyses of other subjects that are like *what*, most alike first, with what was decided after them.

        A new analysis is found within a minute, from either side; until then the answer says what it lacks.

        Args:
            what: an analysis, by its id, or a subject, whose newest analyses count.
            limit: how many, 10 by default; of the present ten are kept for each analysis.
            min_score: how alike they must be, 0 to 1.

        Raises:
            UnknownSubject: nothing is known under that name; nearest names are given.
        """
        texts(what=what)
        whole("limit", limit)
        share("min_score", min_score)
        asked = self._asked(options)
        return await single.similar_to(self._recall, what, limit=limit, min_score=min_score, **asked)

    async def debates(self, subject: str, *, limit: int | None = None, **options: Unpack[Asking]) -> DebatesArm:
        """Return the newest debates on *subject* and how they ended."""
        texts(subject=subject)
        whole("limit", limit)
        return await single.part(self._recall, DebatesArm, "debates", subject, limit=limit, **self._asked(options))

    async def contradictions(self, subject: str, *, limit: int | None = None, **options: Unpack[Asking]) -> RecordsArm:
        """Return where sources disagreed about the data of *subject*."""
        texts(subject=subject)
        whole("limit", limit)
        asked = self._asked(options)
        return await single.part(self._recall, RecordsArm, "contradictions", subject, limit=limit, **asked)

    async def patterns(self, subject: str, *, limit: int | None = None, **options: Unpack[Asking]) -> RecordsArm:
        """Return the patterns that were active then, of the sector of *subject* or of none."""
        texts(subject=subject)
        whole("limit", limit)
        return await single.part(self._recall, RecordsArm, "patterns", subject, limit=limit, **self._asked(options))

    async def lessons(self, subject: str, *, limit: int | None = None, **options: Unpack[Asking]) -> RecordsArm:
        """Return the lessons that bear on *subject*."""
        texts(subject=subject)
        whole("limit", limit)
        return await single.part(self._recall, RecordsArm, "lessons", subject, limit=limit, **self._asked(options))

    async def track_record(self, agent: str, domain: str | None = None, **options: Unpack[Asking]) -> TrackRecordsArm:
        """
        Return what the word of *agent* has been worth, in *domain* or in every domain in which it was scored.

        Raises:
            PermissionDenied: an agent reads its own record alone; others' stand in briefings, beside what they said.
        """
        texts(agent=agent, domain=domain)
        return await single.agent_records(self._recall, agent, domain, **self._asked(options))

    async def debate(self, debate_id: str, **options: Unpack[Asking]) -> DebateOnFile:
        """
        Return a debate with every turn, verbatim.

        Raises:
            BadInput: there was no such debate.
        """
        texts(debate=debate_id)
        return await single.debate(self._recall, debate_id, **self._asked(options))

    async def text(self, kind: str, key: str, **options: Unpack[Asking]) -> Text | None:
        """
        Return the long text of a record, or None when there was none.

        Of patterns an agent reads those alone that were active; another is as good as none.
        """
        texts(kind=kind, key=key)
        return await single.text(self._recall, kind, key, **self._asked(options))

    async def view(self, name: str, key: str, *, deadline_ms: float | None = None) -> View | None:
        """
        Return a row of a materialised view: as of its last making, some minutes ago, which the row names.

        Args:
            name: ``top_patterns`` of a sector, or ``*`` for those of none: active ones, the most successful first;
                ``agent_credibility``: the sums of an agent's track records; ``company_summaries`` of a subject;
                ``peer_comparisons``: the companies of a sector side by side.
            key: the sector, agent or subject; where the view has no row of it, its value is None.

        Returns:
            None where the view was never made.

        Raises:
            UnknownSubject: nothing is known under the name of a subject; nearest names are given.
        """
        texts(view=name, key=key)
        return await views.row_of(self._recall, name, key, deadline=self._due(deadline_ms))

    async def warm(self, subject: str, *, deadline_ms: float | None = None) -> int:
        """
        Load what briefings of *subject* will ask for, so that the next ones find it; return how many parts were loaded.

        A session does so for its subject when it begins, in the background.

        Raises:
            UnknownSubject: nothing is known under that name.
        """
        texts(subject=subject)
        due_ms = budget_ms(deadline_ms, default=MOST_BUDGET_MS, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS)
        return await self._recall.warm(subject, deadline=Deadline.after_ms(due_ms), budget_ms=due_ms)

    async def query(self, name: str, parameters: Mapping[str, Any] | None = None, **options: Unpack[Asking]) -> Rows:
        """
        Run a named query of the graph (the reference lists them) and return its rows.

        Raises:
            BadInput: there is no such query, or a parameter is missing, unknown or of another type.
        """
        given = checked(name, parameters or {})
        return await single.named(self._recall, name, given, **self._asked(options))

    def _asked(self, options: Asking) -> _Asked:
        """
        Return the options of a question with their defaults.

        Raises:
            BadInput: the deadline is out of bounds.
        """
        return {
            "as_of": options.get("as_of"),
            "clock": options.get("clock", "known"),
            "deadline": self._due(options.get("deadline_ms")),
        }

    def _due(self, deadline_ms: float | None) -> Deadline:
        """Return until when a question is to be answered; the settings say so where the caller does not."""
        default = self._stores.settings.deadline_ms
        return Deadline.after_ms(budget_ms(deadline_ms, default=default, least=LEAST_BUDGET_MS, most=MOST_BUDGET_MS))
