"""Alerts of recoveries without any usable state: one for each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from imem.alerts.store import AGENT_FAILURE, AlertContext, NewAlert, Severity, raise_alert
from imem.checkpoints.model import Checkpoint
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database

if TYPE_CHECKING:
    from imem.checkpoints.recovery import RecoveryTier

_UNRECOVERABLE: Final = UUID("6f1c9a52-58f3-5f0c-9c1f-2f4f4e4cb0a1")
"""Namespace of these alerts' ids: the same checkpoint always gives the same one."""


class RecoveryAlerts:
    """Raises the alert, in a transaction of its own or in the caller's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unrecoverable(
        self,
        checkpoint: Checkpoint,
        reasons: Mapping[RecoveryTier, str],
        *,
        deadline: Deadline,
        conn: Connection | None = None,
    ) -> None:
        """
        Raise one alert about *checkpoint*. Idempotent. With *conn* it must be the transaction's last step.

        Raises:
            PostgresUnavailable, BudgetExceeded: no alert was raised; nothing was started either.
        """
        why = "; ".join(f"{tier}: {reason}" for tier, reason in reasons.items())
        situation = AlertContext(
            checkpoint_id=checkpoint.id,
            progress_pct=float(checkpoint.progress_pct),
            completed=checkpoint.completed_subtasks,
            pending=checkpoint.pending_subtasks,
            reason=f"What it knew cannot be restored from anywhere: {why}",
            agent=checkpoint.agent_type,
        )
        alert = NewAlert(
            alert_id=uuid5(_UNRECOVERABLE, str(checkpoint.id)),
            kind=AGENT_FAILURE,
            severity=Severity.CRITICAL,
            subject=checkpoint.subject_id,
            analysis_id=checkpoint.analysis_id,
            payload=situation.to_payload(),
        )
        if conn is not None:
            await raise_alert(conn, alert)
            return
        async with self._database.transaction(deadline) as own:
            await raise_alert(own, alert)
