"""
``SyncMemory``: the methods of :class:`imem.memory.Memory` without ``await``.

A test compares: each coroutine method of the memory has its counterpart here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from imem.blocking.portal import Portal
from imem.blocking.twin import Twin, blocking
from imem.journal.settings import Settings
from imem.memory import Memory
from imem.services.parts.work_api import SESSION_BUDGET_MS

if TYPE_CHECKING:
    from imem.blocking.conversations import SyncConversation
    from imem.blocking.memories import SyncMemories
    from imem.blocking.trading import SyncReflections, SyncTrades
    from imem.blocking.working import SyncSession, SyncWorkingMemory


class SyncMemory(Twin[Memory]):
    """
    The memory for callers without an event loop; made by :meth:`imem.memory.Memory.sync`.

    Calls run in one loop thread; any number of threads may call at once. The methods' promises and errors
    stand at :class:`imem.memory.Memory`.
    """

    def __init__(self, portal: Portal, memory: Memory) -> None:
        super().__init__(portal, memory)
        self._portal = portal

    @classmethod
    @contextmanager
    def open(cls, settings: Settings | None = None, *, warm_up: bool = False) -> Iterator[Self]:
        """Open the memory that *settings* name, the environment's by default; see :meth:`imem.memory.Memory.open`."""
        with Portal() as portal, portal.hold_context(lambda: Memory.open(settings, warm_up=warm_up)) as held:
            yield cls(portal, held.value)

    @contextmanager
    def acting_as(self, agent: str) -> Iterator[Self]:
        """Act as one of several agents of this process (delegation); see :meth:`imem.memory.Memory.acting_as`."""
        with self._portal.hold_context(lambda: self._inner.acting_as(agent)) as held:
            yield type(self)(self._portal, held.value)

    # Recording

    record_company = blocking(Memory.record_company)
    record_market = blocking(Memory.record_market)
    record_agent = blocking(Memory.record_agent)
    record_analysis = blocking(Memory.record_analysis)
    record_finding = blocking(Memory.record_finding)
    record_decision = blocking(Memory.record_decision)
    record_outcome = blocking(Memory.record_outcome)
    record_debate = blocking(Memory.record_debate)
    record_contradiction = blocking(Memory.record_contradiction)
    record_data_point = blocking(Memory.record_data_point)
    record = blocking(Memory.record)
    record_groups = blocking(Memory.record_groups)
    link = blocking(Memory.link)
    correct = blocking(Memory.correct)

    # Memories

    remember = blocking(Memory.remember)

    @property
    def memories(self) -> SyncMemories:
        """The memories that the actor may read; see :attr:`imem.memory.Memory.memories`."""
        from imem.blocking.memories import SyncMemories  # noqa: PLC0415 - what makes vectors takes long to import

        return SyncMemories(self._portal, self._portal.run(lambda: self._inner.memories))

    # Trades

    @property
    def trades(self) -> SyncTrades:
        """The ledger of trades; see :attr:`imem.memory.Memory.trades`."""
        from imem.blocking.trading import SyncTrades  # noqa: PLC0415 - as above

        return SyncTrades(self._portal, self._inner.trades)

    @property
    def reflections(self) -> SyncReflections:
        """Notes about closed trades; see :attr:`imem.memory.Memory.reflections`."""
        from imem.blocking.trading import SyncReflections  # noqa: PLC0415 - as above

        return SyncReflections(self._portal, self._inner.reflections)

    # Signals

    record_signal = blocking(Memory.record_signal)
    signals = blocking(Memory.signals)
    signal_histories = blocking(Memory.signal_histories)

    # Analyses, pauses and gates

    start_analysis = blocking(Memory.start_analysis)
    analysis_state = blocking(Memory.analysis_state)
    open_gate = blocking(Memory.open_gate)
    answer_gate = blocking(Memory.answer_gate)
    gates = blocking(Memory.gates)
    pause = blocking(Memory.pause)
    resume = blocking(Memory.resume)
    extend_pause = blocking(Memory.extend_pause)
    cancel_pause = blocking(Memory.cancel_pause)
    paused = blocking(Memory.paused)
    pause_state = blocking(Memory.pause_state)

    # Review tasks

    tasks = blocking(Memory.tasks)
    task = blocking(Memory.task)
    answer = blocking(Memory.answer)
    delegate = blocking(Memory.delegate)
    standing_rules = blocking(Memory.standing_rules)
    revoke_rule = blocking(Memory.revoke_rule)
    roster = blocking(Memory.roster)
    set_reviewer = blocking(Memory.set_reviewer)

    # Debates

    challenge = blocking(Memory.challenge)
    acknowledge = blocking(Memory.acknowledge)
    respond = blocking(Memory.respond)
    accept = blocking(Memory.accept)
    stand = blocking(Memory.stand)
    withdraw = blocking(Memory.withdraw)
    judge = blocking(Memory.judge)
    debate_progress = blocking(Memory.debate_progress)
    running_debates = blocking(Memory.running_debates)

    # Forecasts of decisions

    forecasts = blocking(Memory.forecasts)
    forecast_report = blocking(Memory.forecast_report)
    postmortems = blocking(Memory.postmortems)
    replay_policy = blocking(Memory.replay_policy)

    # Lessons in every state

    all_lessons = blocking(Memory.all_lessons)
    lesson_effect = blocking(Memory.lesson_effect)
    learning_report = blocking(Memory.learning_report)

    # Patterns whatever their status

    plan_pattern_test = blocking(Memory.plan_pattern_test)
    mine_patterns = blocking(Memory.mine_patterns)
    propose_pattern = blocking(Memory.propose_pattern)
    all_patterns = blocking(Memory.all_patterns)
    pattern_tests = blocking(Memory.pattern_tests)
    set_pattern_status = blocking(Memory.set_pattern_status)

    # Synchronisation

    push = blocking(Memory.push)
    pull = blocking(Memory.pull)
    notices = blocking(Memory.notices)
    route = blocking(Memory.route)
    force_sync = blocking(Memory.force_sync)
    snapshot = blocking(Memory.snapshot)
    read_snapshot = blocking(Memory.read_snapshot)
    sync_gate = blocking(Memory.sync_gate)
    gate_report = blocking(Memory.gate_report)

    # Working

    def working(self, agent_id: str) -> SyncWorkingMemory:
        """Return the working memory of an agent instance, like a dict; see :meth:`imem.memory.Memory.working`."""
        from imem.blocking.working import SyncWorkingMemory  # noqa: PLC0415 - who only asks needs none of it

        return SyncWorkingMemory.of(self._portal, lambda: self._inner.working(agent_id))

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
    ) -> AbstractContextManager[SyncSession]:
        """
        Begin or resume an agent instance; for arguments and errors see :meth:`imem.memory.Memory.session`.

        ::

            with memory.session("mu-valuation", analysis_id=…, agent_type="valuation", subject_id=…) as session:
                while (subtask := session.current) is not None:
                    session.memory.set("stage", subtask)
                    session.deliver(subtask, postgres={"rate": 0.09}, graph=NO_RESULT)
                    session.complete(subtask)
        """
        from imem.blocking.working import SyncSession  # noqa: PLC0415 - as above

        return SyncSession.of(
            self._portal,
            lambda: self._inner.session(
                agent_id,
                analysis_id=analysis_id,
                agent_type=agent_type,
                subject_id=subject_id,
                agent_config=agent_config,
                wait_ms=wait_ms,
                deadline_ms=deadline_ms,
            ),
        )

    def conversation(self, workflow_id: str, thread_id: str) -> SyncConversation:
        """Return a thread of messages; see :meth:`imem.memory.Memory.conversation`."""
        from imem.blocking.conversations import SyncConversation  # noqa: PLC0415 - who has none needs none of it

        return SyncConversation.of(self._portal, lambda: self._inner.conversation(workflow_id, thread_id))

    # Reading

    brief = blocking(Memory.brief)
    history = blocking(Memory.history)
    similar = blocking(Memory.similar)
    debates = blocking(Memory.debates)
    contradictions = blocking(Memory.contradictions)
    patterns = blocking(Memory.patterns)
    lessons = blocking(Memory.lessons)
    track_record = blocking(Memory.track_record)
    track_records = blocking(Memory.track_records)
    panel = blocking(Memory.panel)
    weights = blocking(Memory.weights)
    credibility = blocking(Memory.credibility)
    explain = blocking(Memory.explain)
    auto_resolve = blocking(Memory.auto_resolve)
    debate = blocking(Memory.debate)
    find_precedents = blocking(Memory.find_precedents)
    text = blocking(Memory.text)
    search = blocking(Memory.search)
    view = blocking(Memory.view)
    regime = blocking(Memory.regime)
    value = blocking(Memory.value)
    differences = blocking(Memory.differences)
    sources = blocking(Memory.sources)
    warm = blocking(Memory.warm)
    query = blocking(Memory.query)
