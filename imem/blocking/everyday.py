"""
The operations of ``Memory`` and of its facets, without ``await``.

Written by `make reference` from the operations of ``Memory``; changed there alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imem.blocking.twin import Twin, blocking
from imem.memory import Memory
from imem.services.facets.agents import AgentsFacet
from imem.services.facets.analyses import AnalysesFacet, GatesFacet, PausesFacet
from imem.services.facets.audit import AuditFacet
from imem.services.facets.contradictions import ContradictionsFacet
from imem.services.facets.debates import DebatesFacet
from imem.services.facets.forecasts import ForecastsFacet
from imem.services.facets.lessons import LessonsFacet
from imem.services.facets.patterns import PatternsFacet
from imem.services.facets.scores import ScoresFacet
from imem.services.facets.signals import SignalsFacet
from imem.services.facets.tasks import TasksFacet

if TYPE_CHECKING:
    from imem.blocking.memories import SyncMemories
    from imem.blocking.reflections import SyncReflections
    from imem.blocking.trades import SyncTrades


class SyncDebates(Twin[DebatesFacet]):
    """The facet ``memory.debates``; see :class:`~imem.services.facets.debates.DebatesFacet`."""

    about = blocking(DebatesFacet.about)
    read = blocking(DebatesFacet.read)
    precedents = blocking(DebatesFacet.precedents)
    challenge = blocking(DebatesFacet.challenge)
    acknowledge = blocking(DebatesFacet.acknowledge)
    respond = blocking(DebatesFacet.respond)
    accept = blocking(DebatesFacet.accept)
    stand = blocking(DebatesFacet.stand)
    withdraw = blocking(DebatesFacet.withdraw)
    judge = blocking(DebatesFacet.judge)
    progress = blocking(DebatesFacet.progress)
    running = blocking(DebatesFacet.running)
    snapshot = blocking(DebatesFacet.snapshot)
    read_snapshot = blocking(DebatesFacet.read_snapshot)


class SyncContradictions(Twin[ContradictionsFacet]):
    """The facet ``memory.contradictions``; see :class:`~imem.services.facets.contradictions.ContradictionsFacet`."""

    about = blocking(ContradictionsFacet.about)
    differences = blocking(ContradictionsFacet.differences)
    sources = blocking(ContradictionsFacet.sources)
    rules = blocking(ContradictionsFacet.rules)
    revoke_rule = blocking(ContradictionsFacet.revoke_rule)


class SyncPatterns(Twin[PatternsFacet]):
    """The facet ``memory.patterns``; see :class:`~imem.services.facets.patterns.PatternsFacet`."""

    about = blocking(PatternsFacet.about)
    plan_test = blocking(PatternsFacet.plan_test)
    mine = blocking(PatternsFacet.mine)
    propose = blocking(PatternsFacet.propose)
    all = blocking(PatternsFacet.all)
    tests = blocking(PatternsFacet.tests)
    set_status = blocking(PatternsFacet.set_status)


class SyncLessons(Twin[LessonsFacet]):
    """The facet ``memory.lessons``; see :class:`~imem.services.facets.lessons.LessonsFacet`."""

    about = blocking(LessonsFacet.about)
    all = blocking(LessonsFacet.all)
    effect = blocking(LessonsFacet.effect)
    report = blocking(LessonsFacet.report)


class SyncScores(Twin[ScoresFacet]):
    """The facet ``memory.scores``; see :class:`~imem.services.facets.scores.ScoresFacet`."""

    track_record = blocking(ScoresFacet.track_record)
    track_records = blocking(ScoresFacet.track_records)
    credibility = blocking(ScoresFacet.credibility)
    weights = blocking(ScoresFacet.weights)
    explain = blocking(ScoresFacet.explain)
    auto_resolve = blocking(ScoresFacet.auto_resolve)


class SyncForecasts(Twin[ForecastsFacet]):
    """The facet ``memory.forecasts``; see :class:`~imem.services.facets.forecasts.ForecastsFacet`."""

    of = blocking(ForecastsFacet.of)
    report = blocking(ForecastsFacet.report)
    postmortems = blocking(ForecastsFacet.postmortems)
    replay_policy = blocking(ForecastsFacet.replay_policy)


class SyncSignals(Twin[SignalsFacet]):
    """The facet ``memory.signals``; see :class:`~imem.services.facets.signals.SignalsFacet`."""

    record = blocking(SignalsFacet.record)
    about = blocking(SignalsFacet.about)
    histories = blocking(SignalsFacet.histories)


class SyncTasks(Twin[TasksFacet]):
    """The facet ``memory.tasks``; see :class:`~imem.services.facets.tasks.TasksFacet`."""

    list = blocking(TasksFacet.list)
    read = blocking(TasksFacet.read)
    answer = blocking(TasksFacet.answer)
    delegate = blocking(TasksFacet.delegate)
    roster = blocking(TasksFacet.roster)
    set_reviewer = blocking(TasksFacet.set_reviewer)


class SyncAnalyses(Twin[AnalysesFacet]):
    """The facet ``memory.analyses``; see :class:`~imem.services.facets.analyses.AnalysesFacet`."""

    start = blocking(AnalysesFacet.start)
    state = blocking(AnalysesFacet.state)


class SyncPauses(Twin[PausesFacet]):
    """The facet ``memory.pauses``; see :class:`~imem.services.facets.analyses.PausesFacet`."""

    pause = blocking(PausesFacet.pause)
    resume = blocking(PausesFacet.resume)
    extend = blocking(PausesFacet.extend)
    cancel = blocking(PausesFacet.cancel)
    list = blocking(PausesFacet.list)
    state = blocking(PausesFacet.state)


class SyncGates(Twin[GatesFacet]):
    """The facet ``memory.gates``; see :class:`~imem.services.facets.analyses.GatesFacet`."""

    open = blocking(GatesFacet.open)
    answer = blocking(GatesFacet.answer)
    list = blocking(GatesFacet.list)
    sync = blocking(GatesFacet.sync)
    report = blocking(GatesFacet.report)


class SyncAgents(Twin[AgentsFacet]):
    """The facet ``memory.agents``; see :class:`~imem.services.facets.agents.AgentsFacet`."""

    push = blocking(AgentsFacet.push)
    pull = blocking(AgentsFacet.pull)
    notices = blocking(AgentsFacet.notices)
    route = blocking(AgentsFacet.route)
    force_sync = blocking(AgentsFacet.force_sync)


class SyncAudit(Twin[AuditFacet]):
    """The facet ``memory.audit``; see :class:`~imem.services.facets.audit.AuditFacet`."""

    list = blocking(AuditFacet.list)


class EverydayTwin(Twin[Memory]):
    """The operations of ``Memory``; for their meaning see :class:`imem.memory.Memory`."""

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
    brief = blocking(Memory.brief)
    search = blocking(Memory.search)
    history = blocking(Memory.history)
    similar = blocking(Memory.similar)
    panel = blocking(Memory.panel)
    value = blocking(Memory.value)
    regime = blocking(Memory.regime)
    text = blocking(Memory.text)
    view = blocking(Memory.view)
    query = blocking(Memory.query)
    warm = blocking(Memory.warm)
    remember = blocking(Memory.remember)

    @property
    def debates(self) -> SyncDebates:
        """The facet; see :attr:`imem.memory.Memory.debates`."""
        return SyncDebates(self._caller, self._inner.debates)

    @property
    def contradictions(self) -> SyncContradictions:
        """The facet; see :attr:`imem.memory.Memory.contradictions`."""
        return SyncContradictions(self._caller, self._inner.contradictions)

    @property
    def patterns(self) -> SyncPatterns:
        """The facet; see :attr:`imem.memory.Memory.patterns`."""
        return SyncPatterns(self._caller, self._inner.patterns)

    @property
    def lessons(self) -> SyncLessons:
        """The facet; see :attr:`imem.memory.Memory.lessons`."""
        return SyncLessons(self._caller, self._inner.lessons)

    @property
    def scores(self) -> SyncScores:
        """The facet; see :attr:`imem.memory.Memory.scores`."""
        return SyncScores(self._caller, self._inner.scores)

    @property
    def forecasts(self) -> SyncForecasts:
        """The facet; see :attr:`imem.memory.Memory.forecasts`."""
        return SyncForecasts(self._caller, self._inner.forecasts)

    @property
    def signals(self) -> SyncSignals:
        """The facet; see :attr:`imem.memory.Memory.signals`."""
        return SyncSignals(self._caller, self._inner.signals)

    @property
    def tasks(self) -> SyncTasks:
        """The facet; see :attr:`imem.memory.Memory.tasks`."""
        return SyncTasks(self._caller, self._inner.tasks)

    @property
    def analyses(self) -> SyncAnalyses:
        """The facet; see :attr:`imem.memory.Memory.analyses`."""
        return SyncAnalyses(self._caller, self._inner.analyses)

    @property
    def pauses(self) -> SyncPauses:
        """The facet; see :attr:`imem.memory.Memory.pauses`."""
        return SyncPauses(self._caller, self._inner.pauses)

    @property
    def gates(self) -> SyncGates:
        """The facet; see :attr:`imem.memory.Memory.gates`."""
        return SyncGates(self._caller, self._inner.gates)

    @property
    def agents(self) -> SyncAgents:
        """The facet; see :attr:`imem.memory.Memory.agents`."""
        return SyncAgents(self._caller, self._inner.agents)

    @property
    def audit(self) -> SyncAudit:
        """The facet; see :attr:`imem.memory.Memory.audit`."""
        return SyncAudit(self._caller, self._inner.audit)

    @property
    def memories(self) -> SyncMemories:
        """The facet; see :attr:`imem.memory.Memory.memories`."""
        from imem.blocking.memories import SyncMemories  # noqa: PLC0415 - few programs need it

        return SyncMemories(self._caller, self._inner.memories)

    @property
    def trades(self) -> SyncTrades:
        """The facet; see :attr:`imem.memory.Memory.trades`."""
        from imem.blocking.trades import SyncTrades  # noqa: PLC0415 - few programs need it

        return SyncTrades(self._caller, self._inner.trades)

    @property
    def reflections(self) -> SyncReflections:
        """The facet; see :attr:`imem.memory.Memory.reflections`."""
        from imem.blocking.reflections import SyncReflections  # noqa: PLC0415 - few programs need it

        return SyncReflections(self._caller, self._inner.reflections)
