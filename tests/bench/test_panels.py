"""Weights of many agents on many days in one call, panels on one subject, and the value of panels on flu forecasts."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from examples.flusight import panels
from examples.flusight.convert import HERE
from imem.credibility.settling import settle_tracks
from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.memory import Memory
from tests.bench.table import Figure, Table, percentile
from tests.bench.test_track_records import GENERATE, START
from tests.credibility.conftest import HALFLIFE, World, finding, market, opened
from tests.imem.memory.conftest import MemoryHarness, harness

__all__ = ["harness"]

AGENTS, QUESTIONS, DAYS = 20, 5_000, 28
READS, SUBJECTS = (5, 20) if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else (50, 300)

DATA = "IMEM_BENCH_FLUSIGHT"
"""Folder of the whole FluSight extract; without it the six states of the example are used."""

PEERS = "UPDATE agent_outcome SET error = stated - happened, peer_loss = 0.2"

BARE = """
SELECT agent, at, target_at, context, rows, loss, peer_loss, error, ahead FROM observation_step
WHERE agent = ANY (%(agents)s::text[]) AND domain = 'domain-0' AND clock = 'known' ORDER BY agent, at
"""

NAMES = [f"agent-{number}" for number in range(1, AGENTS + 1)]


@asynccontextmanager
async def recorded(harness: MemoryHarness) -> AsyncIterator[tuple[World, Memory]]:
    """Open a memory with the records of all agents over all questions, whose answers were revised once."""
    url = harness.settings.postgres_url
    assert url is not None
    async with (
        opened(harness.settings, url.get_secret_value(), harness.admin_url) as world,
        Memory.open(harness.of("kate", Role.HUMAN_ADMIN)) as memory,
    ):
        values = {"domains": 1, "days": DAYS * 24, "start": START, "agents": AGENTS, "questions": QUESTIONS}
        await world.pipelines.rows(GENERATE + " RETURNING 1", values, deadline=Deadline.never())
        world.owner(PEERS)
        world.owner("VACUUM ANALYZE agent_outcome")
        world.owner(
            "INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, now() FROM agent_outcome"
        )
        while (await settle_tracks(world.pipelines, halflife_years=HALFLIFE)).tracks:
            pass
        world.owner("VACUUM ANALYZE observation_step")
        yield world, memory


@pytest.mark.bench
async def test_weights_of_many_days(harness: MemoryHarness, table: Table) -> None:
    """All agents as of 28 days over 5,000 questions in one call, beside a bare read of what they rest on."""
    taken_ms, bare_ms = [], []
    async with recorded(harness) as (_, memory):
        moments = [START + timedelta(days=7 * day) for day in range(1, DAYS + 1)]
        for _ in range(READS):
            begun = time.perf_counter()
            await memory._stores.database.rows(BARE, {"agents": NAMES}, deadline=Deadline.never())
            bare_ms.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            found = await memory.weights(NAMES, "domain-0", as_of=moments, deadline_ms=30_000)
            taken_ms.append((time.perf_counter() - begun) * 1000)
            assert len(found.items) == AGENTS * DAYS
    data = f"{QUESTIONS:,} × {AGENTS} × {DAYS}"
    note = "beside the bare statement that reads the observations they rest on"
    table.add(
        *(
            Figure(
                name=f"weights {name}", data=data, value=percentile(taken_ms, share), unit="ms",
                floor=percentile(bare_ms, share), note=note,
            )
            for name, share in (("p50", 0.5), ("p95", 0.95))
        )
    )  # fmt: skip


SAID = START + timedelta(days=420)
"""After the last answer of the records."""


@pytest.mark.bench
async def test_panels_of_a_subject(harness: MemoryHarness, table: Table) -> None:
    """Twenty agents' answers about a subject that nobody asked about before, beside the two statements alone."""
    lines = []
    for number in range(SUBJECTS):
        subject, target = f"market:asked-{number}", SAID + timedelta(days=10)
        lines.append(market(f"asked-{number}", SAID))
        lines += [
            finding(
                f"asked-{number}/{name}", SAID, target, agent=name, domain="domain-0", subject_id=subject,
                probability=(place + 1) / (AGENTS + 1),
            )
            for place, name in enumerate(NAMES)
        ]  # fmt: skip
    taken_ms, bare_ms = [], []
    async with recorded(harness) as (world, memory):
        for first in range(0, len(lines), 500):
            await world.say(*lines[first : first + 500])
        await world.settle()
        now = AsOf(datetime.now(UTC))
        of_records = {
            "agents": NAMES, "domains": ["domain-0"] * AGENTS, "clock": now.clock.value, "until": now.at,
            "since": START,
        }  # fmt: skip
        for number in range(SUBJECTS):
            subject = f"market:asked-{number}"
            begun = time.perf_counter()
            answer = await memory.panel(subject, deadline_ms=30_000)
            taken_ms.append((time.perf_counter() - begun) * 1000)
            assert [len(one.answers) for one in answer.items] == [AGENTS]
            assert answer.items[0].evidence == "enough"
            database, due = memory._stores.database, Deadline.after_ms(60_000)
            begun = time.perf_counter()
            await database.named(
                "claims_of_subject",
                {"subject_id": subject, "metric": None, "target_at": None, "limit": 200, **now.limits},
                deadline=due,
            )
            await database.named("observations_until", of_records, deadline=due)
            bare_ms.append((time.perf_counter() - begun) * 1000)
    warm = SUBJECTS // 10
    note = "of a subject that nobody asked about before, beside the statements that read its claims and the records"
    table.add(
        *(
            Figure(
                name=f"panel {name}", data=f"{AGENTS} agents, {QUESTIONS:,} questions", unit="ms",
                value=percentile(taken_ms[warm:], share), floor=percentile(bare_ms[warm:], share), note=note,
            )
            for name, share in (("p50", 0.5), ("p95", 0.95))
        )
    )  # fmt: skip


@pytest.mark.bench
@pytest.mark.parametrize("season", ["2023-24", "2024-25"] if os.environ.get(DATA) else ["2024-25"])
def test_value_on_a_season(table: Table, season: str) -> None:
    """Brier score of the pool by record beside the one with equal weights, by week, with an interval over weeks."""
    folder = os.environ.get(DATA)
    data = HERE / "source" if folder is None else Path(folder)
    found = panels.weeks(panels.read_season(data, season))
    change, lower, upper = panels.difference(found)
    note = f"of the mean Brier score, by record less equal weights; 95 % over weeks [{lower:+.1%}, {upper:+.1%}]"
    where = f"flusight {season}" if folder is not None else f"flusight {season}, six states"
    table.add(
        Figure(name="panel, difference", data=where, value=100 * change, unit="%", note=note),
        Figure(
            name="panel, better weeks",
            data=where,
            value=100 * sum(week.weighted < week.equal for week in found) / len(found),
            unit="%",
            better="more",
        ),
    )
