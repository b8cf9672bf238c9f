"""The records around a case as of the day of its review, for its reviewer and for the automatic cause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from imem.credibility.forecasts.measures import DeviationClass
from imem.credibility.forecasts.reading import exited_at, forecasts_of
from imem.credibility.regimes.readings import market_regime
from imem.jobs.lifecycle import LifecycleRow
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, RecordAsOf, dated
from imem.kg.kinds.work import Decision
from imem.postmortem.cases.analyst import CaseRecord, cause_of, cluster_of
from imem.postmortem.cases.package import PostmortemCase, SeenCheckpoint, SeenDecision, SeenFinding

IMPORTANT: Final = 0.7
"""From this importance on a finding that was not cited may be a missing factor."""


async def case_of(
    database: Database, row: LifecycleRow, attempt: int, at: AsOf, *, deadline: Deadline
) -> PostmortemCase:
    """
    Return what the reviewer of a case sees as of *at*: nothing that became known later.

    Raises:
        TransitionRefused: the decision was not known then.
    """
    decision_id, read = row.data["decision_id"], _Reader(database, at, deadline)
    found = await read.records("Decision", [decision_id])
    if not found:
        raise TransitionRefused(f"The decision {decision_id} was not known at {at.at}.")
    decision = Decision.model_validate(found[0].core)
    cited = await read.rows("case_cited", decision_id=decision_id)
    findings = {one.key: one for one in await read.records("Finding", _keys(cited, "Finding"))}
    reasoning = tuple(
        SeenFinding(
            id=each["key"], agent=findings[each["key"]].core["agent"],
            statement=findings[each["key"]].core["statement"], right=None if each["y"] is None else bool(each["y"]),
        )
        for each in cited
        if each["key"] in findings
    )  # fmt: skip
    left = await exited_at(database, decision, at, deadline=deadline)
    record = await _record(read, decision, reasoning)
    cause, evidence = cause_of(record)
    earlier = await read.records("Decision", _keys(await read.rows("case_earlier", **_about(decision))))
    earlier.sort(key=lambda one: (one.occurred_at, one.key), reverse=True)
    return PostmortemCase(
        case_id=row.key,
        decision_id=decision_id,
        subject_id=decision.subject_id,
        decided_at=decision.decided_at,
        action=decision.action,
        stance=None if decision.stance is None else decision.stance.value,
        agents=tuple(decision.agents_involved),
        reviewed_as_of=at.at,
        reasoning=reasoning,
        patterns=tuple(sorted(_keys(cited, "Pattern"))),
        domains=tuple(sorted({one.core["domain"] for one in findings.values()})),
        checkpoints=tuple(
            SeenCheckpoint.of(
                one | {"counterfactual": left is not None and left < datetime.fromisoformat(one["target_at"])}
            )
            for one in row.data["checkpoints"]
        ),
        earlier=tuple(
            SeenDecision(
                id=one.key, decided_at=one.occurred_at, action=one.get("action"), stance=one.get("stance")
            )
            for one in earlier
        ),
        cause=cause,
        evidence=evidence,
        cluster=cluster_of(cause, evidence),
        impact=row.data["impact"],
        systemic=row.data["systemic"],
        attempt=attempt,
    )  # fmt: skip


class _Reader:
    """Reads records as of one moment."""

    def __init__(self, database: Database, at: AsOf, deadline: Deadline) -> None:
        self.database, self.at, self.deadline = database, at, deadline

    async def rows(self, statement: str, **given: Any) -> list[Row]:
        return await self.database.named(statement, given | self.at.limits, deadline=self.deadline)

    async def records(self, kind: str, keys: Sequence[str]) -> list[RecordAsOf]:
        found = await dated(self.database, [(kind, key) for key in keys], self.at, deadline=self.deadline)
        return [found.records[kind, key] for key in keys if (kind, key) in found.records]


def _keys(found: Sequence[Row], kind: str | None = None) -> list[str]:
    return [row["key"] for row in found if kind is None or row["kind"] == kind]


def _about(decision: Decision) -> dict[str, Any]:
    return {"subject_id": decision.subject_id, "decided_at": decision.decided_at, "decision_id": decision.id}


async def _record(read: _Reader, decision: Decision, reasoning: Sequence[SeenFinding]) -> CaseRecord:
    about = _about(decision)
    disputed = await read.records("DataContradiction", _keys(await read.rows("case_contradictions", **about)))
    cited = [one.id for one in reasoning]
    asked = {**about, "least": IMPORTANT, "agents": list(decision.agents_involved), "cited": cited}
    unheard = await read.records("Finding", _keys(await read.rows("case_unheard", **asked)))
    stated = await forecasts_of(read.database, [decision.id], read.at, deadline=read.deadline)
    met = [one for one in stated.get(decision.id, []) if one.verdict is DeviationClass.NONE]
    then = AsOf(min(decision.decided_at, read.at.at), read.at.clock)
    return CaseRecord(
        contradictions={
            one.key: f"{one.core['data_point']}: {one.core['value_a']:g} or {one.core['value_b']:g}" for one in disputed
        },
        regimes=(await _regime(read, then), await _regime(read, read.at)),
        met={one.days: f"{one.predicted:g} was forecast, and it was {one.actual:g}" for one in met},
        wrong={one.id: one.statement for one in reasoning if one.right is False},
        unheard={one.key: one.core["statement"] for one in unheard},
    )


async def _regime(read: _Reader, at: AsOf) -> tuple[str, str] | None:
    found = await market_regime(read.database, at, deadline=read.deadline)
    return (found.readings[0].reading.id, found.regime.value) if found.readings else None
