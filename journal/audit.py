"""Audit rows: their context, which holds the correlation id and the id of the delegating actor; and reading them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import BaseModel, ConfigDict

from imem.journal.actors import Actor
from imem.journal.errors import BadInput
from imem.journal.telemetry.correlation import correlation

if TYPE_CHECKING:
    from imem.journal.deadline import Deadline
    from imem.journal.postgres.database import Database

TRIED: Final = {
    "actor": "imem", "role": "service", "resource_type": "audit_log", "resource_id": "", "action": "try",
    "authorized": True, "reason": None, "context": "{}", "outcome": "tried",
}  # fmt: skip
"""Parameters of the statement ``audit`` for a row that is rolled back: whether one can be added."""


def context_of(actor: Actor | None, **more: Any) -> str:
    """
    Return the context of an audit row as JSON text.

    Args:
        actor: of the row; None for what the system does by itself.
        more: further fields.
    """
    now = correlation()
    if now is not None:
        more["correlation_id"] = now.id
    if actor is not None and actor.lent_by is not None:
        more["lent_by"] = actor.lent_by
    return orjson.dumps(more).decode()


class AuditEntry(BaseModel):
    """
    A row of the audit.

    Attributes:
        at: when.
        actor, role: who, with the role of the call.
        resource_type, resource_id: what it was about.
        action, authorized: what was to be done, and whether the actor might.
        outcome: what came of it.
        reason: why, where the actor or the refusal says.
        context: the correlation id, and what else the action notes.
        cursor: names the row; a list goes on after it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime
    actor: str
    role: str
    resource_type: str
    resource_id: str | None
    action: str
    authorized: bool
    outcome: str
    reason: str | None
    context: dict[str, Any] | None
    cursor: str


async def audit_entries(
    database: Database, wanted: Mapping[str, Any], *, after: str | None, limit: int, deadline: Deadline
) -> list[AuditEntry]:
    """
    Return rows of the audit, the newest first.

    Args:
        wanted: ``actor``, ``resource``, ``action``, ``since`` and ``until``; None: any.
        after: cursor of a row: those that follow it, the older ones.
        limit: how many at most.

    Raises:
        BadInput: *after* is no cursor.
    """
    at, number = (None, None) if after is None else _place(after)
    values = {**wanted, "after_at": at, "after_id": number, "limit": limit}
    rows = await database.named("audit_listed", values, deadline=deadline)
    return [
        AuditEntry(**{name: row[name] for name in AuditEntry.model_fields if name != "cursor"}, cursor=_cursor(row))
        for row in rows
    ]


def _cursor(row: Mapping[str, Any]) -> str:
    return f"{row['at'].isoformat()}/{row['id']}"


def _place(cursor: str) -> tuple[datetime, int]:
    """Return moment and number of the row that a cursor names."""
    at, _, number = cursor.partition("/")
    try:
        moment, count = datetime.fromisoformat(at), int(number)
    except ValueError:
        moment, count = None, -1
    if moment is None or moment.utcoffset() is None or not 0 <= count < 2**63:
        raise BadInput("after", "is no cursor: take that of an entry.")
    return moment, count
