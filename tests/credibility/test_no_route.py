"""No agent raises its own record, nor changes what others are measured against, by any route there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
import pytest

from imem.credibility.reconcile import MISMATCH, reconcile
from imem.credibility.scores.overrides import OverrideFigures, OverrideRate
from imem.credibility.scores.reading import agent_scores
from imem.credibility.track_record import TrackRecord, track_records
from imem.ingest.recorder import prepare, record, refusal_of
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.load_format.lines import parse_line
from imem.services.delegation import delegated_actor

from .conftest import HALFLIFE, World, agent, cites, corrected, finding, outcome

START = datetime(2024, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
ANN = Actor("ann", Role.AGENT)
BASE = Actor("base", Role.AGENT)
ENGINE = Actor("engine", Role.LEARNING_ENGINE)
PERSON = Actor("eve", Role.HUMAN_ADMIN)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def unstated(line: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return *line* without a time, as an agent states it."""
    return {name: value for name, value in line.items() if name != "known_at"} | more


def under(name: str, lender: Actor) -> Callable[[World], Awaitable[Actor]]:
    """Return what *lender* becomes in a memory that it lends under *name*, as ``acting_as`` does."""
    return lambda world: delegated_actor(Gateway(world.database, lender), name, deadline=Deadline.never())


async def say(world: World, line: dict[str, Any], who: Actor | Callable[[World], Awaitable[Actor]]) -> str:
    """Return what became of a line: its verdict, or why it was not taken."""
    try:
        actor = who if isinstance(who, Actor) else await who(world)
        prepared = prepare(parse_line(orjson.dumps(line), needs_known_at=False))
        (receipt,) = await record(world.gateway, [prepared], actor=actor, deadline=Deadline.never())
    except (BadInput, PermissionDenied) as error:
        return type(error).__name__
    refused = refusal_of(receipt.verdict, prepared.line)
    return receipt.verdict.value if refused is None else type(refused).__name__


async def standing(world: World) -> list[TrackRecord]:
    """Return every record, with what has been settled, as of a day after all that is said."""
    await world.settle()
    pairs = [(name, "flu") for name in ("ann", "base", "bob")]
    answer = await track_records(world.database, pairs, AsOf(LATER), halflife_years=HALFLIFE, deadline=Deadline.never())
    return list(answer.records)


async def season(world: World) -> None:
    """Twenty weeks: ann is wrong throughout, bob is right, and a baseline has a say."""
    await world.say(agent("base", day(0), "baseline"), agent("ann", day(0), "model"), agent("bob", day(0), "model"))
    for number in range(1, 21):
        subject = {"subject_id": f"market:{number}"}
        target = day(7 * number)
        for name, probability in (("ann", 0.2), ("base", 0.5 + number / 100), ("bob", 0.9)):
            line = finding(f"{name}-{number}", target - timedelta(days=5), target, agent=name, **subject)
            line["core"]["probability"] = probability
            await world.say(line)
        await world.say(outcome(f"o{number}", target + timedelta(days=2), target, 1.0, **subject))


FIRST = {"subject_id": "market:1"}
CREDIBILITY = {"id": "ann/flu", "agent_id": "ann", "domain": "flu"}
SCORE = {"sample_size": 99, "last_updated": "2026-01-01T00:00:00Z", "decay_halflife_years": 0.001}
REGIME = {"id": "r", "observed_at": "2024-01-01T00:00:00Z", "regime": "NORMAL", "stale": False, "source": "ann"}
OVERRIDE = {
    "id": "x", "agent": "bob", "domain": "flu", "finding_id": "bob-1", "reason": "other",
    "overridden_at": "2024-01-02T00:00:00Z",
}  # fmt: skip
PIN = {
    "id": "p", "agent": "ann", "domain": "flu", "score": 0.99, "reason": "I am good.",
    "pinned_at": "2024-01-02T00:00:00Z",
}  # fmt: skip
BIAS = {
    "id": "b", "agent": "ann", "domain": "flu", "of_metric": "up", "kind": "absolute", "bias": 0.1, "n": 9,
    "accuracy_before": 0.1, "accuracy_after": 0.9, "proposed_at": "2024-01-02T00:00:00Z",
}  # fmt: skip
APPROVED = {"state": {"status": "approved", "decided_at": "2024-01-03T00:00:00Z"}}
DECISION = {
    "id": "d", "subject_id": "market:1", "type": "t", "agents_involved": ["ann"], "decided_at": "2026-01-01T00:00:00Z",
}  # fmt: skip

ROUTES: list[tuple[str, Actor | Callable[[World], Awaitable[Actor]], dict[str, Any], str]] = [
    ("its score", ANN, {"record": "AgentCredibility", "core": CREDIBILITY, "groups": {"score": SCORE}}, "BadInput"),
    ("itself a baseline", ANN, unstated(agent("ann", day(0), "baseline")), "PermissionDenied"),
    ("itself an ensemble", ANN, unstated(agent("ann", day(0), "ensemble")), "PermissionDenied"),
    ("itself a human", ANN, unstated(agent("ann", day(0), "human")), "PermissionDenied"),
    ("another a baseline", ANN, unstated(agent("bob", day(0), "baseline")), "PermissionDenied"),
    ("a new baseline, by an engine", ENGINE, unstated(agent("bob", day(0), "baseline")), "PermissionDenied"),
    ("the baseline none, by itself", BASE, unstated(agent("base", day(0), "model")), "changed"),
    ("an outcome", ANN, unstated(outcome("lie", day(0), day(7), 0.0, vintage=9, **FIRST)), "PermissionDenied"),
    ("an outcome, by an engine", ENGINE, unstated(outcome("lie", day(0), day(7), 0.0, **FIRST)), "PermissionDenied"),
    ("an outcome of its own", ANN, unstated(outcome("own:ann/lie", day(0), day(7), 0.0, vintage=9, **FIRST)), "new"),
    ("the outcome that stands", ANN, unstated(outcome("o1", day(0), day(7), 0.0, **FIRST)), "PermissionDenied"),
    ("a claim when it shows", ANN, unstated(finding("late", day(0), day(7), probability=0.99, **FIRST)), "BadInput"),
    ("a claim in the past", ANN, finding("past", day(1), day(7), probability=0.99, **FIRST), "PermissionDenied"),
    ("another claim", ANN, unstated(finding("ann-1", day(0), day(7), probability=0.9, **FIRST)), "CoreConflict"),
    ("a correction", ANN, unstated(corrected(finding("ann-1", day(2), day(7), probability=0.9, **FIRST), day(3))),
     "PermissionDenied"),
    ("how a question ended", ANN, {"record": "Market", "key": "1", "groups": {
        "resolution": {"resolved_at": "2024-01-09T00:00:00Z", "resolution": "no"}}}, "PermissionDenied"),
    ("the regime", ANN, {"record": "RegimeReading", "core": REGIME}, "PermissionDenied"),
    ("the regime, by an engine", ENGINE, {"record": "RegimeReading", "core": REGIME}, "PermissionDenied"),
    ("an override of another", ANN, {"record": "HumanOverride", "core": OVERRIDE}, "PermissionDenied"),
    ("an override, by an engine", ENGINE, {"record": "HumanOverride", "core": OVERRIDE}, "PermissionDenied"),
    ("its score, pinned", ANN, {"record": "CredibilityPin", "core": PIN}, "PermissionDenied"),
    ("its score, pinned by an engine", ENGINE, {"record": "CredibilityPin", "core": PIN}, "PermissionDenied"),
    ("a bias", ANN, {"record": "BiasCorrection", "core": BIAS}, "PermissionDenied"),
    ("its bias, approved", ANN, {"record": "BiasCorrection", "core": BIAS, "groups": APPROVED}, "PermissionDenied"),
    ("a bias, approved by an engine", ENGINE, {"record": "BiasCorrection", "core": BIAS, "groups": APPROVED},
     "PermissionDenied"),
    ("a verdict", ANN, {"record": "Decision", "core": DECISION, "groups": {"outcome": {"outcome": "success"}}},
     "BadInput"),
    ("a decision of others", ANN, {"record": "Decision", "core": {**DECISION, "agents_involved": ["ann", "bob"]}},
     "PermissionDenied"),
    ("words of another", ANN, unstated(finding("bobs", day(0), LATER, agent="bob", probability=0.1, **FIRST)),
     "PermissionDenied"),
    ("words of a baseline, under its name", under("base", ANN),
     unstated(finding("bases", day(0), LATER, agent="base", probability=0.1, **FIRST)), "PermissionDenied"),
    ("a citation in another's", ANN, unstated(cites("bobs decision", "late", day(0))), "PermissionDenied"),
]  # fmt: skip


@pytest.mark.spec("AC-3")
async def test_nothing_that_an_agent_states_moves_a_record(world: World) -> None:
    """Each route is refused or has no effect: every record is what it was, to the bit, and so it is computed anew."""
    await season(world)
    before = await standing(world)
    assert [one.kind for one in before] == ["model", "model", "baseline"]
    assert [one.reference for one in before] == ["baselines", "baselines", None]

    told = {name: await say(world, line, actor) for name, actor, line, _ in ROUTES}

    assert told == {name: expected for name, _, _, expected in ROUTES}
    assert await standing(world) == before
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert report.differing == 0
    assert await standing(world) == before


@pytest.mark.spec("AC-3")
async def test_an_agent_lends_itself_no_name_that_others_are_measured_against(world: World) -> None:
    """
    Who may append its own alone is refused, with one denial row that names it; so is an agent that was lent its name.

    What an agent once said that it was, and what one is no longer, keep nobody away.
    """
    await world.say(*(agent(kind, day(0), kind) for kind in ("baseline", "ensemble", "human", "model")))
    await world.say(agent("once", day(0), "baseline"), agent("once", day(1), "model"))
    await world.say(unstated(agent("said", day(0), "baseline")), actor=Actor("said", Role.AGENT))
    as_ann = await under("ann", PERSON)(world)
    facilitator = Actor("fay", Role.DEBATE_FACILITATOR)

    for lender in (ANN, facilitator, as_ann):
        for name in ("baseline", "ensemble", "human"):
            with pytest.raises(
                PermissionDenied, match=f"may not act as {name}, whose kind is {name}: .* or human_admin, or for"
            ):
                await under(name, lender)(world)
        for name in ("model", "once", "said", "nobody"):
            assert await under(name, lender)(world) == Actor(name, Role.AGENT, lent_by=lender.lent_by or lender.id)
    for lender in (ENGINE, PERSON, Actor("baseline", Role.AGENT)):
        assert await under("baseline", lender)(world) == Actor("baseline", Role.AGENT, lent_by=lender.id)

    denied = await world.rows(
        "SELECT actor_id, actor_role, resource_id, request_context ->> 'owner' AS owner, "
        "request_context ->> 'lent_by' AS lent_by FROM memory_access_audit WHERE NOT authorized"
    )
    assert sorted(tuple(row.values()) for row in denied if row["lent_by"] is None) == [
        (lender.id, lender.role.value, f"as {name}", name, None)
        for lender in (ANN, facilitator)
        for name in ("baseline", "ensemble", "human")
    ]
    assert {row["lent_by"] for row in denied} == {None, PERSON.id}
    assert len(denied) == 9


@pytest.mark.spec("AC-3", "CR-18")
async def test_an_agent_does_not_state_its_overrides_away(world: World) -> None:
    """What nothing settles but its own outcomes, abstentions and repetitions leave rate, flag and penalty."""
    await season(world)
    await world.settle()
    overrides = [
        {"record": "HumanOverride", "known_at": day(90).isoformat(), "core": {
            **OVERRIDE, "id": f"x{n}", "agent": "ann", "finding_id": f"ann-{n}", "overridden_at": day(90).isoformat()}}
        for n in range(1, 11)
    ]  # fmt: skip
    await world.say(*overrides)

    async def score() -> tuple[OverrideFigures, float | None]:
        (found,), _ = await agent_scores(
            world.database, [("ann", "flu")], AsOf(day(200)), context=None, halflife_years=HALFLIFE,
            deadline=Deadline.after_ms(30_000),
        )  # fmt: skip
        return found.people.overrides, found.designed.override_penalty

    before = await score()
    assert (before[0].counts, before[0].flag, before[1]) == (OverrideRate(10, 20), True, 0.7)
    bare = {"id": "bare", "analysis_id": "a", "agent": "ann", "domain": "flu", "subject_id": "market:1"}
    for n in range(40):
        own, target = {"subject_id": f"market:own{n}"}, day(190)
        for line in (
            {"record": "Finding", "core": {**bare, "id": f"bare{n}", "statement": "It rises."}},
            unstated(finding(f"half{n}", day(0), LATER, probability=0.5, **FIRST)),
            unstated(finding(f"own{n}", day(0), LATER, probability=0.9, **own)),
            unstated(outcome(f"own:ann/{n}", day(0), target, 1.0, **own)),
        ):
            assert await say(world, line, ANN) == "new"
        # As a loaded history has them: no agent dates what it states.
        await world.say(finding(f"later{n}", day(150), target, probability=0.9, **own))
        await world.say(finding(f"again{n}", day(4), day(7), probability=0.2, **FIRST))
    await world.settle()

    assert await score() == before


async def test_the_true_outcome_is_never_a_conflict(world: World) -> None:
    """Whatever an agent stated before about the question: a person's outcome and an import's are new, and settle."""
    await season(world)
    await world.say(finding("open", day(150), day(160), probability=0.9, **FIRST))
    for key in ("o/truth", "own:ann/o/truth"):
        await say(world, unstated(outcome(key, day(0), day(160), 0.0, **FIRST)), ANN)

    assert await say(world, unstated(outcome("o/truth", day(0), day(160), 1.0, **FIRST)), PERSON) == "new"

    await world.settle()
    [score] = await world.rows("SELECT outcome_id, y FROM agent_outcome WHERE finding_id = 'open'")
    assert (score["outcome_id"], score["y"]) == ("o/truth", 1)


async def test_what_an_agent_once_said_it_was_counts_for_nothing(world: World) -> None:
    """In a journal from before the rule an agent may have called itself a baseline: it is nobody's reference."""
    await season(world)
    before = await standing(world)
    await world.say(unstated(agent("bob", day(0), "baseline")), actor=Actor("bob", Role.AGENT))

    assert await standing(world) == before


@pytest.mark.spec("AC-3")
async def test_a_direct_connection_writes_neither_facts_nor_scores_and_tampering_is_found(world: World) -> None:
    """The application's role can touch neither; what somebody with more rights changed is put right, and told."""
    await season(world)
    before = await standing(world)
    stored = [await world.rows(f"SELECT * FROM {name} ORDER BY 1, 2, 3, 4") for name in ("agent_outcome", "track_step")]
    forbidden = [
        "UPDATE event SET payload = '{}'",
        "DELETE FROM event WHERE kind = 'record.Outcome'",
        "INSERT INTO event (event_id) VALUES (gen_random_uuid())",
        "UPDATE record_head SET hash = ''",
        "DELETE FROM record_head",
        "UPDATE record_history SET imported = true",
        "INSERT INTO record_history SELECT * FROM record_history LIMIT 1",
        "UPDATE reconciliation_report SET differing = 0",
        "DELETE FROM reconciliation_report",
        "UPDATE memory_access_audit SET authorized = true",
        "UPDATE agent_outcome SET y = 1, brier = 0 WHERE agent = 'ann'",
        "DELETE FROM agent_outcome WHERE agent = 'ann'",
        "UPDATE track_step SET successes = weight, correct = scored WHERE agent = 'ann'",
        "DELETE FROM due_row WHERE queue = 'credibility'",
        "DELETE FROM track_due",
    ]
    with psycopg.connect(world.url, autocommit=True) as conn:
        for statement in forbidden:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement)
    assert await standing(world) == before
    world.owner("UPDATE agent_outcome SET y = 1, brier = 0 WHERE agent = 'ann'")
    world.owner("UPDATE track_step SET successes = weight, correct = scored WHERE agent = 'ann'")

    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)

    assert report.findings == {f"ann-{number}" for number in range(1, 21)}
    assert await standing(world) == before
    again = [await world.rows(f"SELECT * FROM {name} ORDER BY 1, 2, 3, 4") for name in ("agent_outcome", "track_step")]
    timeless = [[{k: v for k, v in row.items() if k != "scored_at"} for row in rows] for rows in (*stored, *again)]
    assert timeless[:2] == timeless[2:]
    assert len(await world.rows("SELECT FROM workflow.alert WHERE kind = %s", MISMATCH)) == 1
