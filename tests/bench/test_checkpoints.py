"""Checkpoints: forecasts scheduled, outcomes recorded and compared a second; and the lessons of a briefing."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import orjson
import psycopg
import pytest
import pytest_asyncio

from imem.credibility.forecasts.tracking import track_forecasts
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.journal.statements import cypher, load, sql
from imem.kg.asof import AsOf
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.sections import lessons
from tests.bench.table import Figure, Table, percentile
from tests.credibility.conftest import World as CredibilityWorld
from tests.credibility.conftest import opened
from tests.postmortem.cases.conftest import DAY, DECIDED, MONTH, decided, happened
from tests.recall import facts
from tests.recall.conftest import RecallHarness, empty, harness, journal, world
from tests.servers import ahead, cloned, in_database

__all__ = ["empty", "harness", "journal", "world"]

pytestmark = pytest.mark.bench

TINY: Final = os.environ.get("IMEM_BENCH_SCALE") == "tiny"
NEVER: Final = Deadline.never()
STATEMENTS: Final = load(Path(__file__).parent, ".sql")

PORTION: Final = 500
PORTIONS: Final = 2 if TINY else 10
LESSONS: Final = 90 if TINY else 3_000
READS: Final = 20 if TINY else 300

SHOWN: Final = "AND imem_lesson_shown_v1(h.key, %(known_until)s, %(recorded_until)s) IS NOT NULL"
"""What leaves out the lessons that agents do not see."""


@pytest.fixture
def database(light_stack: Any, light_template: str) -> Iterator[tuple[Settings, str, str]]:
    """Lend settings, address and owner's address of a migrated database."""
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        more = {**in_database(light_stack.settings, url), "deadline_ms": 30_000}
        yield light_stack.settings.model_copy(update=more), url, admin_url


STEPS: Final = {"schedule": "scheduled", "record": "recorded", "measure": "measured"}
"""Step of a checkpoint → what it is called afterwards."""


class Rates:
    """Checkpoints a second of each step, and of the bare statement."""

    def __init__(self, owner: psycopg.Connection) -> None:
        self.owner = owner
        self.ours: dict[str, list[float]] = {step: [] for step in STEPS}
        self.bare: dict[str, list[float]] = {step: [] for step in STEPS}

    async def take(self, step: str, doing: Awaitable[Any], **given: Any) -> Any:
        """Do a step of a portion, and then the bare statement of the same."""
        begun = time.perf_counter()
        done = await doing
        self.ours[step].append(PORTION / (time.perf_counter() - begun))
        begun = time.perf_counter()
        self.owner.execute(STATEMENTS[f"bare_{step}"].text, given)
        self.bare[step].append(PORTION / (time.perf_counter() - begun))
        return done


def runtime_of(made: CredibilityWorld, database: Database) -> Any:
    return SimpleNamespace(database=database, gateway=Gateway(database, made.engine.actor))


async def test_checkpoints(database: tuple[Settings, str, str], table: Table) -> None:
    """
    Portions of decisions are scheduled, their outcomes recorded and compared; each step also barely, in turns.

    They are scheduled on the day after the decision, and compared when the checkpoint is over.
    """
    [point] = MONTH.points
    path = {"days": point.days, "predicted": point.predicted, "low": point.low, "high": point.high}
    with psycopg.connect(database[2], autocommit=True) as owner:
        owner.execute(STATEMENTS["bare_checkpoints"].text)
        rates = Rates(owner)
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(opened(*database))
            runtime = runtime_of(made, made.pipelines)
            early = Database(
                made.pipeline_url, size=4, options=ahead(made.admin_url, DECIDED + DAY - datetime.now(UTC))
            )
            stack.push_async_callback(early.close)
            for portion in range(PORTIONS):
                keys = [f"d{portion}-{number}" for number in range(PORTION)]
                subjects = [f"company:C{number}" for number in range(PORTION)]
                await made.say(*(decided(*one) for one in zip(keys, [MONTH] * PORTION, subjects, strict=True)))
                report = await rates.take(
                    "schedule", track_forecasts(runtime_of(made, early), until=NEVER), keys=keys, **path
                )
                assert report["changed"] == PORTION
                lines = [
                    happened(0.02 if number % 4 else -0.50, key, subject=subject)
                    for number, (key, subject) in enumerate(zip(keys, subjects, strict=True))
                ]
                cores = [orjson.dumps(one["core"]).decode() for one in lines]
                barely = {"keys": [one["core"]["id"] for one in lines], "known_at": lines[0]["known_at"]}
                await rates.take("record", made.say(*lines), decisions=keys, cores=cores, **barely)
                report = await rates.take("measure", track_forecasts(runtime, until=NEVER), decisions=keys)
                assert report["changed"] == PORTION
            found = await made.rows("SELECT data ->> 'verdict' AS verdict, count(*) AS n FROM lifecycle GROUP BY 1")
        bare = owner.execute("SELECT verdict, count(*) FROM bare_measured GROUP BY 1").fetchall()
    assert {row["verdict"]: row["n"] for row in found} == dict(bare), "both find the same"
    for step, called in STEPS.items():
        table.add(
            Figure(
                name=f"checkpoints {called}", data=f"{PORTION * PORTIONS:,}", value=percentile(rates.ours[step], 0.5),
                unit="/s", floor=percentile(rates.bare[step], 0.5), better="more",
                note=f"median of {PORTIONS} portions of {PORTION}, in turns",
            )
        )  # fmt: skip


# Lessons


@pytest_asyncio.fixture
async def taught(harness: RecallHarness) -> AsyncIterator[RecallHarness]:
    """Lend a memory with lessons of three domains; of each three, agents see two."""
    states = ("approved", "applied", "draft")
    lines = [facts.company("T0", 0), facts.analysis("a0", 0)]
    lines += [facts.finding(f"f{number}", 0, analysis_id="a0", domain=f"domain{number}") for number in range(2)]
    for number in range(LESSONS):
        line = facts.lesson(f"l{number}", 1 + number / LESSONS)
        state = states[number // 3 % 3]
        lines.append({**line, "groups": {"state": facts.lesson_state(state)}})
    await harness.know(lines)
    yield harness


async def test_lessons(taught: RecallHarness, table: Table) -> None:
    """From the graph beside the statement alone; from the journal beside the statement that does not ask for states."""
    database, graph, most = taught.journal.database, taught.world.graph, Limits().lessons
    [clock] = await database.named("safe_horizon", deadline=NEVER)
    at = AsOf(clock["now"])
    given = {"subject_id": "company:T0", "limit": most, "active": [], "half": False, **at.limits}
    stateless = sql("lessons_in_journal").replace(SHOWN, "")
    assert len(stateless) < len(sql("lessons_in_journal"))

    def request() -> RetrievalRequest:
        return RetrievalRequest("company:T0", at, database, graph, Deadline.after_ms(30_000), Limits(), 2.0)

    in_graph = {name: given[name] for name in cypher("lessons_of_subject").given}
    asking: dict[str, Callable[[], Awaitable[Any]]] = {
        "graph": lambda: lessons.load(request()),
        "statement": lambda: graph.read("lessons_of_subject", in_graph, deadline=NEVER),
        "journal": lambda: lessons.load_from_journal(request()),
        "stateless": lambda: database.rows(stateless, given, deadline=NEVER),
    }
    taken: dict[str, list[float]] = {name: [] for name in asking}
    for _ in range(READS + 10):
        for name, ask in asking.items():
            begun = time.perf_counter()
            found = await ask()
            taken[name].append((time.perf_counter() - begun) * 1000)
            assert len(getattr(found, "items", found)) == most
    for share, percent in ((0.5, "p50"), (0.95, "p95")):
        for name, alone, note in (
            ("graph", "statement", "beside its statement in the graph alone"),
            ("journal", "stateless", "without the graph, beside its statement alone that does not ask for states"),
        ):
            table.add(
                Figure(
                    name=f"lessons of a briefing, from the {name}, {percent}", data=f"{LESSONS:,} lessons",
                    value=percentile(taken[name][10:], share), unit="ms", floor=percentile(taken[alone][10:], share),
                    note=note,
                )
            )  # fmt: skip
