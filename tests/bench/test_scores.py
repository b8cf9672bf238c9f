"""One outcome into the scores among few and among very many, and the publication of all scores of an institution."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest

from imem.credibility.publication import publish_scores
from imem.credibility.regimes.runs import advance
from imem.credibility.settling import settle_questions, settle_tracks
from imem.journal.deadline import Deadline
from tests.bench.table import Figure, Table, percentile
from tests.credibility.conftest import HALFLIFE, World, finding, opened, outcome, world
from tests.servers import cloned

__all__ = ["world"]

pytestmark = pytest.mark.bench

TINY: Final = os.environ.get("IMEM_BENCH_SCALE") == "tiny"
FEW: Final = 10_000
MANY: Final = int(os.environ.get("IMEM_BENCH_SCORES", "40000" if TINY else "1000000"))
"""Scores in the two memories; the larger one is filled with ten million by ``IMEM_BENCH_SCORES=10000000``, in 27 GB."""

PANEL: Final = 2
"""Agents who answer each question."""

RECORDS: Final = 4 if TINY else 100
"""Agents of the larger memory: its records are longer, and there are more of them."""

OUTCOMES: Final = 20 if TINY else 300
MOST_GROWTH: Final = 1.2

START: Final = datetime(2012, 1, 1, tzinfo=UTC)
LATER: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""After the last answer that stands."""

GENERATE = """
INSERT INTO agent_outcome (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, happened, y, abstained, brier, log_score, error, peer_loss, metric_type, time_horizon, first_known_at,
    known_at, recorded_at)
SELECT 'f' || q || '/' || a || '/' || d, 0, 0, 'o' || q, 'agent-' || a, 'domain-' || d, 'market:' || q, 'up', t,
    t - interval '10 days', p, o, o, ((p > 0.5) = (o = 1))::int, false, (p - o) ^ 2, 0.5, p - o, 0.2, 'binary', 'month',
    t + interval '1 day', t + interval '1 day', t + interval '1 day'
FROM (
    SELECT q, a, d, %(start)s::timestamptz + q * interval '10 years' / %(questions)s AS t,
        0.01 + 0.98 * (abs(hashint8(q * 64 + a)) %% 1000) / 1000.0 AS p, abs(hashint4(q)) %% 2 AS o
    FROM generate_series(1, %(agents)s) AS a, generate_series(1, %(domains)s) AS d,
        generate_series(1, %(questions)s) AS q
) AS g
"""

COPIES = (
    """
    INSERT INTO track_step (
        agent, domain, clock, at, halflife_years, observations, scored, correct, abstained, weight, successes,
        probabilities, brier_sum, log_sum, base_sum, common, common_sum, reference_sum, squares, common_squares,
        common_cross, reference_squares, own_sum, own_squares, own_cross, base_squares, answers, happened)
    SELECT 'agent-' || a, 'domain-' || d, s.clock, s.at, s.halflife_years, s.observations, s.scored, s.correct,
        s.abstained, s.weight, s.successes, s.probabilities, s.brier_sum, s.log_sum, s.base_sum, s.common, s.common_sum,
        s.reference_sum, s.squares, s.common_squares, s.common_cross, s.reference_squares, s.own_sum, s.own_squares,
        s.own_cross, s.base_squares, s.answers, s.happened
    FROM generate_series(1, %(agents)s) AS a, generate_series(1, %(domains)s) AS d, track_step AS s
    WHERE s.agent = 'agent-1' AND s.domain = 'domain-1' ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO track_cell
    SELECT 'agent-' || a, 'domain-' || d, s.clock, s.context, s.at, s.halflife_years, s.weight, s.successes, s.squares,
        s.observations, s."right", s.rows, s.newest_resolved_at
    FROM generate_series(1, %(agents)s) AS a, generate_series(1, %(domains)s) AS d, track_cell AS s
    WHERE s.agent = 'agent-1' AND s.domain = 'domain-1' ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO observation_step
    SELECT 'agent-' || a, 'domain-' || d, s.clock, s.at, s.target_at, s.context, s.rows, s.loss, s.peer_loss, s.error,
        s.ahead
    FROM generate_series(1, %(agents)s) AS a, generate_series(1, %(domains)s) AS d, observation_step AS s
    WHERE s.agent = 'agent-1' AND s.domain = 'domain-1' ON CONFLICT DO NOTHING
    """,
)
"""The steps of all other records are those of the first: they are there to be many."""

DUE = """
INSERT INTO track_due (agent, domain, since) SELECT 'agent-' || a, 'domain-1', now() FROM generate_series(1, %s) AS a
"""

BARE_SCORE = """
INSERT INTO agent_outcome (
    finding_id, vintage, revision, outcome_id, agent, domain, subject_id, metric, target_at, predicted_at, stated,
    actual, abstained, first_known_at, known_at)
SELECT 'bare' || %(number)s || '/' || a, 0, 0, 'o', 'bare', 'bare', 'market:bare', 'up', now(), now(), 0.8, 1, true,
    now(), now()
FROM generate_series(1, 2) AS a
RETURNING 1
"""


async def filled(world: World, questions: int, *, agents: int, domains: int = 1, computed: int = PANEL) -> None:
    """Fill tables with the records of so many agents in so many domains; in the first domain some are *computed*."""
    many = {"agents": agents, "domains": domains}
    with psycopg.connect(world.admin_url, autocommit=True) as conn:
        conn.execute(GENERATE, {**many, "start": START, "questions": questions})
        conn.execute("VACUUM ANALYZE agent_outcome")
        conn.execute(DUE, (computed,))
    while (await settle_tracks(world.pipelines, halflife_years=HALFLIFE)).tracks:
        pass
    with psycopg.connect(world.admin_url, autocommit=True) as conn:
        for statement in COPIES:
            conn.execute(statement, many)
        conn.execute("VACUUM ANALYZE track_step, track_cell, observation_step")


async def asked(world: World) -> None:
    """State what the panel says about the questions that are to be answered."""
    for number in range(OUTCOMES):
        target = LATER + number * timedelta(hours=7)
        more = {"domain": "domain-1", "subject_id": f"market:later-{number}", "probability": 0.8}
        known = target - timedelta(days=10)
        await world.say(
            *(finding(f"later-{number}/{a}", known, target, agent=f"agent-{a}", **more) for a in range(1, PANEL + 1))
        )
    await world.settle()


async def answered(world: World, number: int) -> tuple[float, float]:
    """Answer a question; return how long that takes into both agents' scores and sums, and a bare insert, in ms."""
    target = LATER + number * timedelta(hours=7)
    await world.say(outcome(f"late-{number}", target, target, number % 2, subject_id=f"market:later-{number}"))
    begun = time.perf_counter()
    scores = await settle_questions(world.pipelines)
    tracks = await settle_tracks(world.pipelines, halflife_years=HALFLIFE)
    taken = time.perf_counter() - begun
    assert (scores.scores, tracks.tracks) == (PANEL, PANEL)
    begun = time.perf_counter()
    await world.pipelines.rows(BARE_SCORE, {"number": number}, deadline=Deadline.never())
    return taken * 1000, (time.perf_counter() - begun) * 1000


async def test_one_outcome_among_many(stack: Any, template: str, table: Table) -> None:
    """An outcome that comes in order costs as much among very many, in much longer records, as among few."""
    with (
        cloned(stack.settings, template) as (url, admin_url),
        cloned(stack.settings, template) as (other_url, other_admin_url),
    ):
        async with (
            opened(stack.settings, url, admin_url) as few,
            opened(stack.settings, other_url, other_admin_url) as many,
        ):
            taken: dict[int, list[tuple[float, float]]] = {FEW: [], MANY: []}
            worlds = ((FEW, few, PANEL), (MANY, many, RECORDS))
            begun = time.perf_counter()
            for scores, world, agents in worlds:
                await filled(world, scores // agents, agents=agents)
                await asked(world)
            made_s = time.perf_counter() - begun
            # By turns, so that whatever else the machine does weighs on both.
            for number in range(OUTCOMES):
                for scores, world, _ in worlds:
                    taken[scores].append(await answered(world, number))
    note = (
        f"both claims scored, and both records swept on both clocks; filled in {made_s:.0f} s; beside one bare insert"
    )
    medians = []
    for scores, found in taken.items():
        data = f"{scores:,} scores"
        warm, alone = zip(*found[OUTCOMES // 10 :], strict=True)
        medians.append(percentile(warm, 0.5))
        for share, name in ((0.5, "p50"), (0.95, "p95")):
            table.add(
                Figure(
                    name=f"one outcome into the scores {name}", data=data, value=percentile(warm, share), unit="ms",
                    floor=percentile(alone, share), note=note,
                )
            )  # fmt: skip
    growth = medians[1] / medians[0]
    table.add(
        Figure(
            name="one outcome into the scores p50, growth", data=f"{MANY:,} / {FEW:,}", value=growth, unit="×",
            bar=MOST_GROWTH, note=f"records of {MANY // RECORDS:,} beside those of {FEW // PANEL:,}",
        )
    )  # fmt: skip


# Publication

AGENTS: Final = 40 if TINY else 1_000
DOMAINS: Final = 20
EACH: Final = 12
"""Outcomes of each record."""

MOST_STALE_S: Final = 300.0
"""How long after the run began 99 of 100 scores may be those of the regime before."""

BARE_READ = """
SELECT w.agent, w.domain, s.*, r.mean
FROM unnest(%(agents)s::text[], %(domains)s::text[]) AS w (agent, domain)
CROSS JOIN LATERAL (
    SELECT t.weight, t.successes, t.squares FROM track_step AS t
    WHERE t.agent = w.agent AND t.domain = w.domain AND t.clock = 'known' ORDER BY t.at DESC LIMIT 1
) AS s
CROSS JOIN LATERAL (
    SELECT avg(o.y) AS mean FROM (
        SELECT y FROM agent_outcome WHERE agent = w.agent AND domain = w.domain ORDER BY target_at DESC LIMIT 10
    ) AS o
) AS r
"""

BARE_WRITE = """
INSERT INTO bare_score SELECT * FROM unnest(%(agents)s::text[], %(domains)s::text[], %(scores)s::float8[]) RETURNING 1
"""

BATCH: Final = 200


async def test_all_scores_are_published(world: World, table: Table) -> None:
    """A run of the regime publishes every score anew; the floor reads the same sums and writes one number of each."""
    await filled(world, EACH, agents=AGENTS, domains=DOMAINS, computed=1)
    with psycopg.connect(world.admin_url, autocommit=True) as conn:
        conn.execute("DELETE FROM due_row WHERE queue = 'scores'")
        conn.execute("CREATE TABLE bare_score (agent text, domain text, score float8, PRIMARY KEY (agent, domain))")
        conn.execute("GRANT INSERT, SELECT ON bare_score TO PUBLIC")
        conn.execute("VACUUM ANALYZE")
    await advance(world.pipelines, world.engine, None, until=Deadline.after_ms(60_000))

    begun = time.perf_counter()
    done = await publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=Deadline.never())
    taken_s = time.perf_counter() - begun
    assert (done.scores, done.more, done.stuck) == (AGENTS * DOMAINS, False, 0)

    begun = time.perf_counter()
    pairs = [(f"agent-{a}", f"domain-{d}") for a in range(1, AGENTS + 1) for d in range(1, DOMAINS + 1)]
    for first in range(0, len(pairs), BATCH):
        agents, domains = map(list, zip(*pairs[first : first + BATCH], strict=True))
        of = {"agents": agents, "domains": domains}
        found = await world.pipelines.rows(BARE_READ, of, deadline=Deadline.never())
        scores = [(row["successes"] + 0.5) / (row["weight"] + 1.0) for row in found]
        written = {
            "agents": [row["agent"] for row in found],
            "domains": [row["domain"] for row in found],
            "scores": scores,
        }
        await world.pipelines.rows(BARE_WRITE, written, deadline=Deadline.never())
    bare_s = time.perf_counter() - begun
    table.add(
        Figure(
            name="publication of all scores", data=f"{AGENTS:,} × {DOMAINS}", value=taken_s, unit="s", floor=bare_s,
            bar=MOST_STALE_S,
            note="records of the journal with their histories and audit, as of now and of a week ago; the floor reads "
            "the newest sums and the last ten outcomes and writes one number of each score",
        )
    )  # fmt: skip
