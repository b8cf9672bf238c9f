"""Projection of scores into the graph: the links ``SETTLED_BY`` from a finding to each outcome that settled it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database

BUDGET_MS = 10_000
"""How long the statement may take, in milliseconds."""


class SettledBy:
    """
    Reads the derived links for the applier.

    A link holds the last score that the outcome gave, and the moments since when there was any. A read as of a moment
    takes the score from Postgres.
    """

    async def rows(self, database: Database, keys: Sequence[str]) -> list[dict[str, Any]]:
        """
        Return one row for each finding: its key, and its links as ``outcome_id``, ``props`` and clocks.

        Raises:
            PostgresUnavailable: the links stay due.
        """
        found = await database.named("settled_links", {"findings": list(keys)}, deadline=Deadline.after_ms(BUDGET_MS))
        links: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in found:
            props = {
                "correct": None if row["y"] is None else float(row["y"]),
                "brier": row["brier"],
                "log_score": row["log_score"],
            }
            clocks = {name: _text(row[name]) for name in ("known_at", "recorded_at")}
            links[row["finding_id"]].append({"outcome_id": row["outcome_id"], "props": props, **clocks})
        return [{"key": key, "scores": links[key]} for key in keys]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
