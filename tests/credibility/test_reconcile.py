"""The nightly recomputation finds what was changed behind the pipeline's back, says so, and mends it."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from imem.credibility.reconcile import reconcile
from imem.credibility.settling import SettlementResult, settle_due

from .conftest import HALFLIFE, World, agent, corrected, finding, market, outcome, reading
from .load import day, lines

STATE = (
    "SELECT * FROM agent_outcome ORDER BY finding_id, vintage, revision",
    "SELECT * FROM track_step ORDER BY agent, domain, clock, at",
    "SELECT * FROM track_cell ORDER BY agent, domain, clock, at, context",
)


async def state(world: World) -> list[list[dict[str, object]]]:
    found = [await world.rows(query) for query in STATE]
    for row in found[0]:
        del row["scored_at"]
    return found


async def test_nothing_differs_after_settling(world: World) -> None:
    await world.say(*lines(4))
    await world.settle()

    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    assert (report.differing, report.questions, report.track_records, report.decisions) == (0, 4, 3, 4)
    (row,) = await world.rows("SELECT scores, differing, finished_at >= started_at AS ended FROM reconciliation_report")
    assert row == {"scores": report.scores, "differing": 0, "ended": True}


async def test_a_difference_is_reported_and_mended(world: World) -> None:
    """A flipped score, a lost one, one of another context, an invented one, a bent record and a lost verdict."""
    await world.say(*lines(4))
    await world.settle()
    before = await state(world)
    world.owner("UPDATE agent_outcome SET y = 1 - y, brier = 0 WHERE finding_id = 'ann-1' AND vintage = 0")
    world.owner("DELETE FROM agent_outcome WHERE finding_id = 'ann-2'")
    world.owner("UPDATE agent_outcome SET sector = 'Where I am right' WHERE finding_id = 'bob-1'")
    world.owner(
        "INSERT INTO agent_outcome SELECT (jsonb_populate_record(o, "
        '\'{"finding_id": "ghost", "subject_id": "market:ghost"}\')).* '
        "FROM agent_outcome AS o WHERE finding_id = 'ann-3'"
    )
    world.owner("UPDATE track_step SET correct = correct + 1 WHERE agent = 'base' AND clock = 'known'")

    with structlog.testing.capture_logs() as logs:
        report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    assert report.findings == {"ann-1", "ann-2", "bob-1", "ghost"}
    assert ("base", "flu") in report.tracks
    assert await state(world) == before
    (row,) = await world.rows("SELECT differing, details FROM reconciliation_report")
    assert row["differing"] == report.differing
    assert row["details"]["findings"] == ["ann-1", "ann-2", "bob-1", "ghost"]
    assert [log["log_level"] for log in logs if log["event"] == "credibility.differed"] == ["warning"]
    again = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert again.differing == 0


async def test_a_verdict_that_nobody_asked_for_is_given(world: World) -> None:
    """A due row that was lost (or an event of a program that knew no verdicts) is found again at night."""
    await world.say(*lines(2))
    world.owner("DELETE FROM due_row WHERE queue = 'credibility'")

    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    # The scores made at night make their decisions due, so that only what was due by nobody is a difference.
    assert report.findings == {f"{name}-{number}" for name in ("ann", "bob", "base") for number in range(2)}
    (count,) = await world.rows(
        "SELECT count(*) AS verdicts FROM event WHERE kind = 'record.Decision' AND payload ? 'groups'"
    )
    assert count["verdicts"] == 4
    assert await world.rows("SELECT FROM due_row WHERE queue = 'credibility' UNION ALL SELECT FROM track_due") == []


async def test_what_is_due_is_no_difference(world: World) -> None:
    await world.say(*lines(1))
    await world.settle()
    await world.say(
        finding("new", day(1), day(5), probability=0.1, subject_id="market:0"),
        outcome("o2", day(200), day(5), 1.0, vintage=2, subject_id="market:0"),
    )

    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    assert report.differing == 0
    (count,) = await world.rows("SELECT count(*) AS scores FROM agent_outcome WHERE finding_id = 'new'")
    assert count["scores"] > 0


async def test_what_is_said_meanwhile_is_no_difference(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of an agent, a subject or the regime: what follows from that is not scored yet, and nothing is wrong."""
    await world.say(*lines(4))
    await world.settle()
    meanwhile = [
        agent("bob", day(0), "baseline"), market("0", day(0), sector="Health"), reading("r", day(0), "NORMAL"),
        corrected(outcome("o1-1", day(96), day(6), 0.0, vintage=1, subject_id="market:1"), day(150), withdrawn=True),
    ]  # fmt: skip

    async def settled(*given: Any, **named: Any) -> SettlementResult:
        found = await settle_due(*given, **named)
        if meanwhile:
            await world.say(*meanwhile)
            meanwhile.clear()
        return found

    monkeypatch.setattr("imem.credibility.reconcile.settle_due", settled)
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    assert (report.findings, report.tracks, report.verdicts) == (set(), set(), set())
    assert await world.rows("SELECT FROM workflow.alert") == []
    described = await world.rows("SELECT DISTINCT finding_id, regime FROM agent_outcome WHERE sector IS NOT NULL")
    assert {(row["finding_id"], row["regime"]) for row in described} == {
        (f"{name}-0", "NORMAL") for name in ("ann", "bob", "base")
    }
    assert (await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)).differing == 0


async def test_another_half_life_is_no_difference(world: World) -> None:
    """Records are computed anew, and published; nobody is told that they were wrong."""
    await world.say(*lines(4))
    await world.settle()
    world.owner("DELETE FROM due_row WHERE queue = 'scores'")

    report = await reconcile(world.pipelines, world.engine, halflife_years=2 * HALFLIFE)

    assert (report.differing, report.deviation) == (0, 0.0)
    assert await world.rows("SELECT FROM workflow.alert") == []
    [stored] = await world.rows("SELECT DISTINCT halflife_years FROM track_step")
    assert stored["halflife_years"] == 2 * HALFLIFE
    due = await world.rows("SELECT key FROM due_row WHERE queue = 'scores' ORDER BY key")
    assert [row["key"] for row in due] == ["ann/flu", "base/flu", "bob/flu"]
