"""Records of a debate: its state, its resolution, and the effect of a decision on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from imem.alerts.store import NewAlert, Severity
from imem.credibility.regimes.runs import CHANGED, SCORES
from imem.debates.impact import Impact, impact
from imem.debates.stored import RunningDebate
from imem.jobs.due import make_due
from imem.jobs.lifecycle import Effects
from imem.journal.actors import Action, Actor
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import DebateState, OverrideReason
from imem.kg.kinds.trust import Debate, DebateResolution, HumanOverride
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, record_of
from imem.review.kinds import Answer

FACILITATOR: Final = Actor("debates", Role.DEBATE_FACILITATOR)
"""The actor that records what becomes of debates."""

OVERRIDDEN_ALERT: Final = "POSITION_OVERRIDDEN"
"""Kind of the alert about an analysis that rests on a finding which lost a debate."""

DEPENDANTS: Final = 1_000
"""Most analyses that one decision is told to."""


def facts_of(*lines: Any) -> Effects:
    """Return what records *lines* as the actor of debates."""
    return Effects(facts=[(FACILITATOR, Action.APPEND_DEBATES, entry_of(line)) for line in lines])


def recorded_state(debate: RunningDebate) -> Effects:
    """Return the state of the debate as a group of its record."""
    data, state = debate.row.data, debate.state
    counting, default = data.get("counting"), data.get("default_reason")
    position = _position(debate, data.get("winner") or counting)
    if position is None and default is not None and "winner" not in data:
        position = f"uncertain: {default}"
    closed = data.get("window_closed")
    values = Debate.State(
        state=state,
        resolution_level=data.get("level"),
        resolution_method=data.get("method"),
        final_position=position,
        provisional=state in {DebateState.LEVEL3, DebateState.PROVISIONAL},
        override_window_closed=None if closed is None else datetime.fromisoformat(closed),
        defaulted_at=None if data.get("defaulted_at") is None else datetime.fromisoformat(data["defaulted_at"]),
        level_deadline=debate.until,
        snapshot_id=debate.snapshot_id,
        version=debate.row.version,
    )
    return facts_of(groups_of(Debate, debate.row.key, {"state": values}))


def _position(debate: RunningDebate, agent: str | None) -> str | None:
    """Return the position of a side as a text."""
    if agent is None:
        return None
    value, metric = debate.value(agent), debate.metric
    if value is not None:
        return f"{metric or 'value'} {value} ({agent})"
    return f"the position of {agent}"


def _resolution_id(debate: RunningDebate) -> str:
    return f"{debate.row.key}/{debate.row.version}"


def resolution(debate: RunningDebate, winner: str | None, now: datetime) -> Effects:
    """Return what records that a debate ended, for now or for good."""
    data = debate.row.data
    taken = DebateResolution(
        id=_resolution_id(debate),
        debate_id=debate.row.key,
        winning_position=_position(debate, winner) or "uncertain",
        winning_agent=winner,
        credibility_differential=data.get("differential"),
        resolution_time_seconds=max(0, round((now - debate.row.opened_at).total_seconds())),
    )
    return facts_of(record_of(taken))


async def decided(
    conn: Connection, debate: RunningDebate, now: datetime, *, answer: Answer | None = None, late: bool = False
) -> Effects:
    """Record the decision that the row holds, and what it means for the finding that it goes against."""
    sides, data = debate.sides, debate.row.data
    winner = data["winner"]
    effects = recorded_state(debate) + resolution(debate, winner, now)
    if winner != sides.challenger:
        told: Sequence[str] = ()
        changed = None
    else:
        before, after = data.get("finding_value"), debate.value(sides.challenger)
        known = before is not None and after is not None
        changed = impact(debate.metric or "", before, after) if known else None  # type: ignore[arg-type]
        asked = {"finding_id": data["finding_id"], "analysis_id": debate.row.about, "limit": DEPENDANTS}
        told = [row["analysis_id"] for row in await rows(conn, "dependants_of_finding", asked)]
        effects += Effects(alerts=list(_reruns(debate, told, changed)))
        # A lost challenge is a critical trigger: the scores of the side are published anew.
        await make_due(conn, SCORES, CHANGED, [f"{sides.challenged}/{data['domain']}"])
    if answer is not None:
        effects += _reviewed(debate, answer, told, changed, against=winner == sides.challenger, late=late, now=now)
    return effects


def _reruns(debate: RunningDebate, told: Sequence[str], changed: Impact | None) -> Iterator[NewAlert]:
    """Yield an alert for each analysis that is to be computed again; a small change is noted alone."""
    if changed is not None and not changed.rerun:
        return
    for analysis in told:
        reason = f"It rests on the finding {debate.row.data['finding_id']}, which lost the debate {debate.row.key}."
        yield NewAlert(
            alert_id=id_of("position overridden", _resolution_id(debate), analysis), kind=OVERRIDDEN_ALERT,
            severity=Severity.HIGH, subject=debate.row.data["subject_id"], analysis_id=analysis,
            payload={"debate_id": debate.row.key, "reason": reason[:2000]},
        )  # fmt: skip


def _reviewed(
    debate: RunningDebate,
    answer: Answer,
    told: Sequence[str],
    changed: Impact | None,
    *,
    against: bool,
    late: bool,
    now: datetime,
) -> Effects:
    """Return what a person's decision records in the person's name: the review, and the override of the finding."""
    person = Actor(answer.by, Role.HUMAN_ADMIN)
    verb = "rerun" if changed is None or changed.rerun else "noted"
    review = DebateResolution.Review(
        human_override=late,
        override_rationale=answer.rationale,
        downstream_impact=[f"{verb}: {analysis}" for analysis in told] or None,
    )
    line = groups_of(DebateResolution, _resolution_id(debate), {"review": review}, writer="gates")
    effects = Effects(facts=[(person, Action.APPEND_GATES, entry_of(line))])
    if not against:
        return effects
    data = debate.row.data
    override = HumanOverride(
        id=f"debate:{_resolution_id(debate)}", agent=debate.sides.challenged, domain=data["domain"],
        finding_id=data["finding_id"], reason=OverrideReason.OTHER,
        rationale=answer.rationale or f"The debate {debate.row.key} was decided for {debate.sides.challenger}.",
        overridden_at=min(answer.at, now),
    )  # fmt: skip
    return effects + Effects(facts=[(person, Action.APPEND, entry_of(record_of(override)))])
