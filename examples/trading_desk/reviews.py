"""
What a review of two decisions of the desk would quote. None opens: the desk states no forecasts.

The decisions are the two whose next session went worst against their stance. The automatic analysis of post-mortems is
asked for them directly, as of the moment at which the return became known.

Run it with ``python examples/trading_desk/reviews.py`` when the desk is loaded.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from imem.jobs.lifecycle import LifecycleRow
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import PostmortemStatus
from imem.memory import Memory
from imem.postmortem.cases.facts import case_id_of
from imem.postmortem.cases.package import PostmortemCase
from imem.postmortem.cases.queue import KIND
from imem.postmortem.cases.records import case_of
from imem.services.stores import Stores

DECISIONS: Final[Mapping[str, datetime]] = {
    "trading_desk:ORCL-20260602/decision": datetime(2026, 6, 4, 12, tzinfo=UTC),
    "trading_desk:NKE-20260531/decision": datetime(2026, 6, 2, 12, tzinfo=UTC),
}
"""Decision → when the return of its next session was known."""

SHOWN: Final = 60
"""Characters of a finding's statement."""

WITHIN_MS: Final = 60_000


async def reviewed(database: Database, decision_id: str, at: datetime) -> PostmortemCase:
    """Return what a reviewer of a decision would see as of a moment; nothing is recorded."""
    data = {"decision_id": decision_id, "checkpoints": [], "impact": 0.0, "systemic": False}
    row = LifecycleRow(
        kind=KIND, key=case_id_of(decision_id, 1), about=decision_id, state=PostmortemStatus.QUEUED, version=0,
        opened_at=at, entered_at=at, due_at=None, data=data,
    )  # fmt: skip
    return await case_of(database, row, 1, AsOf(at), deadline=Deadline.after_ms(WITHIN_MS))


def lines_of(case: PostmortemCase) -> list[str]:
    """Return the cause and the evidence as text, the rest of long statements left out."""
    head = f"{case.decision_id} ({case.stance}), as of {case.reviewed_as_of:%Y-%m-%d %H:%M} UTC: {case.cause}"
    return [head, *(f"  {one.cause}: {one.record}: {_begin(one.says)}" for one in case.evidence)]


def _begin(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rstrip()}…"


async def report(settings: Settings | None = None) -> list[str]:
    """Return how many forecasts and cases there are, and the two reviews."""
    async with Stores.open(settings or Settings()) as stores:
        memory = Memory(stores)
        stand, cases = await memory.forecast_report(), await memory.postmortems(every=True)
        checkpoints = stand.scheduled + stand.awaiting_data + stand.measured
        said = [f"{stand.unmeasurable} decisions without a forecast, {checkpoints} checkpoints, {len(cases)} cases"]
        for decision_id, at in DECISIONS.items():
            said += lines_of(await reviewed(stores.database, decision_id, at))
    return said


if __name__ == "__main__":
    sys.stdout.write("\n".join(asyncio.run(report())) + "\n")
