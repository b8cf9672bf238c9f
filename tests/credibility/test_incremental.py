"""Track records kept up to date score by score: the same as in full, whatever the order, and each counted once."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility import store
from imem.credibility.observations import ObservationClaim
from imem.credibility.reconcile import MISMATCH, reconcile
from imem.credibility.settling import alone, recompute_track_record, settle_tracks
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import track_records
from imem.credibility.track_steps import (
    RecordSteps,
    ScoredClaim,
    SweepStart,
    span_of,
    steps_after,
    steps_of,
)
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, AsOfClock
from tests.servers import cloned

from .conftest import HALFLIFE, World, agent, corrected, finding, market, opened, outcome, reading
from .load import day
from .test_tracks import histories

STEPS = "SELECT * FROM track_step ORDER BY agent, domain, clock, at"
CELLS = "SELECT * FROM track_cell ORDER BY agent, domain, clock, at, context"


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made


# Pure


def start_at(stored: RecordSteps, scores: list[ScoredClaim], clock: AsOfClock, place: int) -> SweepStart:
    """Return what is stored and asked for when a sweep goes on after one of its steps."""
    step = stored.steps[place]
    observations: dict[Any, dict[str, ObservationClaim]] = {}
    for score in scores:
        one = span_of(score, clock)
        if one is not None and score.y is not None and one.start <= step.at and (one.end is None or one.end > step.at):
            member = ObservationClaim(
                score.y, score.happened, score.brier, score.reference, score.context, score.error, score.peer_loss,
                (score.target_at - score.predicted_at).total_seconds(), score.question,
            )  # fmt: skip
            observations.setdefault(score.target_at, {})[score.finding_id] = member
    rates = {
        score.finding_id: base_rate(scores, clock, score.finding_id) for score in scores if score.brier is not None
    }
    cells = {one.cell.context: one for one in stored.cells if one.at <= step.at}
    return SweepStart(step, observations, rates, cells)


def resumed(stored: RecordSteps, scores: list[ScoredClaim], clock: AsOfClock, place: int) -> RecordSteps:
    """Return the steps that were stored up to one of them, and those of a sweep that goes on from there."""
    start = start_at(stored, scores, clock, place)
    at = start.step.at
    later = [
        score
        for score in scores
        if (span := span_of(score, clock)) is not None and max(span.start, span.end or span.start) > at
    ]
    found = steps_after(start, later, clock, HALFLIFE)
    kept = [step for step in stored.cells if step.at <= at]
    observed = [step for step in stored.observations if step.at <= at]
    return RecordSteps(
        [*stored.steps[: place + 1], *found.steps], [*kept, *found.cells], [*observed, *found.observations]
    )


def base_rate(scores: list[ScoredClaim], clock: AsOfClock, finding_id: str) -> float:
    spans = [(span, score) for score in scores if (span := span_of(score, clock)) is not None]
    first, claim = min(
        ((span.start, score) for span, score in spans if score.finding_id == finding_id and score.brier is not None),
        key=lambda one: one[0],
    )
    known = [
        score.happened for span, score in spans
        if score.happened is not None and span.start <= first and (span.end is None or span.end > first)
        and score.first_known_at < claim.predicted_at
    ]  # fmt: skip
    return (0.5 + sum(known)) / (1.0 + len(known))


@pytest.mark.spec("PF-10")
@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(0, 40))
def test_a_sweep_that_goes_on_is_the_whole_one(scores: list[ScoredClaim], place: int) -> None:
    """From any step on, with what stands there alone, the steps are the same to the last bit."""
    for clock in AsOfClock:
        full = steps_of(scores, clock, HALFLIFE)
        if full.steps:
            assert resumed(full, scores, clock, place % len(full.steps)) == full


@pytest.mark.spec("CR-15")
@settings(max_examples=300, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_scores_may_come_in_any_order(scores: list[ScoredClaim], chance: random.Random) -> None:
    """Each goes on from the last step before it; in the end all sums are those of one sweep, to the last bit."""
    chance.shuffle(scores)
    for clock in AsOfClock:
        kept, there = RecordSteps([], [], []), []
        for score in scores:
            there.append(score)
            since = span_of(score, clock)
            assert since is not None
            place = sum(step.at < since.start for step in kept.steps)
            kept = resumed(kept, there, clock, place - 1) if place else steps_of(there, clock, HALFLIFE)
        assert kept == steps_of(scores, clock, HALFLIFE)


# In the journal


def facts(seed: int, count: int = 14) -> list[dict[str, Any]]:
    """
    Return claims of two agents beside a baseline, their answers, revisions and corrections, in no order.

    The sectors of half the questions and the regime of the market become known while claims are made.
    """
    chance = random.Random(seed)
    lines = [agent("base", day(0), "baseline")]
    regimes = ("NORMAL", "HIGH_VOLATILITY")
    lines += [reading(f"r{number}", day(1 + 2 * number), chance.choice(regimes)) for number in range(5)]
    for number in range(count):
        subject = {"subject_id": f"market:q{number}"}
        target = day(10 + number % 5)
        if number % 2:
            sector = chance.choice(["Health", "Energy"])
            lines.append(market(f"q{number}", day(chance.randrange(9)), sector=sector))
        for name in ("ann", "bob", "base"):
            said = chance.choice([0.1, 0.3, 0.5, 0.8, 0.9])
            known = day(1 + chance.randrange(8))
            line = finding(f"{name}-{number}", known, target, agent=name, probability=said, **subject)
            lines.append(line)
            if chance.random() < 0.15:
                lines.append(corrected(line, day(9), probability=chance.choice([0.2, 0.7])))
        answer = outcome(f"o{number}", day(16 + chance.randrange(20)), target, float(chance.randrange(2)), **subject)
        lines.append(answer)
        if chance.random() < 0.4:
            later = day(40 + chance.randrange(20))
            lines.append(outcome(f"o{number}/1", later, target, float(chance.randrange(2)), vintage=1, **subject))
    corrections = [line for line in lines if "correct" in line]
    plain = [line for line in lines if "correct" not in line]
    chance.shuffle(plain)
    return [*plain, *corrections]


async def steps_stored(world: World) -> list[dict[str, Any]]:
    """Return the steps of records and of their cells."""
    return [*await world.rows(STEPS), *await world.rows(CELLS)]


async def in_full(world: World) -> list[dict[str, Any]]:
    """Return the steps as they are when everything is computed from the scores anew."""
    world.owner("DELETE FROM track_step")
    world.owner("DELETE FROM track_cell")
    pairs = await world.rows("SELECT DISTINCT agent, domain FROM agent_outcome")
    async with alone(world.pipelines, wait=True) as conn:
        for row in pairs:
            await recompute_track_record(conn, TrackRecordKey(row["agent"], row["domain"]), HALFLIFE)
    return await steps_stored(world)


@pytest.mark.spec("PF-10", "CR-15")
@pytest.mark.parametrize("seed", range(5))
async def test_whatever_the_order_of_arrival(world: World, seed: int) -> None:
    """
    ScoredClaim after every few statements, the record is that of a computation in full, to 1e-9 and in fact exactly.
    """
    chance = random.Random(seed)
    lines = facts(seed)
    while lines:
        few = chance.randrange(1, 6)
        await world.say(*lines[:few])
        lines = lines[few:]
        await world.settle()
    kept = await steps_stored(world)
    full = await in_full(world)
    assert len(kept) > 20
    assert len({row["context"] for row in kept if "context" in row}) >= 4
    assert [list(row) for row in kept] == [list(row) for row in full]
    for one, other in zip(kept, full, strict=True):
        for name, value in one.items():
            assert value == (pytest.approx(other[name], abs=1e-9) if isinstance(value, float) else other[name]), name
    assert kept == full


async def test_what_comes_in_order_costs_its_own_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the scores nor the steps of before are read again."""
    for number in range(12):
        subject = {"subject_id": f"market:q{number}"}
        await world.say(
            finding(f"ann-{number}", day(number), day(20 + number), probability=0.8, **subject),
            outcome(f"o{number}", day(40 + number), day(20 + number), 1.0, **subject),
        )
        if number == 0:
            await world.settle()

            async def refuse(*_: Any) -> list[Any]:
                raise AssertionError("Everything was read again.")

            monkeypatch.setattr("imem.credibility.store.scores_of", refuse)
        else:
            await world.settle()
    steps = await steps_stored(world)
    monkeypatch.undo()
    assert steps == await in_full(world)


@pytest.mark.parametrize(("later", "whole"), [(4, 0), (9, 1)])
async def test_many_scores_in_order_cost_their_own_steps(
    world: World, monkeypatch: pytest.MonkeyPatch, later: int, whole: int
) -> None:
    """More than always resume, and few beside those before: a load in parts reads no record from its beginning."""
    monkeypatch.setattr("imem.credibility.store.MOST_RESUMED", 2)
    claims = [finding(f"f{nth}", day(1), day(2 + nth), probability=0.8) for nth in range(10 + later)]
    outcomes = [outcome(f"o{nth}", day(2 + nth), day(2 + nth), float(nth % 2)) for nth in range(10 + later)]
    await world.say(*claims, *outcomes[:10])
    await world.settle()
    read = 0
    scores_of = store.scores_of

    async def counted(*given: Any) -> list[ScoredClaim]:
        nonlocal read
        read += 1
        return await scores_of(*given)

    monkeypatch.setattr("imem.credibility.store.scores_of", counted)
    await world.say(*outcomes[10:])
    assert (await world.settle()).tracks == 1
    assert read == whole
    resumed_to = await steps_stored(world)
    async with alone(world.pipelines) as conn:
        again = await recompute_track_record(conn, TrackRecordKey("ann", "flu"), HALFLIFE)
    assert (again.steps, await steps_stored(world)) == (0, resumed_to)


async def test_long_records_take_their_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep may outlast the idle limit of a connection; a transaction that has swept for long leaves the rest due."""
    await world.say(*facts(3))
    await world.settle()
    wanted = await steps_stored(world)
    world.owner("INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, now() FROM track_step")
    records = len(await world.rows("SELECT FROM track_due"))
    assert records > 1

    def slow(*given: Any) -> RecordSteps:
        time.sleep(0.2)  # A sweep of a long record: it computes, and the connection idles meanwhile.
        return steps_of(*given)

    monkeypatch.setattr("imem.credibility.settling.steps_of", slow)
    monkeypatch.setattr("imem.credibility.settling.TRACKS_MS", 0.0)
    hurried = Database(world.pipeline_url, options="-c idle_in_transaction_session_timeout=50ms")
    try:
        for left in reversed(range(records)):
            assert (await settle_tracks(hurried, halflife_years=HALFLIFE)).tracks == 1
            assert len(await world.rows("SELECT FROM track_due")) == left
    finally:
        await hurried.close()
    assert await steps_stored(world) == wanted


@pytest.mark.spec("PF-11", "CR-16")
async def test_the_same_decision_twice_changes_nothing(world: World) -> None:
    """The same statements again, and the same work again, leave every number and every row as it is."""
    lines = facts(3)
    await world.say(*lines)
    await world.settle()
    before = await places(world)
    await world.say(*[line for line in lines if "correct" not in line])
    await world.settle()
    world.owner(
        "INSERT INTO due_row (queue, kind, key) SELECT DISTINCT 'credibility', kind, key FROM record_head"
        " WHERE kind IN ('Finding', 'Outcome') AND metric IS NOT NULL"
    )
    world.owner(
        "INSERT INTO track_due (agent, domain, since, known_from, recorded_from)"
        " SELECT agent, domain, imem_now(), max(at) FILTER (WHERE clock = 'known'),"
        " max(at) FILTER (WHERE clock = 'recorded') FROM track_step GROUP BY 1, 2"
    )
    await world.settle()
    assert await places(world) == before


async def places(world: World) -> list[dict[str, Any]]:
    """Return all steps with where each is stored: a row that is written again is stored elsewhere."""
    return [
        *await world.rows("SELECT s.*, s.ctid::text AS place FROM track_step AS s ORDER BY agent, domain, clock, at"),
        *await world.rows(
            "SELECT s.*, s.ctid::text AS place FROM track_cell AS s ORDER BY agent, domain, clock, at, context"
        ),
    ]


async def test_a_mismatch_is_mended_and_told(world: World) -> None:
    """The full value wins; people are told of more than 1e-6, and of nothing less."""
    await world.say(*facts(1))
    await world.settle()
    wanted = await steps_stored(world)
    world.owner("UPDATE track_step SET weight = weight + 1e-9 WHERE agent = 'ann' AND clock = 'known'")
    assert (await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)).differing == 1
    assert await world.rows("SELECT kind FROM workflow.alert") == []
    world.owner("UPDATE track_step SET weight = weight + 1e-5 WHERE agent = 'ann' AND clock = 'known'")
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert report.deviation == pytest.approx(1e-5)
    assert await steps_stored(world) == wanted
    [alert] = await world.rows("SELECT kind, severity, payload FROM workflow.alert")
    assert (alert["kind"], alert["severity"]) == (MISMATCH, "HIGH")
    assert "ann in flu" in alert["payload"]["reason"]
    world.owner("UPDATE track_cell SET successes = successes + 1e-5 WHERE agent = 'bob' AND clock = 'known'")
    world.owner("DELETE FROM track_cell WHERE agent = 'ann' AND clock = 'recorded'")
    assert (await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)).tracks == {
        TrackRecordKey("ann", "flu"), TrackRecordKey("bob", "flu")
    }  # fmt: skip
    assert await steps_stored(world) == wanted


async def test_effective_observations(world: World) -> None:
    """Old ones weigh less: many of different age are worth fewer of one age, and never more than there are."""
    await world.say(*facts(2))
    await world.settle()
    at = AsOf(day(100), AsOfClock.KNOWN)
    found = await track_records(
        world.database, [("ann", "flu")], at, halflife_years=HALFLIFE, deadline=Deadline.never()
    )
    [record] = found.records
    assert 0.9 * record.n < record.effective_n <= record.n
