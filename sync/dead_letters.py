"""
Dead letters: events that the graph refused for good, their alerts, and their replay.

A dead event stays in the journal and leaves a recorded gap in its actor's order; later events are applied. A replayed
event is applied late: the statements' guards keep it from overwriting anything newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from imem.alerts.store import NewAlert, Severity, raise_once, storable
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of, new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json, rows
from imem.kg.projection.applier import DeadEvent
from imem.sync.metrics import DELIVERY, DROPPED

RETRIES_EXHAUSTED: Final = "DELIVERY_RETRIES_EXHAUSTED"
"""Kind of the alert about dead events."""

MOST_LETTERS: Final = 1000
"""Dead events that one answer lists and one call replays, at most; the answer has their total."""

LONGEST_REASON: Final = 500
"""Characters of an alert's reason."""


_DEAD: Final = Resource(ResourceType.JOURNAL, "dead events")


def severity_of(tier: Tier) -> Severity:
    """Return the severity of a dead event of *tier*: a warning, unless agents were waiting for it."""
    return Severity.MEDIUM if tier is Tier.NORMAL else Severity.HIGH


class DeadLetterAlerts:
    """
    Raises an alert for a dead event, in the transaction that marks it dead.

    An actor has one open alert of each severity, however many of its events are dead: `imem sync dead` lists them. It
    stays open until a human acknowledges it.
    """

    async def __call__(self, conn: Connection, death: DeadEvent) -> None:
        """
        Raise the alert; the last step of the transaction.

        Raises:
            PostgresUnavailable, BudgetExceeded: the event is not marked dead either.
        """
        event, severity = death.event, severity_of(death.tier)
        DROPPED.labels(DELIVERY, death.tier.name.lower()).inc()
        about = id_of("dead events", severity.value, event.actor)
        reason = f"The graph refused {event.kind} {event.key} of {event.actor} {death.attempts} times: {death.reason}"
        payload = {
            "reason": storable(reason)[:LONGEST_REASON],
            "position": event.position,
            "event_id": str(event.event_id),
            "actor": event.actor,
            "tier": death.tier.name.lower(),
        }
        alert = NewAlert(
            alert_id=new_id(), kind=RETRIES_EXHAUSTED, severity=severity, about=about, payload=storable(payload)
        )
        await raise_once(conn, alert)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """
    An event that the graph refused for good.

    Attributes:
        position, event_id: of the event.
        actor, agent_seq: its actor, and its number in that actor's order, which has a gap there.
        kind, key: of its record.
        tier: how soon it was to be visible.
        attempts: how often it was refused.
        reason: the last error of the graph.
        since: when it was marked dead.
        replayed_at, replayed_by: of the last replay, which failed.
    """

    position: int
    event_id: UUID
    actor: str
    agent_seq: int
    kind: str
    key: str
    tier: Tier
    attempts: int
    reason: str | None
    since: datetime | None
    replayed_at: datetime | None
    replayed_by: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the letter of a row."""
        values = {name: row[name] for name in cls.__slots__}
        return cls(**{**values, "tier": Tier(row["tier"])})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return as_json(self) | {"tier": self.tier.name.lower()}


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """
    Dead events.

    Attributes:
        letters: the oldest, at most :data:`MOST_LETTERS`.
        total: how many there are.
    """

    letters: tuple[DeadLetter, ...]
    total: int


async def dead_letters(database: Database, *, deadline: Deadline) -> DeadLetters:
    """
    Return the events that the graph refused for good, oldest first.

    Raises:
        PostgresUnavailable, BudgetExceeded: they could not be read; retryable.
    """
    found = await database.named("dead_letters", {"limit": MOST_LETTERS}, deadline=deadline)
    return DeadLetters(tuple(DeadLetter.from_row(row) for row in found), found[0]["total"] if found else 0)


async def replay(
    gateway: Gateway, which: Sequence[int | UUID], *, actor: Actor | None = None, deadline: Deadline
) -> list[int]:
    """
    Retry dead events from the first attempt on; return their positions, in order.

    All of them or none: nothing is changed where one of them is not dead. The applier is woken; an event that fails
    five more times is dead again. Each replay leaves an audit row, and the gap names the actor.

    Args:
        which: positions, or event ids; no more than :data:`MOST_LETTERS`.
        actor: who replays them; the process' own actor by default.

    Raises:
        PermissionDenied: the actor is not human; a denial row was written.
        BadInput: an event does not exist, or *which* is empty or too long.
        TransitionRefused: one of them is not dead: it was applied, or is pending.
        PostgresUnavailable, BudgetExceeded: nothing was changed; retryable.
        OutcomeUnknown: the connection broke while committing; repeating the call shows the outcome.
    """
    by = actor or gateway.actor
    return await gateway.authorize_and_execute(
        _DEAD, Action.REPLAY, lambda: _replay(gateway, which, by, deadline), deadline=deadline, actor=by
    )


async def replay_all(gateway: Gateway, *, actor: Actor | None = None, deadline: Deadline) -> list[int]:
    """Retry all dead events, at most :data:`MOST_LETTERS`; see :func:`replay`."""
    by = actor or gateway.actor

    async def every() -> list[int]:
        letters = (await dead_letters(gateway.database, deadline=deadline)).letters
        return await _replay(gateway, [letter.position for letter in letters], by, deadline) if letters else []

    return await gateway.authorize_and_execute(_DEAD, Action.REPLAY, every, deadline=deadline, actor=by)


async def _replay(gateway: Gateway, which: Sequence[int | UUID], actor: Actor, deadline: Deadline) -> list[int]:
    if not 0 < len(which) <= MOST_LETTERS:
        raise BadInput("event", f"{len(which)} events were named; 1 to {MOST_LETTERS} can be replayed at once.")
    positions = [one for one in which if isinstance(one, int)]
    event_ids = [one for one in which if isinstance(one, UUID)]
    async with gateway.database.transaction(deadline) as conn:
        named = {"positions": positions, "event_ids": event_ids}
        found = await rows(conn, "letters_named", named)
        _check(which, found)
        wanted = [row["position"] for row in found]
        given = {
            "actor": actor.id,
            "role": actor.role.value,
            "positions": wanted,
            "context": context_of(actor, action=Action.REPLAY.value),
        }
        [row] = await rows(conn, "replay_letters", given)
        if row["replayed"] != len(wanted):
            # A concurrent replay was first: the error rolls the transaction back.
            raise TransitionRefused("Some of these events were replayed meanwhile; nothing was changed.")
    await gateway.publish_wakeup(sorted({Tier(row["tier"]) for row in found}))
    return wanted


def _check(which: Sequence[int | UUID], found: Sequence[Row]) -> None:
    """Refuse events that do not exist or are not dead."""
    known = {row["position"] for row in found} | {row["event_id"] for row in found}
    for one in which:
        if one not in known:
            raise BadInput("event", f"there is no event {one} on its way to the graph.", mend="`imem sync dead` lists.")
    for row in found:
        if row["state"] != "dead":
            stands = "was applied" if row["state"] == "applied" else "is on its way to the graph"
            raise TransitionRefused(
                f"Event {row['position']} {stands}: only dead ones are replayed; nothing was changed.",
                mend="`imem sync dead` lists them.",
            )
