"""The context of audit rows: the correlation id, and the id of the delegating actor."""

from __future__ import annotations

from typing import Any, Final

import orjson

from imem.journal.actors import Actor
from imem.journal.telemetry.correlation import correlation

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
