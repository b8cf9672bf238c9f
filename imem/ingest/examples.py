"""The examples that the demo shows: loaded once, and waited for as long as anything moves."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StackError, StoreUnavailable
from imem.journal.statements import root_of

if TYPE_CHECKING:
    from imem.journal.postgres.connection import Row
    from imem.journal.postgres.database import Database

EXAMPLES: Final = ("trading_desk", "flusight")

STALLED_S: Final = 900.0
"""
Time in which nothing changes after which the wait ends, in seconds.

A machine with ten times the work that it can do takes minutes for one transaction of the graph.
"""

ASK_MS: Final = 30_000
"""Budget of one look at what is left to do, in milliseconds."""

_POLL_S: Final = 0.25
_POLL_SHARE: Final = 20.0
"""Least interval as a multiple of the last look's duration: looking must not slow down what is waited for."""

_LAST_POSITION: Final = 2**62


def example_files() -> dict[str, Path]:
    """Return the files of the examples by the actor that imports them."""
    folder = root_of("imem", "examples")
    return {f"import:{name}": folder / name / f"{name}.jsonl.gz" for name in EXAMPLES}


async def missing_examples(database: Database, files: Mapping[str, Path]) -> list[Path]:
    """
    Return the files that the journal does not hold whole.

    Each line is an event of its own, and events of a source are numbered.

    Raises:
        PostgresUnavailable, BudgetExceeded: Postgres does not answer.
    """
    rows = await database.named("events_of_actors", {"actors": list(files)}, deadline=Deadline.after_ms(ASK_MS))
    held = {row["actor"]: row["events"] for row in rows}
    lines = {actor: await asyncio.to_thread(_lines, file) for actor, file in files.items()}
    return [file for actor, file in files.items() if held.get(actor, 0) < lines[actor]]


def _lines(file: Path) -> int:
    with gzip.open(file, "rb") as lines:
        return sum(1 for line in lines if line.strip())


async def wait_for_pipelines(
    database: Database,
    actors: Sequence[str],
    *,
    shown: Callable[[Row], None],
    runs: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Row:
    """
    Wait until the graph holds everything, outcomes are scored, and statements compared; return the last numbers.

    It goes on while any number changes, and while the servers do not answer: on a busy machine both take their time.

    Args:
        actors: of whose events none may have been refused by the graph.
        shown: receives the numbers at each look.
        runs: whether the stack still runs.

    Raises:
        StackError: nothing changed for :data:`STALLED_S`, the stack has ended, or the graph refused an event.
    """
    moved = clock()
    before: Row | None = None
    while True:
        begun = time.monotonic()
        try:
            due = next(iter(await database.named("pipelines_due", deadline=Deadline.after_ms(ASK_MS))), None)
        except (StoreUnavailable, BudgetExceeded):
            due = before
        if due is not None:
            shown(due)
            if not due["due"] and not due["uncompared"]:
                break
        if due != before:
            moved, before = clock(), due
        elif clock() - moved > STALLED_S:
            raise StackError(
                f"Nothing has changed for {STALLED_S / 60:.0f} minutes, with work left.",
                mend="`imem logs celery` and `imem doctor` show why.",
            )
        if not runs():
            raise StackError("The stack has ended meanwhile.", mend="`imem logs supervisor` shows why.")
        await asyncio.sleep(max(_POLL_S, (time.monotonic() - begun) * _POLL_SHARE))
    given = {"actors": list(actors), "upto": _LAST_POSITION}
    [left] = await database.named("undelivered_of_actors", given, deadline=Deadline.after_ms(ASK_MS))
    if left["dead"]:
        said = f"The graph refused {left['dead']:,} events of the examples."
        raise StackError(said, mend="`imem sync dead` lists them.")
    return due
