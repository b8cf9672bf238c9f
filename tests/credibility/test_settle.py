"""From statements in the journal to scores, links and verdicts, on a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from imem.credibility.reconcile import reconcile
from imem.credibility.settled_links import SettledBy
from imem.credibility.settling import SettlementLocked, SettlementResult, alone, settle_questions
from imem.jobs.due import finish_due, next_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.events.entry import AppendStatus
from imem.journal.settings import Role
from imem.kg.kinds import metrics as metrics_module
from imem.kg.kinds.enums import DecisionOutcome
from imem.kg.kinds.metrics import Metric, metric_of, register
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line

from .conftest import World, agent, cites, corrected, decision, finding, outcome, text

START = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = Actor("ann", Role.AGENT)
PERSON = Actor("eve", Role.HUMAN_ADMIN)
SCORES = """
    SELECT finding_id, vintage, revision, stated, actual, y, brier, reference, known_at, superseded_known_at,
        recorded_at, superseded_recorded_at, scored_at
    FROM agent_outcome ORDER BY finding_id, vintage, revision
"""


def day(number: float) -> datetime:
    return START + timedelta(days=number)


async def scores(world: World) -> list[dict[str, Any]]:
    return await world.rows(SCORES)


async def on_known(world: World) -> list[dict[str, Any]]:
    """Return the scores that ever stood on the known clock."""
    return [row for row in await scores(world) if row["known_at"] is not None]


async def verdicts(world: World, decision: str = "d") -> list[tuple[datetime, str]]:
    rows = await world.rows(
        "SELECT known_at, payload -> 'groups' -> 'outcome' ->> 'outcome' AS outcome FROM event "
        "WHERE kind = 'record.Decision' AND record_key = %s AND actor = 'credibility' ORDER BY known_at, position",
        decision,
    )
    return [(row["known_at"], row["outcome"]) for row in rows]


async def test_an_outcome_scores_the_claims_on_its_question(world: World) -> None:
    """Two vintages, three claims: before target, abstaining, too late; another question is untouched."""
    await world.say(
        finding("right", day(1), day(5), probability=0.2),
        finding("unsure", day(1), day(5), probability=0.5, agent="bob"),
        finding("late", day(1), day(5), probability=0.2, agent="cat"),
        finding("other", day(1), day(6), probability=0.2),
        outcome("o0", day(7), day(5), 0.0),
        outcome("o1", day(9), day(5), 1.0, vintage=1),
    )
    # The journal refuses a late claim; one that was made before it did may still stand there.
    for table in ("event", "record_history"):
        world.owner(f"ALTER TABLE {table} DISABLE TRIGGER append_only")
    world.owner("UPDATE event SET known_at = %s WHERE record_key = 'late'", day(5))
    world.owner("UPDATE record_history SET known_at = %s WHERE key = 'late'", day(5))

    done = await world.settle()

    found = await scores(world)
    assert [(row["finding_id"], row["vintage"], row["y"]) for row in found] == [
        ("right", 0, 1),
        ("right", 1, 0),
        ("unsure", 0, None),
        ("unsure", 1, None),
    ]
    assert found[0]["brier"] == pytest.approx(0.04)
    assert found[1]["brier"] == pytest.approx(0.64)
    assert (found[0]["known_at"], found[0]["superseded_known_at"]) == (day(7), day(9))
    assert (found[1]["known_at"], found[1]["superseded_known_at"]) == (day(9), None)
    # Both vintages were recorded in one transaction, so that the first never stood on the recorded clock.
    assert (found[0]["recorded_at"], found[1]["superseded_recorded_at"]) == (None, None)
    assert done.scores == 4
    assert await world.rows("SELECT FROM due_row WHERE queue = 'credibility' UNION ALL SELECT FROM track_due") == []


async def test_settling_again_changes_nothing(world: World) -> None:
    await world.say(finding("f", day(1), day(5), probability=0.2), outcome("o", day(7), day(5), 0.0))
    await world.settle()
    before = await scores(world)
    world.owner(
        "INSERT INTO due_row (queue, kind, key)"
        " VALUES ('credibility', 'Outcome', 'o'), ('credibility', 'Finding', 'f'), ('credibility', 'Finding', 'f')"
    )

    done = await world.settle()

    assert (done.due, done.scores, done.tracks) == (3, 0, 0)
    assert await scores(world) == before


async def test_a_claim_that_arrives_after_its_outcome_is_scored_on_arrival(world: World) -> None:
    await world.say(outcome("o", day(7), day(5), 0.0))
    assert (await world.settle()).scores == 0
    (receipt,) = await world.say(finding("f", day(1), day(5), probability=0.2))

    await world.settle()

    (row,) = await scores(world)
    assert row["known_at"] == day(7)
    assert row["recorded_at"] == receipt.recorded_at


async def test_an_outcome_is_refused_before_the_moment_that_it_speaks_of(world: World) -> None:
    """Whoever states it, and whether he says when it was known or not: nobody can know it yet."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await world.say(finding("f", day(1), tomorrow, probability=0.9))
    core = outcome("o", datetime.now(UTC), tomorrow, 1.0)["core"]
    entry = entry_of(parse_line(orjson.dumps({"record": "Outcome", "core": core}), needs_known_at=False))
    for actor in (PERSON, AGENT):
        (receipt,) = await world.gateway.append([entry], actor=actor, deadline=Deadline.never())
        assert receipt.verdict is AppendStatus.PREMATURE
    with pytest.raises(BadInput) as refused:
        await world.say({"record": "Outcome", "core": core, "known_at": day(3).isoformat()})
    assert refused.value.field == "known_at"

    await world.settle()
    assert await scores(world) == []


async def test_an_agent_cannot_grade_itself(world: World) -> None:
    """An agent's own outcome settles nothing, until the same is imported; a person's settles."""
    now = datetime.now(UTC)
    await world.say(finding("f", day(1), day(5), probability=0.9), finding("g", day(1), day(6), probability=0.9))
    core = outcome("o", now, day(5), 1.0)["core"]
    await world.say({"record": "Outcome", "core": core}, actor=AGENT)
    await world.settle()
    assert await scores(world) == []

    await world.say({"record": "Outcome", "core": core, "known_at": day(8).isoformat()})
    other = {**outcome("p", now, day(6), 1.0)["core"], "observed_at": day(8).isoformat()}
    await world.say({"record": "Outcome", "core": other}, actor=PERSON)
    await world.settle()

    found = await scores(world)
    assert [(row["finding_id"], row["y"]) for row in found] == [("f", 1), ("g", 1)]
    assert found[0]["known_at"] == day(8)


async def test_what_an_agent_said_first_a_person_can_still_say(world: World) -> None:
    """The same outcome of somebody whose word settles is no repetition; said once more it is one."""
    now = datetime.now(UTC)
    await world.say(finding("f", day(1), day(5), probability=0.9))
    line = {"record": "Outcome", "core": outcome("o", now, day(5), 1.0)["core"]}
    await world.say(line, actor=AGENT)
    (receipt,) = await world.say(line, actor=PERSON)
    assert receipt.verdict.value == "changed"
    await world.settle()

    assert [(row["finding_id"], row["y"]) for row in await scores(world)] == [("f", 1)]
    for actor in (PERSON, AGENT):
        (again,) = await world.say(line, actor=actor)
        assert again.verdict.value == "identical"


async def test_a_correction_counts_only_when_known_before_target(world: World) -> None:
    """At the very moment of the target it is as late as any."""
    early, exact, late = (
        finding(key, day(1), day(5), probability=0.2, agent=key) for key in ("early", "exact", "late")
    )
    await world.say(early, exact, late, outcome("o", day(7), day(5), 1.0))
    for line, known_at in ((early, day(4)), (exact, day(5)), (late, day(6))):
        await world.say(corrected(line, known_at, probability=0.8))

    await world.settle()

    assert [(row["finding_id"], row["stated"], row["y"]) for row in await on_known(world)] == [
        ("early", 0.8, 1),
        ("exact", 0.2, 0),
        ("late", 0.2, 0),
    ]
    # Something else was recorded before the correction was.
    (before,) = [row for row in await scores(world) if row["known_at"] is None and row["finding_id"] == "early"]
    assert (before["stated"], before["y"]) == (0.2, 0)
    assert before["superseded_recorded_at"] is not None


async def test_a_corrected_outcome_is_a_revision_from_its_own_day(world: World) -> None:
    line = outcome("o", day(7), day(5), 1.0)
    await world.say(finding("f", day(1), day(5), probability=0.8), line)
    await world.settle()
    (first,) = await scores(world)
    await world.say(corrected(line, day(9), actual=0.0))

    await world.settle()

    old, new = await scores(world)
    assert (old["vintage"], old["revision"], old["y"], old["superseded_known_at"]) == (0, 0, 1, day(9))
    assert (new["vintage"], new["revision"], new["y"], new["known_at"]) == (0, 1, 0, day(9))
    assert old["recorded_at"] == first["recorded_at"]
    assert old["superseded_recorded_at"] == new["recorded_at"]


async def test_a_withdrawn_outcome_settles_nothing_from_its_day_on(world: World) -> None:
    """Neither claims nor decisions; as of a day before, both clocks and the track record still have it."""
    line = outcome("o", day(7), day(5), 1.0)
    await world.say(finding("f", day(1), day(5), probability=0.8), decision("d", day(2)), cites("d", "f", day(2)), line)
    await world.settle()
    await world.say(corrected(line, day(9), withdrawn=True))

    await world.settle()

    (row,) = await scores(world)
    assert (row["y"], row["known_at"], row["superseded_known_at"]) == (1, day(7), day(9))
    assert row["recorded_at"] < row["superseded_recorded_at"]
    assert await verdicts(world) == [(day(7), "success"), (day(9), "pending")]
    steps = "SELECT at, observations, weight FROM track_step WHERE clock = 'known' ORDER BY at"
    assert [(one["at"], one["observations"]) for one in await world.rows(steps)] == [(day(7), 1), (day(9), 0)]


async def test_before_a_withdrawn_revision_the_first_report_settles_again(world: World) -> None:
    line = outcome("o1", day(9), day(5), 0.0, vintage=1)
    await world.say(finding("f", day(1), day(5), probability=0.8), outcome("o0", day(7), day(5), 1.0), line)
    await world.say(corrected(line, day(11), withdrawn=True))

    await world.settle()

    spans = [(row["vintage"], row["known_at"], row["superseded_known_at"]) for row in await on_known(world)]
    assert spans == [(0, day(7), day(9)), (0, day(11), None), (1, day(9), day(11))]


async def test_the_first_report_loaded_after_the_revision_never_stood_on_the_recorded_clock(world: World) -> None:
    await world.say(finding("f", day(1), day(5), probability=0.8), outcome("o1", day(9), day(5), 0.0, vintage=1))
    await world.settle()
    await world.say(outcome("o0", day(7), day(5), 1.0))

    await world.settle()

    old, new = await on_known(world)
    assert (old["vintage"], old["known_at"], old["superseded_known_at"]) == (0, day(7), day(9))
    assert old["recorded_at"] is None
    assert (new["vintage"], new["known_at"], new["superseded_recorded_at"]) == (1, day(9), None)
    recorded = [row["vintage"] for row in await scores(world) if row["recorded_at"] is not None]
    assert recorded == [1, 1]


async def test_baselines_are_the_reference_from_when_they_were_described(world: World) -> None:
    """Their mean forecast; described after the fact, they become the reference from that day on."""
    await world.say(
        finding("f", day(1), day(5), probability=0.8),
        finding("b", day(1), day(5), probability=0.4, agent="base"),
        finding("c", day(1), day(5), probability=0.6, agent="calm"),
        outcome("o", day(7), day(5), 1.0),
    )
    await world.settle()
    await world.say(agent("base", day(0), "baseline"), agent("calm", day(9), "baseline"))

    await world.settle()

    found = {(row["finding_id"], row["known_at"]): row["reference"] for row in await on_known(world)}
    assert found[("f", day(7))] == pytest.approx(0.4)
    assert found[("f", day(9))] == pytest.approx(0.5)
    assert found[("b", day(7))] is None
    assert found[("c", day(7))] == pytest.approx(0.4)
    assert found[("c", day(9))] is None


async def test_the_graph_is_told_of_every_outcome_that_settled(world: World) -> None:
    await world.say(
        finding("f", day(1), day(5), probability=0.8),
        outcome("o0", day(7), day(5), 1.0),
        outcome("o1", day(9), day(5), 0.0, vintage=1),
    )
    await world.settle()

    due = await world.rows("SELECT kind, key FROM due_row WHERE queue = 'graph' AND kind = 'settled_by'")
    rows = await SettledBy().rows(world.database, ["f", "unknown"])

    assert due == [{"kind": "settled_by", "key": "f"}]
    assert [row["key"] for row in rows] == ["f", "unknown"]
    assert [(link["outcome_id"], link["props"]["correct"]) for link in rows[0]["scores"]] == [("o0", 1.0), ("o1", 0.0)]
    assert rows[0]["scores"][1]["known_at"] == day(9).isoformat()
    assert rows[1]["scores"] == []


async def test_a_decision_gets_the_verdict_of_what_it_cites_first(world: World) -> None:
    await world.say(
        finding("f", day(1), day(5), probability=0.8),
        finding("g", day(1), day(5), probability=0.1),
        decision("d", day(2)),
        cites("d", "f", day(2), rank=1),
        cites("d", "g", day(2), rank=2),
        outcome("o0", day(7), day(5), 1.0),
    )
    assert (await world.settle()).verdicts == 1
    await world.say(outcome("o1", day(9), day(5), 0.0, vintage=1))

    await world.settle()

    assert await verdicts(world) == [(day(7), "success"), (day(9), "failure")]
    assert (await world.settle()) == SettlementResult()


async def test_sell_pass_and_buy_differ(world: World) -> None:
    """Decisions that cite one positive finding, after +10 %: each by its stance, and none where none was taken."""
    rise = {"subject_id": "company:MU", "metric": "return_5s"}
    stances = {"buy": "long", "sell": "short", "pass": "avoid", "keep": "hold", "watch": "none", "old": None}
    await world.say(finding("f", day(1), day(5), direction="positive", **rise))
    for name, stance in stances.items():
        await world.say(decision(name, day(2), stance), cites(name, "f", day(2)))
    await world.say(outcome("o", day(7), day(5), 0.10, **rise))

    await world.settle()

    told = {name: [outcome for _, outcome in await verdicts(world, name)] for name in stances}
    assert told == {
        "buy": ["success"], "sell": ["failure"], "pass": ["failure"], "keep": ["success"], "watch": [], "old": [],
    }  # fmt: skip
    # A stance that was told in time and is loaded late makes the decision due by itself.
    await world.say(corrected(decision("old", day(2), None), day(3), stance="short"))
    await world.settle()
    assert await verdicts(world, "old") == [(day(7), "failure")]


async def test_a_verdict_from_before_stances_is_withdrawn(world: World) -> None:
    """A decision without a stance that has one already: at the next look it is pending, and stays so."""
    await world.say(
        finding("f", day(1), day(5), probability=0.8), decision("d", day(2)), cites("d", "f", day(2)),
        outcome("o", day(7), day(5), 1.0),
    )  # fmt: skip
    await world.settle()
    await world.say(corrected(decision("d", day(2)), day(3), stance="none"))

    await world.settle()

    assert await verdicts(world) == [(day(7), "success"), (day(7), "pending")]
    report = await reconcile(world.pipelines, world.engine, halflife_years=2.0)
    assert report.differing == 0


async def test_a_period_and_a_unit_make_another_question(world: World) -> None:
    """A quarter's and a year's revenue that end the same day, in two currencies: each claim is settled by its own."""
    revenue = {"subject_id": "company:MU", "metric": "revenue"}
    quarter, year = {"period_start": text(day(-90))}, {"period_start": text(day(-365))}
    kinds: dict[str, tuple[dict[str, Any], float]] = {
        "quarter": ({**quarter, "unit": "USD"}, 10.0),
        "year": ({**year, "unit": "USD"}, 40.0),
        "year in euros": ({**year, "unit": "EUR"}, 36.0),
        "neither": ({}, 99.0),
    }
    for name, (question, value) in kinds.items():
        claim: dict[str, Any] = {**revenue, **question, "value": value}
        await world.say(finding(f"f/{name}", day(1), day(5), **claim))
        if name != "year in euros":
            await world.say(outcome(f"o/{name}", day(7), day(5), value * 1.01, **revenue, **question))

    await world.settle()

    assert [(row["finding_id"], row["actual"], row["y"]) for row in await scores(world)] == [
        ("f/neither", pytest.approx(99.99), 1), ("f/quarter", pytest.approx(10.1), 1),
        ("f/year", pytest.approx(40.4), 1),
    ]  # fmt: skip
    # StatedClaim in time that they were dollars, and loaded late: the claim was about the other question.
    euros: dict[str, Any] = {**revenue, **year, "unit": "EUR", "value": 36.0}
    await world.say(corrected(finding("f/year in euros", day(1), day(5), **euros), day(2), unit="USD"))
    await world.settle()
    assert [row["y"] for row in await scores(world) if row["finding_id"] == "f/year in euros"] == [1]


async def test_the_unit_of_a_metric_is_that_of_its_claims(world: World) -> None:
    """Where the registry names one, a record that states none has it; another one is refused when it is written."""
    close = {"subject_id": "company:MU", "metric": "close"}
    await world.say(
        finding("f", day(1), day(5), value=100.0, **close), outcome("o", day(7), day(5), 110.0, unit="USD", **close)
    )
    await world.settle()
    assert [row["y"] for row in await scores(world)] == [1]
    for line in (
        finding("g", day(1), day(5), value=100.0, unit="EUR", **close),
        outcome("p", day(7), day(5), 110.0, unit="EUR", **close),
    ):
        with pytest.raises(BadInput, match=r"core\.unit: must be USD"):
            await world.say(line)


async def test_a_citation_from_hindsight_gives_no_verdict(world: World) -> None:
    """What was cited in time counts although it is loaded late; what was cited afterwards does not."""
    await world.say(
        finding("f", day(1), day(5), probability=0.8), outcome("o", day(7), day(5), 1.0), decision("d", day(2))
    )
    await world.settle()
    await world.say(cites("d", "f", day(20)))

    await world.settle()

    assert await verdicts(world) == []
    await world.say(cites("d", "f", day(3)))
    await world.settle()
    assert await verdicts(world) == [(day(7), DecisionOutcome.SUCCESS)]


async def test_numbers_of_any_size_are_settled(world: World) -> None:
    """The greatest vintage and rank that a line may state hold up nothing."""
    await world.say(
        finding("f", day(1), day(5), probability=0.8),
        finding("g", day(1), day(6), probability=0.8),
        decision("d", day(2)),
        cites("d", "f", day(2), rank=1),
        cites("d", "g", day(2), rank=2**62),
        outcome("o0", day(7), day(5), 1.0, vintage=2**63 - 1),
        outcome("o1", day(8), day(6), 1.0),
    )

    done = await world.settle()

    assert (done.scores, done.verdicts, done.stuck) == (2, 1, 0)
    assert {row["vintage"] for row in await scores(world)} == {0, 2**63 - 1}


@pytest.fixture
def strange() -> Iterator[Callable[[], None]]:
    """A metric known to whoever loads; call it to forget the metric, as in a worker that was never told."""
    metric = Metric("strange", "binary")
    register(metric)

    def forget() -> None:
        metrics_module._METRICS.remove(metric)
        metric_of.cache_clear()

    yield forget
    if metric in metrics_module._METRICS:
        forget()


async def test_what_cannot_be_settled_holds_up_nothing_else(world: World, strange: Callable[[], None]) -> None:
    """It is set aside with the reason, its scores stay, and the next reconciliation tries again."""
    odd = {"metric": "strange"}
    await world.say(finding("odd", day(1), day(5), probability=0.9, **odd), outcome("o", day(7), day(5), 1.0, **odd))
    await world.settle()
    strange()
    await world.say(
        outcome("o1", day(8), day(5), 0.0, vintage=1, metric="up"),
        *(finding(f"f{n}", day(1), day(5), probability=0.8) for n in range(3)),
        finding("late", day(2), day(5), probability=0.9),
    )
    world.owner(
        "INSERT INTO due_row (queue, kind, key, created_at)"
        " VALUES ('credibility', 'Outcome', 'o', now() - interval '1 day')"
    )

    done = await world.settle()

    assert (done.stuck, done.scores) == (1, 4)
    (row,) = await world.rows("SELECT kind, key, set_aside FROM due_row WHERE queue = 'credibility'")
    assert (row["kind"], row["key"]) == ("Outcome", "o")
    assert "IMEM_METRICS_FILE or IMEM_METRICS" in row["set_aside"]
    (alert,) = await world.rows("SELECT kind, payload ->> 'reason' AS reason FROM workflow.alert")
    assert alert["kind"] == "WORK_SET_ASIDE"
    assert "credibility could not do Outcome o" in alert["reason"]
    world.owner("INSERT INTO due_row (queue, kind, key) VALUES ('credibility', 'Outcome', 'o')")
    assert (await world.settle()).stuck == 2
    assert len(await world.rows("SELECT FROM workflow.alert")) == 1, "one open alert is enough"
    assert "odd" in {one["finding_id"] for one in await scores(world)}
    horizon = (await world.rows("SELECT imem_settled_horizon() > now() - interval '1 hour' AS recent"))[0]
    assert horizon["recent"], "what is set aside holds no answer back"

    register(Metric("strange", "binary"))
    try:
        report = await reconcile(world.pipelines, world.engine, halflife_years=2.0)
    finally:
        strange()
    assert report.differing == 0
    assert await world.rows("SELECT key FROM due_row WHERE queue = 'credibility'") == []
    assert await world.rows("SELECT FROM workflow.alert WHERE closed_at IS NULL") == []


async def test_an_abstention_is_no_verdict_and_withdraws_one(world: World) -> None:
    """A correction that was known in time but loaded late takes the verdict back."""
    line = finding("f", day(1), day(5), probability=0.8)
    await world.say(line, decision("d", day(2)), cites("d", "f", day(2)), outcome("o", day(7), day(5), 1.0))
    await world.settle()
    await world.say(corrected(line, day(4), probability=0.5))

    await world.settle()

    assert await verdicts(world) == [(day(7), "success"), (day(7), "pending")]


async def test_what_is_said_while_a_batch_runs_stays_due(world: World) -> None:
    """What becomes due after the rows were read has a row of its own, which is not deleted with them."""
    await world.say(finding("f", day(1), day(5), probability=0.2), outcome("o", day(7), day(5), 0.0))
    line = finding("f", day(1), day(5), probability=0.2)

    async with alone(world.pipelines) as conn:
        with pytest.raises(SettlementLocked):
            await settle_questions(world.pipelines)
        # A writer is not held up by the settler.
        await world.say(corrected(line, day(3), probability=0.7))
        del conn
    await world.settle()

    assert [row["stated"] for row in await on_known(world)] == [0.7]
    world.owner("INSERT INTO due_row (queue, kind, key) VALUES ('credibility', 'Decision', 'd')")
    async with alone(world.pipelines) as conn:
        due = await next_due(conn, "credibility", ("Decision",), 10)
        world.owner("INSERT INTO due_row (queue, kind, key) VALUES ('credibility', 'Decision', 'd')")
        await finish_due(conn, "credibility", due)
    assert await world.rows("SELECT key FROM due_row WHERE queue = 'credibility'") == [{"key": "d"}]


async def test_a_due_row_without_a_question_does_not_wait_for_ever(world: World) -> None:
    world.owner("INSERT INTO due_row (queue, kind, key) VALUES ('credibility', 'Finding', 'nobody')")

    assert (await world.settle()).due == 1
    assert await world.rows("SELECT FROM due_row WHERE queue = 'credibility'") == []


async def test_small_batches_end_the_same(world: World) -> None:
    lines = [finding(f"f{n}", day(1), day(5), probability=0.2, subject_id=f"market:q{n}") for n in range(7)]
    lines += [outcome(f"o{n}", day(7), day(5), n % 2, subject_id=f"market:q{n}") for n in range(7)]
    await world.say(*lines)

    rounds = 0
    while (await settle_questions(world.pipelines, questions=3)) != SettlementResult():
        rounds += 1

    assert rounds == 3
    assert [row["y"] for row in await scores(world)] == [1, 0, 1, 0, 1, 0, 1]


async def test_hostile_names_are_only_names(world: World) -> None:
    name = "'; DROP TABLE event; --\"{}«x»\U0001f600"
    await world.say(
        finding(name, day(1), day(5), probability=0.8, agent=name, domain=name),
        decision(name, day(2)),
        cites(name, name, day(2)),
        outcome(name, day(7), day(5), 1.0),
    )

    await world.settle()

    assert [(row["finding_id"], row["y"]) for row in await scores(world)] == [(name, 1)]
    assert await verdicts(world, name) == [(day(7), "success")]
