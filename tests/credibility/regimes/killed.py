"""
A program whose workers are killed: ``python -m tests.credibility.regimes.killed``, the database and a number on stdin.

It forks one worker after the other. Each detects, caches and publishes, and kills itself with SIGKILL before the
statement, or the call, that is its point; so many die at each of :data:`POINTS`. The last one ends by itself. It
prints how many were killed.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import psycopg

from imem.credibility import publication
from imem.credibility.regimes import readings, runs
from imem.credibility.regimes.detect import Indicators
from imem.credibility.regimes.providers import IndicatorRow
from imem.jobs import due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from tests.kill_points import NamedPoint, run_at_each_point

COMMITTED: Final = ("advance", "publish_wakeup")
"""After the commit of a detection: one dies there, since the next finds it detected."""

POINTS: Final = (
    *(("advance", name) for name in ("claim_detection", "finish_detection", "append_in")),
    COMMITTED,
    *(("advance", name) for name in ("cache_regime", "run_cached")),
    *(("publish", name) for name in ("run_published", "append_in")),
)
"""Stage and statement, or call, before which workers die; no point is reached before those before it are passed."""


class FixedProvider:
    """A provider of one row, a minute old."""

    name = "fixed"

    async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:  # noqa: ARG002 - the protocol's
        return [IndicatorRow(datetime.now(UTC) - timedelta(minutes=1), Indicators(0.2, 5.0, 12.0))]


async def _live(url: str, killer: NamedPoint) -> None:
    for module in (runs, readings, publication, due):
        for name in ("rows", "execute"):
            if hasattr(module, name):
                killer.guard(module, name, named=True)
    killer.guard(Gateway, "append_in", named=False)
    killer.guard(Gateway, "publish_wakeup", named=False)
    killer.guard(runs, "close_alerts", named=False)
    database = Database(url)
    gateway = Gateway(database, runs.ACTOR)
    killer.stage = "advance"
    await runs.advance(database, gateway, FixedProvider(), until=Deadline.never())
    killer.stage = "publish"
    await publication.publish_scores(database, gateway, halflife_years=2.0, until=Deadline.never(), batch=2)
    await database.close()


def main(url: str, kills: int) -> int:
    def let_a_claim_lapse() -> None:
        """Let a minute pass, for which a killed worker holds its claim."""
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("UPDATE regime_run SET claimed_at = claimed_at - interval '61 seconds'")

    points = (one for one in POINTS for _ in range(1 if one == COMMITTED else kills))
    return run_at_each_point(partial(_live, url), points, before=let_a_claim_lapse)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip(), int(sys.stdin.readline())))
