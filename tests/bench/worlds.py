"""A world: a whole stack as ``imem up`` runs it, and one data set loaded as ``imem load`` loads it, both watched."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
import psycopg

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.journal.statements import sql
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.local.migrate import migrate
from imem.local.supervisor import LocalStack
from imem.local.workers import environment
from imem.services.stores import pipeline_url
from tests.bench import floor
from tests.bench.generate import patterns as made_up

LOOK_S: Final = 0.05
WEIGH_S: Final = 1.0
SCORED_WITHIN_S: Final = 600.0
COMPARED_WITHIN_S: Final = 1800.0
_ROLES: Final = ("working", "durable", "cache")

IMPORTER: Final = Actor("import:bench", Role.HUMAN_ADMIN, may_import=True)

_RATES: Final = """
WITH applied AS (
    SELECT d.applied_at, e.recorded_at FROM delivery AS d JOIN event AS e ON e.position = d.position
    -- Its own: pipelines begin to record what they compute before the graph holds all of it.
    WHERE d.state = 'applied' AND e.actor = (SELECT actor FROM event ORDER BY position LIMIT 1)
), span AS (
    SELECT min(recorded_at) AS begun, max(recorded_at) AS durable, max(applied_at) AS visible FROM applied
)
SELECT extract(epoch FROM visible - begun)::float8 AS visible_s,
    extract(epoch FROM durable - begun)::float8 AS durable_s,
    (SELECT count(*) FROM applied, span WHERE applied_at > begun + (visible - begun) / 2) AS second_half
FROM span
"""


@dataclass(frozen=True, slots=True)
class Load:
    """
    How a load went.

    Attributes:
        events: rows that were written.
        seconds: from its first line until the graph held the last, as ``imem load`` counts.
        durable_s: until the journal held the last.
        second_half: events a second that became visible in the second half of the time.
        peak_bytes: the most memory that ``imem load`` held.
        scores, scoring_s: scores made, and how long the pipelines took after the graph held everything.
        finished_s: how long until scores were published and texts could be searched, too.
        comparing_s: how long it took from then until every analysis had its neighbours.
    """

    events: int
    seconds: float
    durable_s: float
    second_half: float
    peak_bytes: int
    scores: int
    scoring_s: float
    finished_s: float
    comparing_s: float


@dataclass(slots=True)
class Weights:
    """
    The memory of all children of a stack, weighed now and then.

    Attributes:
        rss: greatest sum of what each holds in memory, in bytes; what several share counts for each.
        pss: the same with what is shared counted once.
    """

    rss: int = 0
    pss: int = 0

    @contextmanager
    def watching(self, stack: LocalStack) -> Iterator[None]:
        """Weigh the children of *stack* while the block runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stack, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, stack: LocalStack, over: threading.Event) -> None:
        while not over.wait(WEIGH_S):
            rss = pss = 0
            for child in stack.state.children.values():
                for process in _family(child.pid):
                    with suppress(psutil.Error):
                        weight = process.memory_full_info()
                        rss, pss = rss + weight.rss, pss + weight.pss
            self.rss, self.pss = max(self.rss, rss), max(self.pss, pss)


def _family(pid: int | None) -> list[psutil.Process]:
    if pid is None:
        return []
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


@dataclass(slots=True)
class World:
    """
    A stack with one data set in it.

    Attributes:
        data: the name of the data set in the table.
        settings: with every address.
        started_s: how long the stack took to start, migrations included.
        load: how the load went.
        floor: what the bare drivers reached with the same file.
        weights: of the stack while it was loaded.
    """

    data: str
    settings: Settings
    started_s: float
    load: Load
    floor: floor.Rates
    weights: Weights = field(default_factory=Weights)


@contextmanager
def world(
    data: str, paths: Sequence[Path], floor_home: Path, settings: Settings, *, patterns: int = 0
) -> Iterator[World]:
    """Measure the floor on bare servers of its own, then start a stack, load *paths*, state *patterns*, and lend it."""
    least = _floor(settings.model_copy(update={"home": floor_home}), paths)
    begun = time.perf_counter()
    with LocalStack(settings, migrate=migrate) as stack:
        started_s = time.perf_counter() - begun
        weights = Weights()
        with weights.watching(stack):
            loaded = _load(settings, stack.settings, paths)
        asyncio.run(state_patterns(stack.settings, patterns))
        with psycopg.connect(floor.admin_url(stack.settings), autocommit=True) as conn:
            all_done(conn)
            # What autovacuum would do within a minute: an old memory is asked far more often than a new one.
            conn.execute("ANALYZE")
        yield World(data, stack.settings, started_s, loaded, least, weights)


def _floor(settings: Settings, paths: Sequence[Path]) -> floor.Rates:
    with LocalStack(settings, servers={"postgres", "neo4j"}, workers=False) as stack:
        migrate(stack.settings)
        return asyncio.run(floor.pipeline(stack.settings, paths))


_UNSCORED: Final = """
SELECT (SELECT count(*) FROM due_row
        WHERE queue NOT IN ('similar', 'search', 'scores', 'memories', 'signals', 'reflection') AND set_aside IS NULL)
    + (SELECT count(*) FROM track_due) + (SELECT count(*) FROM delivery WHERE state = 'pending')
"""
"""What settling and the graph have still to do."""


def _load(settings: Settings, reachable: Settings, paths: Sequence[Path]) -> Load:
    """Load as a person does, in a process of its own, and wait until everything is scored."""
    command = [sys.executable, "-m", "imem", "load", "--json", *map(str, paths)]
    variables = {**os.environ, **environment(settings)}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE)
    peak = _watched(process)
    output, _ = process.communicate()
    assert process.returncode == 0, output.decode()[-2000:]
    told = json.loads(output)
    assert told["visible"] is True
    begun = time.perf_counter()
    with psycopg.connect(floor.admin_url(reachable), autocommit=True) as conn:
        visible_s, durable_s, second_half = _one(conn, _RATES)
        _wait(conn, _UNSCORED, SCORED_WITHIN_S)
        scoring_s = time.perf_counter() - begun
        scores = all_done(conn)
        finished_s = time.perf_counter() - begun
        all_done(conn, compared=True)
        comparing_s = time.perf_counter() - begun
    return Load(
        events=told["new"] + told["changed"],
        seconds=told["seconds"],
        durable_s=durable_s,
        second_half=second_half / (visible_s / 2),
        peak_bytes=peak,
        scores=scores,
        scoring_s=scoring_s,
        finished_s=finished_s,
        comparing_s=comparing_s,
    )


def all_done(conn: psycopg.Connection[Any], *, compared: bool = False) -> int:
    """
    Wait until the graph holds everything and everything is scored, and if asked for, *compared*; return the scores.

    Raises:
        AssertionError: it was not done in time.
    """
    columns, within_s = ((0, 2), COMPARED_WITHIN_S) if compared else ((0,), SCORED_WITHIN_S)
    return int(_wait(conn, sql("pipelines_due"), within_s, columns)[1])


def _wait(conn: psycopg.Connection[Any], count: str, within_s: float, columns: Sequence[int] = (0,)) -> tuple[Any, ...]:
    """Wait until the given columns of the row that *count* returns are all 0; return the row."""
    begun = time.perf_counter()
    while True:
        asked = time.perf_counter()
        row = _one(conn, count)
        if not any(row[column] for column in columns):
            return row
        assert time.perf_counter() - begun < within_s, f"Not everything was done in time: {row} wait."
        # Long queues take long to count, and what is measured needs the processor.
        pause_s = max(LOOK_S, 9 * (time.perf_counter() - asked))
        time.sleep(pause_s)  # Polling: no notification says that a queue is empty.


async def state_patterns(settings: Settings, count: int) -> None:
    """Have the journal hold *count* patterns, as their subsystem states them: a load may not."""
    lines = [parse_line(orjson.dumps(line), needs_known_at=False, writer="patterns") for line in made_up(count)]
    database = Database(pipeline_url(settings), size=2)
    try:
        if lines:
            await Gateway(database, IMPORTER).append([entry_of(line) for line in lines], deadline=Deadline.never())
    finally:
        await database.close()


def rebuilt(settings: Settings) -> dict[str, float]:
    """Make the graph of a stack anew in a process of its own; see :mod:`tests.bench.rebuild_once`."""
    # The stack's own addresses come from its state file, as for a person.
    named = {"neo4j_url", "neo4j_password", "postgres_url", "postgres_curator_url"}
    local = settings.model_copy(update=dict.fromkeys({*named, *(f"valkey_{role}_url" for role in _ROLES)}))
    command = [sys.executable, "-m", "tests.bench.rebuild_once"]
    done = subprocess.run(command, env={**os.environ, **environment(local)}, stdout=subprocess.PIPE, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _one(conn: psycopg.Connection[Any], query: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = conn.execute(query).fetchone()
    assert row is not None
    return row


def _watched(process: subprocess.Popen[bytes]) -> int:
    """Return the most memory that *process* held, in bytes; its pipe is small enough for what it prints."""
    peak = 0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        with suppress(OSError):
            # The kernel's own high-water mark of this program, which no look can miss.
            marks = [line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM")]
            peak = max([peak, *(int(mark.split()[1]) * 1024 for mark in marks)])
        time.sleep(LOOK_S)  # What a process holds at most is seen by looking.
    return peak
