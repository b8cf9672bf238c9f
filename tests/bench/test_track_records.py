"""Track records as of a day over 75,000 scores: the bar is 60 ms at p95."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from imem.credibility.settling import settle_tracks
from imem.credibility.track_record import track_pairs, track_records
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf, AsOfClock
from tests.bench.table import Figure, Table, percentile
from tests.credibility.conftest import HALFLIFE, World, world

__all__ = ["world"]

BAR_MS = 60.0
READS = 100
AGENTS = 40
START = datetime(2024, 10, 1, tzinfo=UTC)
END = datetime(2026, 3, 1, tzinfo=UTC)

GENERATE = """
INSERT INTO agent_outcome (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, happened, y, abstained, brier, log_score, reference, first_known_at, known_at, superseded_known_at,
    recorded_at, superseded_recorded_at)
SELECT 'f' || q || '/' || a, v, 0, 'o' || q || '/' || v, 'agent-' || a, 'domain-' || (q %% %(domains)s),
    'market:' || q, 'up', t, t - interval '10 days', p, o, o, ((p > 0.5) = (o = 1))::int, false, (p - o) ^ 2, 0.5,
    0.4, t + interval '4 days', t + interval '4 days' + v * interval '196 days',
    CASE v WHEN 0 THEN t + interval '200 days' END, imem_now() + v * interval '1 second',
    CASE v WHEN 0 THEN imem_now() + interval '1 second' END
FROM (
    SELECT q, a, v, %(start)s::timestamptz + (q %% %(days)s) * interval '7 hours' AS t,
        0.01 + 0.98 * (abs(hashint8(q * 64 + a)) %% 1000) / 1000.0 AS p, abs(hashint4(q * 2 + v)) %% 2 AS o
    FROM generate_series(1, %(questions)s) AS q, generate_series(1, %(agents)s) AS a, generate_series(0, 1) AS v
) AS g
"""


@pytest.mark.bench
@pytest.mark.parametrize(("domains", "days"), [(1, 52), (12, 1875)], ids=["one domain", "12 domains"])
async def test_track_records_as_of_a_day(world: World, table: Table, domains: int, days: int) -> None:
    """All agents at once in all domains, two vintages of each answer, as of any day on either clock."""
    values = {"domains": domains, "days": days, "start": START, "agents": AGENTS, "questions": 75_000 // AGENTS}
    await world.pipelines.rows(GENERATE + " RETURNING 1", values, deadline=Deadline.never())
    world.owner("VACUUM ANALYZE agent_outcome")
    world.owner("INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, now() FROM agent_outcome")
    begun = time.perf_counter()
    while (await settle_tracks(world.pipelines, halflife_years=HALFLIFE)).tracks:
        pass
    made_s = time.perf_counter() - begun
    pairs = await track_pairs(world.database, None, deadline=Deadline.never())
    assert len(pairs) == AGENTS * domains

    taken_ms = []
    for number in range(READS):
        moment = START + (END - START) * number / READS + timedelta(days=20)
        clock = AsOfClock.RECORDED if number % 2 else AsOfClock.KNOWN
        begun = time.perf_counter()
        answer = await track_records(
            world.database, pairs, AsOf(moment, clock), halflife_years=HALFLIFE, deadline=Deadline.after_ms(2000)
        )
        taken_ms.append((time.perf_counter() - begun) * 1000)
        assert len(answer.records) == len(pairs)

    data = f"{len(pairs)} of 75,000"
    note = f"all of them at once, on either clock; steps of 150,000 rows made in {made_s:.1f} s ({data})"
    table.add(
        Figure(name="track records p50", data=data, value=percentile(taken_ms, 0.5), unit="ms"),
        Figure(name="track records p95", data=data, value=percentile(taken_ms, 0.95), unit="ms", bar=BAR_MS, note=note),
    )


ONE_MORE = """
INSERT INTO agent_outcome (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, happened, y, abstained, brier, log_score, reference, first_known_at, known_at, recorded_at)
SELECT 'more/' || %(number)s, 0, 0, 'o', 'agent-1', 'domain-0', 'market:more', 'up',
    %(at)s::timestamptz - interval '4 days',
    %(at)s::timestamptz - interval '14 days', 0.8, 1, 1, 1, false, 0.04, 0.2, 0.4, %(at)s, %(at)s, imem_now()
RETURNING recorded_at
"""

DUE = """
INSERT INTO track_due (agent, domain, since, known_from, recorded_from)
VALUES ('agent-1', 'domain-0', imem_now(), %(at)s, %(recorded_at)s)
"""


@pytest.mark.bench
async def test_one_score_into_a_long_record(world: World, table: Table) -> None:
    """A score that comes in order costs one step, not a scan of everything before it."""
    values = {"domains": 1, "days": 5000, "start": START, "agents": 1, "questions": 10_000}
    await world.pipelines.rows(GENERATE + " RETURNING 1", values, deadline=Deadline.never())
    world.owner("VACUUM ANALYZE agent_outcome")
    world.owner("INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, now() FROM agent_outcome")
    begun = time.perf_counter()
    await settle_tracks(world.pipelines, halflife_years=HALFLIFE)
    full_ms = (time.perf_counter() - begun) * 1000
    world.owner("VACUUM ANALYZE track_step")
    taken_ms = []
    for number in range(READS):
        at = START + timedelta(days=2000, hours=number)
        [row] = await world.pipelines.rows(ONE_MORE, {"number": number, "at": at}, deadline=Deadline.never())
        await world.pipelines.rows(
            DUE + " RETURNING 1", {"at": at, "recorded_at": row["recorded_at"]}, deadline=Deadline.never()
        )
        begun = time.perf_counter()
        assert (await settle_tracks(world.pipelines, halflife_years=HALFLIFE)).tracks == 1
        taken_ms.append((time.perf_counter() - begun) * 1000)
    note = f"one transaction of the settle step, on both clocks; in full it takes {full_ms:,.0f} ms"
    table.add(
        Figure(
            name="one score into a record of 10,000 p50", data="20,000 scores", value=percentile(taken_ms, 0.5),
            unit="ms", bar=10, note=note,
        ),
        Figure(
            name="one score into a record of 10,000 p95", data="20,000 scores", value=percentile(taken_ms, 0.95),
            unit="ms",
        ),
    )  # fmt: skip
