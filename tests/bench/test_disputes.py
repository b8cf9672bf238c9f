"""Data points through detection, the value of a day among very many, the inbox, and how late timers are."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import orjson
import psycopg
import pytest

from imem.credibility.disputes.detection import find_contradictions
from imem.jobs.lifecycle_pipelines import ADVANCE
from imem.jobs.pipeline import Every
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.settings import Role, Settings
from imem.journal.statements import load
from imem.kg.kinds.data_points import DataPoint
from imem.local.migrate import migrate
from imem.local.supervisor import LocalStack
from imem.memory import Memory
from imem.review import inbox
from imem.review.admission import Reviewer
from imem.review.states import ANSWERABLE
from imem.services.task_kinds import TASK_KINDS
from tests.bench import floor
from tests.bench.table import Figure, Table, percentile
from tests.conftest import settings_for, temporary_home
from tests.credibility.conftest import World, opened
from tests.servers import cloned, in_database

pytestmark = pytest.mark.bench

TINY: Final = os.environ.get("IMEM_BENCH_SCALE") == "tiny"
NEVER: Final = Deadline.never()
STATEMENTS: Final = load(Path(__file__).parent, ".sql")

SUBJECTS: Final = 20 if TINY else 100
METRICS: Final = tuple(f"metric{number}" for number in range(50))
QUARTERS: Final = 20
SOURCES: Final = ("SEC_EDGAR", "Bloomberg")
DISPUTED: Final = 500
"""Of so many cells one is disputed, and a later filing confirms one of its values."""

CHUNK: Final = 2_000
CHUNKS: Final = 2 if TINY else 10
READS: Final = 40 if TINY else 400
TASKS: Final = 400 if TINY else 10_000
TIMERS: Final = 40 if TINY else 300
TIMED_S: Final = 30.0
"""Seconds over which the timers are spread."""

PACKAGE: Final = orjson.dumps(
    {
        "subject_id": "company:MU",
        "documents": [{"source": one, "document": one, "filed_at": None, "score": 0.9} for one in ("a", "b")],
        "items": [
            {
                "contradiction_id": "none", "point_a": None, "point_b": None, "metric": "revenue",
                "data_point": "revenue", "value_a": 1.0, "value_b": 2.0, "differ_by": 0.5, "priority": "CRITICAL",
                "fallback_value": None, "fallback_side": None, "fallback_confidence": 0.5, "differential": 0.0,
            }
        ],
    }
).decode()  # fmt: skip
"""What the reviewer of a task sees whose contradiction was withdrawn."""

START: Final = datetime(2015, 1, 1, tzinfo=UTC)
QUARTER: Final = timedelta(days=91)
MIDDLE: Final = START + QUARTERS / 2 * QUARTER


def points(subjects: Sequence[str], metrics: Sequence[str]) -> Iterator[tuple[DataPoint, datetime, bool]]:
    """Yield what a filing and a vendor state of every cell, since when it was known, and whether it is disputed."""
    for number, subject in enumerate(subjects):
        for place, metric in enumerate(metrics):
            for quarter in range(QUARTERS):
                begins, ends = START + quarter * QUARTER, START + (quarter + 1) * QUARTER
                disputed = (number * 1000 + place * QUARTERS + quarter) % DISPUTED == 0
                value = 1_000.0 + number * 50 + place + quarter
                stated = [(SOURCES[0], 40, value), (SOURCES[1], 45, value * (1.05 if disputed else 1.0))]
                stated += [(SOURCES[0], 130, value)] if disputed else []
                for source, days, figure in stated:
                    at = ends + timedelta(days=days)
                    point = DataPoint(
                        subject_id=subject, metric=metric, period_start=begins, period_end=ends, unit="USD",
                        value=figure, source=source, document=f"{source}/{quarter}/{days}", filed_at=at,
                    )  # fmt: skip
                    yield point, at, disputed


def line(point: DataPoint, at: datetime) -> dict[str, Any]:
    core = point.model_dump(mode="json", exclude={"id"}, exclude_none=True)
    return {"record": "DataPoint", "known_at": at.isoformat(), "core": core}


@pytest.fixture
def database(light_stack: Any, light_template: str) -> Iterator[tuple[Settings, str, str]]:
    """Lend settings, address and owner's address of a migrated database."""
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        more = {**in_database(light_stack.settings, url), "neo4j_url": "bolt://127.0.0.1:1", "deadline_ms": 30_000}
        yield light_stack.settings.model_copy(update=more), url, admin_url


@asynccontextmanager
async def world_of(lent: tuple[Settings, str, str]) -> AsyncIterator[World]:
    async with opened(*lent) as world:
        yield world


async def detect(world: World) -> dict[str, Any]:
    runtime: Any = SimpleNamespace(database=world.pipelines, gateway=world.engine, task_kinds=TASK_KINDS)
    return dict(await find_contradictions(runtime, guard=True, until=NEVER))


async def test_points_through_detection(database: tuple[Settings, str, str], table: Table) -> None:
    """Portions are recorded, compared and inserted barely, in turns."""
    rates: dict[str, list[float]] = {"recorded": [], "compared": [], "bare": []}
    stated = points([f"company:D{number}" for number in range(SUBJECTS)], METRICS[:10])
    with psycopg.connect(database[2], autocommit=True) as owner:
        owner.execute("CREATE TABLE bare (key text PRIMARY KEY, core jsonb, known_at timestamptz)")
        async with world_of(database) as world:
            for _ in range(CHUNKS):
                chunk = [next(stated) for _ in range(CHUNK)]
                lines = [line(point, at) for point, at, _ in chunk]
                begun = time.perf_counter()
                await world.say(*lines)
                rates["recorded"].append(CHUNK / (time.perf_counter() - begun))
                begun = time.perf_counter()
                report = await detect(world)
                rates["compared"].append(CHUNK / (time.perf_counter() - begun))
                assert report["disagreement"], "some are disputed"
                keys, cores = [point.id for point, _, _ in chunk], [orjson.dumps(one["core"]).decode() for one in lines]
                begun = time.perf_counter()
                owner.execute(
                    "INSERT INTO bare SELECT * FROM unnest(%s::text[], %s::jsonb[], %s::timestamptz[])",
                    (keys, cores, [at for _, at, _ in chunk]),
                )
                rates["bare"].append(CHUNK / (time.perf_counter() - begun))
    bare = percentile(rates["bare"], 0.5)
    for name, what in (("recorded", "recording"), ("compared", "detection")):
        table.add(
            Figure(
                name=f"data points through {what}", data=f"{CHUNK * CHUNKS:,}", value=percentile(rates[name], 0.5),
                unit="/s", floor=bare, better="more", note=f"median of {CHUNKS} portions of {CHUNK:,}, in turns",
            )
        )  # fmt: skip


def seed(admin_url: str) -> tuple[int, list[str]]:
    """Put the points into the journal as the gateway would; return how many, and the disputed ones of the vendor."""
    disputed: list[str] = []
    number = 0
    with psycopg.connect(admin_url, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("SET synchronous_commit = off")
        owner.execute("SET maintenance_work_mem = '512MB'")
        owner.execute(STATEMENTS["seeded_points"].text)
        with owner.cursor().copy("COPY seeded_point FROM STDIN") as copy:
            for point, at, contested in points([f"company:S{one}" for one in range(SUBJECTS)], METRICS):
                number += 1
                core = orjson.dumps(point.model_dump(mode="json", exclude_none=True)).decode()
                copy.write_row(
                    (number, point.id, point.subject_id, point.metric, point.period_end, point.value, at, core)
                )
                if contested and point.source == SOURCES[1]:
                    disputed.append(point.id)
        for name in ("seeded_events", "seeded_heads", "seeded_histories", "bare_points"):
            owner.execute(STATEMENTS[name].text)
        for statement in STATEMENTS["bare_points_end"].text.split(";"):
            owner.execute(statement.encode())
        owner.execute(STATEMENTS["seeded_due"].text, {"keys": disputed})
        owner.execute("VACUUM ANALYZE")
    return number, disputed


async def test_the_value_of_a_day(database: tuple[Settings, str, str], table: Table) -> None:
    """Half as of now, half as of a day in the middle; the floor is one lookup in a table with one index, in turns."""
    many, disputed = await asyncio.to_thread(seed, database[2])
    async with world_of(database) as world:
        begun = time.perf_counter()
        report = await detect(world)
        compared_s = time.perf_counter() - begun
        assert report["disagreement"] >= len(disputed)
        world.owner("ANALYZE")
    chance = random.Random(7)
    settings = database[0].model_copy(update={"actor": "eve", "role": Role.AGENT})
    taken, alone = [], []
    async with Memory.open(settings) as memory:
        for nth in range(READS + 20):
            subject, metric = f"company:S{chance.randrange(SUBJECTS)}", chance.choice(METRICS)
            quarter = chance.randrange(QUARTERS // 2)
            period = START + quarter * QUARTER, START + (quarter + 1) * QUARTER
            asked = MIDDLE + timedelta(days=150) if nth % 2 else None
            begun = time.perf_counter()
            found = await memory.value(subject, metric, period, as_of=asked, deadline_ms=30_000)
            taken.append((time.perf_counter() - begun) * 1000)
            assert found.value is not None
            given = {"subject_id": subject, "metric": metric, "period_end": period[1], "known_until": found.as_of}
            begun = time.perf_counter()
            rows = await memory._stores.database.rows(STATEMENTS["bare_value"].text, given, deadline=NEVER)
            alone.append((time.perf_counter() - begun) * 1000)
            assert len(rows) >= len(SOURCES)
    for share, name in ((0.5, "p50"), (0.95, "p95")):
        table.add(
            Figure(
                name=f"value as of a day {name}", data=f"{many:,} points, {len(disputed):,} outcomes",
                value=percentile(taken[20:], share), unit="ms", floor=percentile(alone[20:], share),
                note="through the gateway, with scores, decisions and reasons; beside one lookup by an index",
            )
        )  # fmt: skip
    table.add(
        Figure(
            name="disputed cells compared", data=f"{many:,} points", value=len(disputed) / compared_s, unit="/s",
            better="more", note="each with its contradiction, resolution and the outcome that a later filing gives",
        )
    )  # fmt: skip


async def test_the_inbox(database: tuple[Settings, str, str], table: Table) -> None:
    """The first page and all of very many tasks, beside the statement alone."""
    async with world_of(database) as world:
        eve, ann = Reviewer(person="eve"), Actor("ann", Role.HUMAN_ADMIN)
        await inbox.set_reviewer(world.database, TASK_KINDS, eve, by=ann, deadline=NEVER)
        filed, at, _ = next(points(["company:MU"], ["revenue"]))
        slip = {"value": filed.value * 10, "source": "Bloomberg", "document": "b"}
        wrong = DataPoint(**{**filed.model_dump(exclude={"id"}), **slip})
        await world.say(line(filed, at), line(wrong, at + timedelta(days=5)))
        assert (await detect(world))["asked"] == 1
        with psycopg.connect(database[2], autocommit=True) as owner:
            owner.execute(STATEMENTS["copied_tasks"].text, {"tasks": TASKS - 1})
            owner.execute(STATEMENTS["copied_rows"].text, {})
            owner.execute("VACUUM ANALYZE")
    settings = database[0].model_copy(update={"actor": "ann", "role": Role.HUMAN_ADMIN})
    async with Memory.open(settings) as memory:
        for limit, times in ((200, READS), (TASKS, 10)):
            taken, alone = [], []
            states = [state.value for state in ANSWERABLE]
            given = {"states": states, "of_kind": None, "reviewer": None, "limit": limit, "analysis_id": None}
            for _ in range(times + 5):
                begun = time.perf_counter()
                tasks = await memory.tasks(limit=limit, deadline_ms=30_000)
                taken.append((time.perf_counter() - begun) * 1000)
                assert len(tasks) == limit
                begun = time.perf_counter()
                await memory._stores.database.named("tasks_listed", given, deadline=NEVER)
                alone.append((time.perf_counter() - begun) * 1000)
            for share, name in ((0.5, "p50"), (0.95, "p95")):
                table.add(
                    Figure(
                        name=f"inbox {name}", data=f"{limit:,} of {TASKS:,} tasks", value=percentile(taken[5:], share),
                        unit="ms", floor=percentile(alone[5:], share), note="through the gateway, every task whole",
                    )
                )  # fmt: skip


async def test_timers_of_tasks(table: Table) -> None:
    """Beat and worker of a whole stack move what is due; the floor is the pipeline's interval."""
    with temporary_home() as home, LocalStack(settings_for(home), migrate=migrate) as stack:
        given = {"tasks": TIMERS, "package": PACKAGE, "over_s": TIMED_S}
        with psycopg.connect(floor.admin_url(stack.settings), autocommit=True) as owner:
            owner.execute(STATEMENTS["timed_tasks"].text, given)
            times = {**given, "begun": datetime.now(UTC) + timedelta(seconds=5)}
            owner.execute(STATEMENTS["timed_rows"].text, times)
            late: list[float] = []
            until = time.monotonic() + TIMED_S + 60
            while len(late) < TIMERS and time.monotonic() < until:
                await asyncio.sleep(1)
                late = [row[0] for row in owner.execute(STATEMENTS["timers_moved"].text, times).fetchall()]
    assert len(late) == TIMERS
    assert isinstance(ADVANCE.cadence, Every)
    for share, name in ((0.5, "p50"), (1.0, "worst")):
        table.add(
            Figure(
                name=f"lateness of timers {name}", data=f"{TIMERS} in {TIMED_S:.0f} s", value=percentile(late, share),
                unit="s", floor=ADVANCE.cadence.seconds, note="from due to moved; the floor is the pipeline's interval",
            )
        )  # fmt: skip
