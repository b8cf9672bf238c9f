"""Signals of agents, recorded and read: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import structlog

from imem.ingest.recorder import prepare, record_all
from imem.journal.arguments import checks_arguments
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, PermissionDenied, UnknownSubject
from imem.journal.events.ids import new_id
from imem.kg.asof import AsOf, AsOfClock, parse_as_of
from imem.kg.kinds.work import Analysis
from imem.kg.load_format.lines import record_of
from imem.recall.metrics import SIGNAL_EVOLUTION
from imem.recall.read_horizon import fetch_read_horizon
from imem.recall.signals.evolution import RecordedSignal, evolution
from imem.recall.signals.formatting import memory_prompt
from imem.recall.signals.model import MOST, AgentMemory, AgentSignal, SubjectKind
from imem.recall.signals.reader import SignalRequest
from imem.recall.subjects import PREFIXES, PRESENT, SubjectFinder
from imem.services.arguments import LEAST_BUDGET_MS, budget_ms
from imem.services.parts.actor_api import ActorApi
from imem.services.parts.record_writer import WRITE_BUDGET_MS

log = structlog.get_logger()

CEILING_MS: Final = 5_000
"""Longest budget of reading signals, in milliseconds: an agent begins without them rather than wait longer."""

ANALYSIS_KIND: Final = "signal"
"""Kind of an analysis that is recorded for a signal which names none."""


@checks_arguments
class SignalsApi(ActorApi):
    """Records and reads signals; see :class:`imem.memory.Memory`."""

    async def record_signal(
        self, signal: AgentSignal, *, history: AgentMemory | None = None, deadline_ms: float = WRITE_BUDGET_MS
    ) -> RecordedSignal:
        """
        Record what an agent concluded about a subject, as a finding; return it with its id and time.

        ::

            await memory.record_signal(
                AgentSignal(
                    agent_name="macro", market_id="market:fed-june", direction="YES", fair_probability=0.62,
                    confidence=0.8, key_drivers=["Core inflation fell"], analysis_id="fed-june/3",
                )
            )

        :meth:`signals` shows it as soon as this returns. The same signal in the same analysis again writes nothing; an
        analysis is recorded for a signal that names none.

        Args:
            signal: an agent records its own alone.
            history: what the agent was shown before; what the signal changes against its newest is returned, counted,
                and written to the audit with the text that was shown.
            deadline_ms: until it is durable, in milliseconds.

        Raises:
            BadInput: a value is wrong; names the field. CoreConflict: the agent has another signal in that analysis.
            PermissionDenied: the signal is another agent's; a denial row was written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retry.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe if it names an analysis.
        """
        due = self._write_due(deadline_ms, WRITE_BUDGET_MS)
        analysis_id = signal.analysis_id or f"signal:{new_id()}"
        lines = [record_of(signal.finding(analysis_id))]
        if signal.analysis_id is None:
            own = {"id": analysis_id, "subject_id": signal.subject_id, "kind": ANALYSIS_KIND}
            lines.insert(0, record_of(Analysis(**own, date=SystemClock().now(), confidence=signal.confidence)))
        receipts = await record_all(
            self._stores.gateway, [prepare(line) for line in lines], actor=self._actor, deadline=due
        )
        given = {"analyses": [analysis_id], "retention": self._stores.signals.policy.retention}
        try:
            await self._stores.database.commit("project_signals", given, deadline=due)
        except ImemError as error:
            # It is durable, and due: it is read from the journal until a worker projects it.
            log.warning("signals.not_projected", analysis=analysis_id, reason=str(error))
        done = receipts[-1]
        update = {"id": done.event_id, "created_at": done.recorded_at, "analysis_id": analysis_id}
        recorded = signal.model_copy(update=update)
        events = evolution(recorded, history) if history is not None else []
        for event in events:
            SIGNAL_EVOLUTION.labels(event.type.value).inc()
        if history is not None:
            changes = [event.model_dump(mode="json") for event in events]
            summary = {"agent": signal.agent_name, "changes": changes, "context": memory_prompt(history)}
            self._stores.signals.audit.write(
                self._actor, signal.subject_id, {"event": "signal_recorded", "id": str(done.event_id), **summary}
            )
        return RecordedSignal(recorded, events)

    async def signals(
        self,
        subject: str,
        *,
        agent: str | None = None,
        limit: int | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> AgentMemory:
        """
        Return the newest signals of an agent about *subject*, newest first; of nothing known it is empty.

        No failure of a store is an exception here: the memory is then empty and says why (``reason``, ``error``), so
        that an agent runs without it.

        Args:
            agent: whose; the actor's own by default.
            limit: at most 5; ``signals_per_agent`` of the settings by default, which is 3.
            as_of, clock: as of every read; corrected signals then have the values that they had.
            deadline_ms: 10 to 5,000 ms; ``signals_timeout_ms`` of the settings by default.

        Raises:
            BadInput, PermissionDenied: as of every read.
        """
        whose = self._actor.id if agent is None else agent
        found = await self.signal_histories(
            subject, [whose], limit=limit, as_of=as_of, clock=clock, deadline_ms=deadline_ms
        )
        return found[whose]

    async def signal_histories(
        self,
        subject: str,
        agents: Sequence[str],
        *,
        limit: int | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> dict[str, AgentMemory]:
        """Return the newest signals of each of *agents* about *subject*, together; see :meth:`signals`."""
        reader, actor = self._stores.signals, self._actor
        most = reader.policy.per_agent if limit is None else limit
        if not 1 <= most <= MOST:
            raise BadInput("limit", f"must be 1 to {MOST}.")
        asked, on = parse_as_of(as_of, clock)
        budget = budget_ms(deadline_ms, default=reader.policy.timeout_ms, least=LEAST_BUDGET_MS, most=CEILING_MS)
        due = Deadline.after_ms(budget)

        async def moment(deadline: Deadline) -> AsOf:
            horizon = await fetch_read_horizon(self._stores.database, AsOfClock.KNOWN, deadline=deadline)
            return horizon.resolve(asked, on)

        request = SignalRequest(subject, list(dict.fromkeys(agents)), most, actor, due)
        if asked is not None or on is not AsOfClock.KNOWN:
            request = replace(request, moment=moment)
        try:
            request = replace(request, subject=await self._subject_id(subject, asked, on, due))
        except (BadInput, PermissionDenied):
            raise
        except ImemError as error:
            return reader.failed(request, error)
        return await reader.memories(request)

    async def _subject_id(self, subject: str, asked: datetime | None, on: AsOfClock, deadline: Deadline) -> str:
        """Return the whole id of *subject*; of an unknown name that of a market, about which nothing is known."""
        if subject.startswith(PREFIXES):
            return subject
        at = PRESENT if asked is None else AsOf(asked, on, asked)
        finder = SubjectFinder(self._stores.gateway, self._actor, self._stores.graph)
        try:
            return (await finder.find(subject, at, deadline=deadline)).subject_id
        except UnknownSubject:
            return f"{SubjectKind.MARKET}:{subject}"
