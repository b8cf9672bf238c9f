"""What is recorded around a case, for its reviewer and for the automatic cause."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from imem.jobs.lifecycle import LifecycleRow
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.kg.kinds.work import Decision
from imem.postmortem.cases.analyst import CaseRecord, cause_of
from imem.postmortem.cases.package import PostmortemCase, SeenCheckpoint, SeenFinding

IMPORTANT: Final = 0.7
"""From this importance on a finding that was not cited may be a missing factor."""


async def case_of(conn: Connection, row: LifecycleRow, attempt: int) -> PostmortemCase:
    """Return what the reviewer of a case sees."""
    decision_id = row.data["decision_id"]
    [found] = await rows(conn, "case_decision", {"decision_id": decision_id})
    decision = Decision.model_validate(found["core"])
    reasoning = await rows(conn, "case_reasoning", {"decision_id": decision_id})
    record = await _record(conn, decision, row, [one["key"] for one in reasoning if one["y"] == 0], reasoning)
    cause, evidence = cause_of(record)
    return PostmortemCase(
        case_id=row.key,
        decision_id=decision_id,
        subject_id=decision.subject_id,
        decided_at=decision.decided_at,
        action=decision.action,
        stance=None if decision.stance is None else decision.stance.value,
        agents=tuple(decision.agents_involved),
        reasoning=tuple(
            SeenFinding(
                id=one["key"],
                agent=one["agent"],
                statement=one["statement"],
                right=None if one["y"] is None else bool(one["y"]),
            )
            for one in reasoning
        ),
        checkpoints=tuple(_checkpoint(one) for one in row.data["checkpoints"]),
        cause=cause,
        evidence=evidence,
        attempt=attempt,
    )


def _checkpoint(stored: Mapping[str, Any]) -> SeenCheckpoint:
    kept = {name: stored[name] for name in SeenCheckpoint.model_fields if name in stored}
    return SeenCheckpoint(**{**kept, "deviation": float(stored["deviation"])})


async def _record(
    conn: Connection, decision: Decision, row: LifecycleRow, wrong: list[str], reasoning: list[Any]
) -> CaseRecord:
    until = row.opened_at
    about = {"subject_id": decision.subject_id, "since": decision.decided_at, "until": until}
    contradictions = {
        one["key"]: f"{one['core']['data_point']}: {one['core']['value_a']:g} or {one['core']['value_b']:g}"
        for one in await rows(conn, "case_contradictions", about)
    }
    met = {
        one["data"]["days"]: f"{one['data']['predicted']:g} was forecast, and it was {one['data']['actual']:g}"
        for one in await rows(conn, "case_met", {"decision_id": decision.id})
    }
    cited = [one["key"] for one in reasoning]
    asked = {**about, "least": IMPORTANT, "agents": list(decision.agents_involved), "cited": cited}
    unheard = {one["key"]: one["statement"] for one in await rows(conn, "case_unheard", asked)}
    statements = {one["key"]: one["statement"] for one in reasoning}
    return CaseRecord(
        contradictions=contradictions,
        regimes=(await _regime(conn, decision.decided_at), await _regime(conn, until)),
        met=met,
        wrong={key: statements[key] for key in wrong},
        unheard=unheard,
    )


async def _regime(conn: Connection, at: datetime) -> tuple[str, str] | None:
    found = await rows(conn, "case_regime", {"at": at})
    return (found[0]["key"], found[0]["regime"]) if found else None
