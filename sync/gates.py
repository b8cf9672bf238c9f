"""
Gates: synchronises the agents of an analysis before a human decides, and reports what is behind.

All agents of an analysis are synchronised half an hour before its gate opens, and again when it opens. Each time a
report is stored: for each agent, how many items are not in the journal, not in the graph, or not pulled. A gate never
waits: an agent that cannot be reached is in the report, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.events.ids import new_id
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json, json
from imem.sync.members import SyncMember, gate_name, gate_of, lag_of, members_of, owners_of
from imem.sync.synchronizer import FORCE_MS, Synchronizer, SyncResult, SyncState

log = structlog.get_logger()

BEFORE: Final = timedelta(minutes=30)
"""How long before a gate opens its agents are synchronised."""

LATE: Final = timedelta(hours=1)
"""No report is made for the opening of a gate that opened longer ago."""

LISTED: Final = 100
"""Records of a delta that a report lists; the report has their total."""

COUNTED: Final = 10_000
"""Records of a delta that are counted, at most."""

AT_A_TIME: Final = 20
"""Gates of one round, at most."""

_ASK_MS: Final = 2_000
"""Timeout of the queries of a report, in milliseconds, without the synchronisation."""


@dataclass(frozen=True, slots=True)
class AgentLag:
    """
    The undelivered items of one agent.

    Attributes:
        agent_id, actor, agent_type: of the agent.
        state: the result of its synchronisation.
        reason: why it failed.
        unpushed: published items that are not in the journal; None where its memory could not be read.
        pushed_seq, applied_seq: its owner's last event, and the last up to which the graph holds all.
        waiting, dead: events that are pending for the graph, and that it refused for good.
        oldest_s: age of the oldest pending one, in seconds.
        unpulled: updates that the agent has not pulled.
    """

    agent_id: str
    actor: str
    agent_type: str
    state: SyncState
    reason: str | None
    unpushed: int | None
    pushed_seq: int
    applied_seq: int
    waiting: int
    dead: int
    oldest_s: float | None
    unpulled: int

    @property
    def total(self) -> int | None:
        """Items and events that are not in the graph; None where the memory could not be read."""
        if self.unpushed is None:
            return None
        return self.unpushed + self.waiting + self.dead

    @property
    def behind(self) -> bool:
        """Whether the report has to show this agent."""
        return self.total != 0 or self.state is not SyncState.SYNCHRONIZED

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self) | {"total": self.total, "behind": self.behind}


@dataclass(frozen=True, slots=True)
class GateReport:
    """
    Consistency of the memories of an analysis, for a gate.

    Attributes:
        report_id: its id.
        gate: its name.
        phase: ``before``, ``opening`` or ``asked``.
        opens_at: when the gate opens, or opened.
        made_at: when the report was made.
        lags: of each agent.
        delta: records published since the last report: their count, and the first of them.
    """

    report_id: UUID
    gate: str
    phase: str
    opens_at: datetime | None
    made_at: datetime
    lags: tuple[AgentLag, ...]
    delta: Mapping[str, Any]

    @property
    def consistent(self) -> bool:
        """Whether no agent is behind."""
        return not any(lag.behind for lag in self.lags)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return as_json(self) | {"lags": [lag.to_dict() for lag in self.lags], "consistent": self.consistent}


class GateSync:
    """
    Synchronises the agents of an analysis for its gates.

    Args:
        database: gates and reports.
        synchronizer: synchronises the agents.
    """

    def __init__(self, database: Database, synchronizer: Synchronizer) -> None:
        self._database = database
        self._sync = synchronizer

    async def sync_gate(
        self, gate: str, *, by: Actor | None = None, phase: str = "asked", deadline_ms: float = FORCE_MS
    ) -> GateReport:
        """
        Synchronise all agents of a gate's analysis; return the report, which is stored.

        Args:
            gate: such as ``analysis-7/3``.
            by: who asks; the process' own actor by default.
            phase: what the report is for.
            deadline_ms: timeout of the synchronisation.

        Raises:
            BadInput: there is no such gate, planned or running.
            PostgresUnavailable, BudgetExceeded: there is no report; retryable.
        """
        analysis_id, number = gate_of(gate)
        which = {"analysis_id": analysis_id, "gate": number}
        known = await self._database.named("gate_known", which, deadline=_asking())
        if not known:
            raise BadInput("gate", f"nobody plans or runs {gate!r:.200}.")
        found = await members_of(self._database, analysis_id, deadline=_asking())
        due = Deadline.after_ms(deadline_ms)
        done = await self._sync.synchronize(found, by=by, deadline=due) if found else {}
        lags = await self._lags(analysis_id, found, done)
        upto, delta = await self._delta(which)
        report_id, opens_at = new_id(), known[0]["opens_at"]
        body = json({"lags": [lag.to_dict() for lag in lags], "delta": delta})
        given = {**which, "report_id": report_id, "phase": phase, "opens_at": opens_at, "upto": upto, "body": body}
        kept = await self._database.commit("gate_report_insert", given, deadline=_asking())
        return GateReport(report_id, gate, phase, opens_at, kept[0]["made_at"], tuple(lags), delta)

    async def report(self, gate: str, *, deadline: Deadline) -> GateReport | None:
        """Return the newest stored report of a gate; None where there is none."""
        analysis_id, number = gate_of(gate)
        asked = {"analysis_id": analysis_id, "gate": number}
        found = await self._database.named("gate_report_latest", asked, deadline=deadline)
        return _report_of(found[0]) if found else None

    async def run_due(self, *, deadline: Deadline) -> int:
        """
        Synchronise for gates that open within half an hour or open now; return for how many.

        Once for each gate and phase; a failed one is retried in the next round.

        Raises:
            PostgresUnavailable, BudgetExceeded: due gates could not be read.
        """
        asked = {"before": BEFORE, "late": LATE, "limit": AT_A_TIME}
        due = await self._database.named("gates_to_sync", asked, deadline=deadline)
        done = 0
        for row in due:
            if deadline.passed:
                break
            gate = gate_name(row["analysis_id"], row["gate"])
            try:
                report = await self.sync_gate(gate, phase=row["phase"])
            except ImemError as error:
                log.warning("gate.not_synchronised", gate=gate, phase=row["phase"], reason=str(error))
                continue
            done += 1
            behind = [lag.agent_id for lag in report.lags if lag.behind]
            log.info("gate.synchronised", gate=gate, phase=row["phase"], agents=len(report.lags), behind=behind)
        return done

    async def _lags(
        self, analysis_id: str, found: Sequence[SyncMember], done: Mapping[str, SyncResult]
    ) -> list[AgentLag]:
        if not found:
            return []
        rows = await self._database.named("writers_lag", {"actors": owners_of(found)}, deadline=_asking())
        by_owner = {row["actor"]: row for row in rows}
        counted = await self._database.named("gate_unpulled", {"analysis_id": analysis_id}, deadline=_asking())
        unpulled = {row["agent_id"]: row["unpulled"] for row in counted}
        lags = []
        for one in found:
            result = done[one.agent_id]
            lags.append(
                AgentLag(
                    one.agent_id,
                    one.owner,
                    one.agent_type,
                    result.state,
                    result.reason,
                    unpushed=await self._unpushed(one),
                    unpulled=unpulled.get(one.agent_id, 0),
                    **lag_of(by_owner[one.owner]),
                )
            )
        return lags

    async def _unpushed(self, member: SyncMember) -> int | None:
        try:
            return await self._sync.pusher.count(member.agent_id, deadline=_asking())
        except ImemError:
            return None

    async def _delta(self, which: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """
        Return the last position read, and what was published since the previous report.

        Records that are seconds old are listed again in the next report: a transaction that is still open may yet
        commit an earlier position.
        """
        before = await self._database.named("gate_report_before", which, deadline=_asking())
        after = before[0]["upto"] if before else 0
        asked = {"analysis_id": which["analysis_id"], "after": after, "limit": COUNTED}
        rows = await self._database.named("gate_delta", asked, deadline=_asking())
        return max((row["position"] for row in rows if row["settled"]), default=after), {
            "since": before[0]["made_at"].isoformat() if before else None,
            "count": len(rows),
            "records": [_named(row) for row in rows[:LISTED]],
        }


def _asking() -> Deadline:
    return Deadline.after_ms(_ASK_MS)


def _named(row: Row) -> dict[str, Any]:
    return {
        "position": row["position"],
        "node": f"{row['kind'].partition('.')[2]}/{row['record_key']}",
        "actor": row["actor"],
        "recorded_at": row["recorded_at"].isoformat(),
    }


def _report_of(row: Row) -> GateReport:
    lags = tuple(
        AgentLag(
            **{name: value for name, value in lag.items() if name in AgentLag.__slots__}
            | {"state": SyncState(lag["state"])}
        )
        for lag in row["body"]["lags"]
    )
    return GateReport(
        row["report_id"],
        gate_name(row["analysis_id"], row["gate"]),
        row["phase"],
        row["opens_at"],
        row["made_at"],
        lags,
        row["body"]["delta"],
    )
