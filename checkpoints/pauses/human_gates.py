"""
Human gates: the six points of an analysis at which a human decides whether it continues.

A gate is one lifecycle row (:mod:`imem.jobs.lifecycle`). The program that runs the analysis opens it; a human answers
it before it is due. A validated gate is passed; after a rejection, or when its time is over, the analysis is paused, or
it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from imem.checkpoints.pauses import transitions
from imem.checkpoints.pauses.lifecycle import ANSWERS, GATE_STATES, Gate, Trigger
from imem.checkpoints.pauses.rows import audited, checked_id, open_pause, try_lock_analysis
from imem.checkpoints.pauses.transitions import PauseCause
from imem.jobs.lifecycle import Effects, Lifecycle, LifecycleRow, move, request_transition, wanted
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.journal.texts.spelling import says_nothing
from imem.review.states import ANSWERABLE
from imem.review.tasks import ReviewRuntime, close_windows

GATES: Final = range(1, 7)
"""Numbers of the gates of an analysis."""

LAST: Final = 5
"""The gate at which an analysis is finalised, and everything provisional was reviewed; or at which it fails."""

LISTED: Final = 1000
"""Open gates of one listing at most."""

MOST_REASON: Final = 2000
"""Characters of a reason at most."""

KIND: Final = "gate"
"""Kind of the lifecycle rows."""


@dataclass(frozen=True, slots=True)
class HumanGate:
    """
    A gate, as stored.

    Attributes:
        analysis_id, gate: of the gate; *gate* is 1 to 6.
        stock_id: the subject of the analysis.
        state: its state.
        opened_at, due_at: when it was opened, and until when it can be answered; None: without end, as gate 5.
        decided_at, reason: of the answer.
    """

    analysis_id: str
    gate: int
    stock_id: str
    state: Gate
    opened_at: datetime
    due_at: datetime | None
    decided_at: datetime | None
    reason: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the gate of a row."""
        return cls(**{name: row[name] for name in cls.__slots__} | {"state": Gate(row["state"])})


async def open_gate(
    database: Database, analysis_id: str, gate: int, *, due_at: datetime | None, by: Actor, deadline: Deadline
) -> HumanGate:
    """
    Open a gate, with an audit row, and return it; one that was opened before is not changed.

    Args:
        by: the actor.
        due_at: until when it can be answered, aware; by default 24 hours from now, and without end at gate 5.

    Raises:
        BadInput: the analysis does not exist or has ended, or *due_at* is not aware.
    """
    if due_at is not None and due_at.utcoffset() is None:
        raise BadInput("due_at", "has no time zone.")
    which = _which(analysis_id, gate)
    values = {**which, **audited(by, gate=gate), "due_at": due_at}
    found = await database.commit("gate_open", values, deadline=deadline)
    found = found or await database.named("gate_by_number", which, deadline=deadline)
    if not found:
        raise BadInput("analysis_id", f"no analysis runs under {analysis_id!r:.200}.")
    return HumanGate.of(found[0])


async def answer_gate(
    database: Database, analysis_id: str, gate: int, answer: str, *, reason: str, by: Actor, deadline: Deadline
) -> HumanGate:
    """
    Answer a waiting gate, with an audit row, and return it. Idempotent for the same answer.

    Args:
        answer: one of :data:`~imem.checkpoints.pauses.lifecycle.ANSWERS`.
        by: the actor.

    Raises:
        BadInput: there is no such gate, or *answer* or *reason* is invalid.
        TransitionRefused: it has another answer, or is overdue; or it is to be passed while review tasks of the
            analysis are open or provisional: of CRITICAL data at gate 3, any at gate 5.
    """
    if answer not in ANSWERS:
        raise BadInput("answer", f"is one of {', '.join(ANSWERS)}.")
    if says_nothing(reason) or len(reason.strip()) > MOST_REASON:
        raise BadInput("reason", f"is a text of at most {MOST_REASON:,} characters.")
    which, named = _which(analysis_id, gate), ANSWERS[answer]
    found = await _stored(database, which, deadline)
    if found["waits"]:
        if named is Gate.VALIDATED:
            for name, asked in _blocking(analysis_id, gate).items():
                _check_reviewed(gate, name, await database.named(name, asked, deadline=deadline))
        await request_transition(
            database, KIND, found["key"], found["version"], named, by=by, reason=reason, deadline=deadline
        )
        found = await _stored(database, which, deadline)
    known = HumanGate.of(found)
    if known.state is not named:
        # A gate that still waits was not answered: its time is over.
        GATE_STATES.check(known.state, named, True, of=f"Gate {gate} of {analysis_id!r:.200}")  # noqa: FBT003
    return known


async def _stored(database: Database, which: Mapping[str, Any], deadline: Deadline) -> Row:
    found = await database.named("gate_by_number", which, deadline=deadline)
    if not found:
        known = f"{which['analysis_id']!r:.200} has no gate {which['gate']}."
        raise BadInput("gate", known, mend="`imem gates` lists those that wait.")
    return found[0]


async def open_gates(database: Database, *, deadline: Deadline) -> list[HumanGate]:
    """Return the gates that wait for a human, the earliest due first; at most :data:`LISTED`."""
    found = await database.named("gates_open", {"limit": LISTED}, deadline=deadline)
    return [HumanGate.of(row) for row in found]


def _which(analysis_id: str, gate: int) -> dict[str, Any]:
    if isinstance(gate, bool) or gate not in GATES:
        raise BadInput("gate", "is a number from 1 to 6.")
    return {"analysis_id": checked_id("analysis_id", analysis_id), "gate": gate}


async def _decide(runtime: ReviewRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects | None:
    """Give the answer to a gate, or the end of its time, its effect on the analysis."""
    analysis_id, gate = str(row.about), row.data["gate"]
    analysis = await try_lock_analysis(conn, analysis_id)
    if analysis is None:
        return None
    state = Gate.TIMED_OUT if row.request is None else wanted(Gate, row.request)
    if state is Gate.VALIDATED:
        # Something may have become provisional since the answer was stored.
        for name, asked in _blocking(analysis_id, gate).items():
            _check_reviewed(gate, name, await rows(conn, name, asked))
    reason = (row.request.reason if row.request else None) or f"Gate {gate} {_GATE_WORDS[state]}."
    effects = Effects()
    await move(conn, GATE_STATES, row, state, row.request is None, data={**row.data, "reason": reason}, reason=reason)
    if gate == LAST and state is Gate.HARD_REJECTED:
        said = f"Gate {gate} was decided: {reason}"[:MOST_REASON]
        effects = await close_windows(runtime, conn, analysis_id, said, now)
    if analysis.outcome is not None or state is Gate.VALIDATED:
        return effects
    if state is Gate.HARD_REJECTED:
        await transitions.fail(conn, analysis, reason=reason)
    elif await open_pause(conn, analysis_id) is None:
        trigger = Trigger.GATE_TIMEOUT if state is Gate.TIMED_OUT else Trigger.GATE_REJECTION
        await transitions.begin(conn, analysis, PauseCause(trigger=trigger, reason=reason, gate=state))
    return effects


def _blocking(analysis_id: str, gate: int) -> dict[str, dict[str, Any]]:
    """Return by statement what keeps a gate from being passed: tasks, and at the last one debates that go on."""
    states = [state.value for state in ANSWERABLE]
    tasks = {"analysis_id": analysis_id, "states": states, "most_rank": _UNREVIEWED.get(gate, -1)}
    found: dict[str, dict[str, Any]] = {"tasks_of_gate": tasks}
    if gate == LAST:
        found["debates_of_gate"] = {"analysis_id": analysis_id}
    return found


def _check_reviewed(gate: int, what: str, waiting: Sequence[Row]) -> None:
    """Refuse to pass a gate while something is unreviewed that it is the last to see."""
    if waiting:
        ids = ", ".join(row["key"] for row in waiting[:5])
        said, mend = _OPEN[what]
        raise TransitionRefused(f"Gate {gate} cannot be passed: {len(waiting)} {said} ({ids}).", mend=mend)


_OPEN: Final = {
    "tasks_of_gate": (
        "review tasks of its analysis are not reviewed",
        "`imem tasks --analysis ANALYSIS` lists them; confirm or override each.",
    ),
    "debates_of_gate": (
        "debates of its analysis have not ended",
        "`imem debate --analysis ANALYSIS` lists them.",
    ),
}
"""Statement → what it finds, and what helps."""


_UNREVIEWED: Final = {3: 0, 5: 1_000_000}
"""Gate → the highest rank of the tasks that keep it from being passed: the CRITICAL ones, or all."""

_GATE_WORDS: Final = {
    Gate.TIMED_OUT: "was not answered in time",
    Gate.VALIDATED: "was passed",
    Gate.SOFT_REJECTED: "was rejected, and can be put again",
    Gate.HARD_REJECTED: "was rejected for good",
}

GATES_OF_ANALYSES: Final[Lifecycle[ReviewRuntime]] = Lifecycle(KIND, _decide)
