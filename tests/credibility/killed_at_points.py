"""
A program whose settlers are killed: ``python -m tests.credibility.killed_at_points``, database and number on stdin.

It forks one settler after the other. So many of them kill themselves with SIGKILL at each of :data:`POINTS`; the last
one lives. It prints how many were killed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from imem.credibility import settling, store
from imem.jobs import due
from imem.journal.gateway import Gateway
from tests.kill_points import NamedPoint, run_at_each_point

from .killed import settle_to_the_end

POINTS: Final = (
    ("agents", "due_questions_of_agents"),
    ("contexts", "due_claims_in_regimes"),
    ("scores", "write_scores"),
    ("scores", "due_tracks"),
    ("scores", "due_done"),
    ("records", "write_cells"),
    ("records", "delete_track_due"),
    ("verdicts", "append_in"),
)
"""Stage and statement, or call, before which settlers die; no point is reached before those before it are passed."""

STAGES: Final = {
    "settle_agents": "agents",
    "settle_contexts": "contexts",
    "settle_questions": "scores",
    "settle_tracks": "records",
    "settle_decisions": "verdicts",
}


async def _live(url: str, killer: NamedPoint) -> None:
    for module in (store, settling, due):
        for name in ("rows", "execute"):
            killer.guard(module, name, named=True)
    killer.guard(Gateway, "append_in", named=False)
    for function, stage in STAGES.items():
        killer.enter(settling, function, stage)
    await settle_to_the_end(url)


def main(url: str, kills: int) -> int:
    return run_at_each_point(partial(_live, url), (one for one in POINTS for _ in range(kills)))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip(), int(sys.stdin.readline())))
