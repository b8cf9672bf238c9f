"""Blind tests and control tests on real servers: what begins them, what contaminates them, what they conclude."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.patterns.definition import PatternDefinition
from imem.patterns.evidence.control import assignment
from imem.patterns.shadows import OpenForecast, ShiftedForecasts
from tests.credibility.conftest import finding
from tests.patterns.parts import DAY, ENOUGH, NOW, SUBJECTS, Lab, definition, weeks

EVE = Actor("eve", Role.AGENT)
KEY, NAME = definition().key, definition().name


class Unclean(ShiftedForecasts):
    """Says that its instances share something."""

    async def clean(self) -> bool:
        return False


class Broken(ShiftedForecasts):
    """Does not say whether its instances share something."""

    async def clean(self) -> bool:
        raise RuntimeError


class Indifferent(ShiftedForecasts):
    """Forecasts what was forecast."""

    async def forecast(
        self, pattern: PatternDefinition, effect: float, of: OpenForecast, *, deadline: Deadline
    ) -> float:
        del pattern, effect, deadline
        return of.stated


class Fickle(ShiftedForecasts):
    """Raises what no error of ours is, and forecasts no number, in turns; at last it forecasts."""

    def __init__(self) -> None:
        self.calls = 0

    async def forecast(
        self, pattern: PatternDefinition, effect: float, of: OpenForecast, *, deadline: Deadline
    ) -> float:
        self.calls += 1
        if self.calls == 1:
            raise LookupError
        return float("nan") if self.calls == 2 else await super().forecast(pattern, effect, of, deadline=deadline)


async def in_a_view(lab: Lab) -> None:
    lab.world.owner(
        "WITH made AS (INSERT INTO view_version (name, source_seq) VALUES ('leak', 1) RETURNING name, version),"
        " held AS (INSERT INTO view_row SELECT name, version, 'k', jsonb_build_object('pattern', %s::text) FROM made)"
        " INSERT INTO view_current SELECT name, version FROM made",
        KEY,
    )


async def said_by_an_agent(lab: Lab) -> None:
    line = finding(
        "leak", NOW, NOW + 900 * DAY, agent="eve", probability=0.5, statement=f"As we all know, {NAME.upper()}."
    )
    del line["known_at"]
    entry = entry_of(parse_line(_json(line), needs_known_at=False))
    receipts = await Gateway(lab.world.database, EVE).append([entry], actor=EVE, deadline=ENOUGH)
    assert not receipts[0].verdict.refused


def _json(line: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps(line)


async def asked_by_an_agent(lab: Lab) -> None:
    gateway = Gateway(lab.world.database, EVE)
    await gateway.authorize(Resource(ResourceType.PATTERNS, KEY), Action.READ, deadline=ENOUGH, actor=EVE)


async def unclean(lab: Lab) -> None:
    lab.runner = Unclean()


async def broken(lab: Lab) -> None:
    lab.runner = Broken()


SIGNALS = {
    "cache_hits": in_a_view, "pattern_in_logs": said_by_an_agent, "knowledge_graph_queries": asked_by_an_agent,
    "agent_instances": unclean,
}  # fmt: skip


async def held_out(lab: Lab) -> None:
    """Have a candidate that passed the hold-out, and whose blind test has not begun."""
    runner, lab.runner = lab.runner, None
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    assert (await lab.row()).data["stage"] == "isolation"
    lab.runner = runner


@pytest.mark.spec("PV-10")
@pytest.mark.parametrize("leak", [*SIGNALS.values(), broken], ids=[*SIGNALS, "no answer"])
async def test_a_blind_test_does_not_begin_where_one_check_fails(lab: Lab, leak: Any) -> None:
    await held_out(lab)
    runner = lab.runner
    await leak(lab)
    assert await lab.test() == {"not_isolated": 1}
    row = await lab.row()
    assert (row.data["stage"], "blind" in row.data) == ("isolation", False)
    alerts = await lab.world.rows("SELECT kind FROM workflow.alert WHERE kind = 'BLIND_TEST_NOT_ISOLATED'")
    assert len(alerts) == 1
    # Tried again a month later, and no sooner.
    assert await lab.test() == {}
    lab.runner = runner
    async with lab.later(31 * DAY):
        done = await lab.test()
    # After 30 days a mention and a question count no more; a view that holds the pattern still does.
    assert done == ({"not_isolated": 1} if leak is in_a_view else {"begun": 1})


async def test_another_agent_with_the_same_idea_does_not_stop_a_blind_test(lab: Lab) -> None:
    """No agent sees a proposal of another."""
    await held_out(lab)
    await lab.propose(definition(), by=EVE)
    done = await lab.test()
    assert (done["proposals"], done["opened"], done["begun"]) == (1, 0, 1)


@pytest.mark.spec("PV-11")
@pytest.mark.parametrize("signal", ["cache_hits", "pattern_in_logs", "knowledge_graph_queries"])
async def test_what_agents_know_of_a_pattern_contaminates_its_test(lab: Lab, signal: str) -> None:
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    await SIGNALS[signal](lab)
    async with lab.later(187 * DAY):
        assert await lab.test() == {"contaminated": 1}
        tests = await lab.validations()
        assert [(one["validation_type"], one["passed"]) for one in tests] == [("holdout", True), ("blind_test", False)]
        assert tests[-1]["failure_reason"] == "contaminated"
        assert signal in tests[-1]["test_metadata"]
        row = await lab.row()
        assert (row.state, row.data["attempt"], row.data["stage"]) == ("candidate", 2, "blind")
        begun = datetime.fromisoformat(row.data["blind"]["started_at"])
        assert begun - NOW > 186 * DAY
        assert datetime.fromisoformat(row.data["look_at"]) - begun > 180 * DAY
        assert row.data["blind"]["looks"] == 0
    # Nothing that agents knew of counts: the pairs of the first attempt are not those of the second.
    async with lab.later(380 * DAY):
        assert await lab.test() in ({"inconclusive": 1}, {"contaminated": 1})


async def test_a_forecast_that_fails_is_made_by_the_next_round(lab: Lab) -> None:
    """Whatever the runner raises: the other forecasts are recorded."""
    lab.runner = Fickle()
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    said, _ = weeks(0, 1, start=NOW + DAY)
    async with lab.later(2 * DAY):
        await lab.world.say(*said)
        wanted = sum(line["core"]["probability"] >= 0.5 for line in said)
        assert wanted > 2
        assert (await lab.test())["shadows"] == wanted - 2
        assert (await lab.test())["shadows"] == 2


@pytest.mark.spec("PV-11")
async def test_forecasts_that_are_alike_are_looked_at_by_a_person(lab: Lab) -> None:
    lab.runner = Indifferent()
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        assert await lab.test() == {"inconclusive": 1}
    async with lab.later(370 * DAY):
        assert await lab.test() == {"failed": 1}
    assert await lab.statuses() == {KEY: "rejected_blind"}
    [task] = await lab.world.rows("SELECT package FROM review_task WHERE kind = 'similarity'")
    assert task["package"]["equal"] == task["package"]["pairs"]
    assert task["package"]["pattern_id"] == KEY


@pytest.mark.spec("PV-13")
async def test_shadow_analyses_reach_no_decision_outcome_or_score(lab: Lab) -> None:
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        await lab.test()
        await lab.world.settle()
    written = await lab.world.rows("SELECT DISTINCT kind FROM event WHERE actor = 'patterns'")
    assert {row["kind"] for row in written} == {"record.Pattern", "record.PatternValidation", "record.ShadowAnalysis"}
    [shadows] = await lab.world.rows(
        "SELECT count(*) AS n, count(DISTINCT payload -> 'core' ->> 'with_pattern_prediction') AS predictions"
        " FROM event WHERE kind = 'record.ShadowAnalysis' AND payload ? 'core'"
    )
    assert shadows["n"] >= 40
    [found] = await lab.world.rows("SELECT count(*) AS n, count(DISTINCT agent) AS agents FROM agent_outcome")
    assert (found["n"], found["agents"]) == (400 + 112, 1), "only what the crowd stated is scored"
    [stated] = await lab.world.rows("SELECT array_agg(DISTINCT stated ORDER BY stated) AS all FROM agent_outcome")
    assert stated["all"] == [0.4, 0.6]


@pytest.mark.spec("PV-9")
async def test_a_pattern_that_never_hurt_has_no_ratio(lab: Lab) -> None:
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year(effect=0.4)
    async with lab.later(187 * DAY):
        await lab.test()
        [blind] = [one for one in await lab.validations() if one["validation_type"] == "blind_test"]
    assert blind["passed"]
    assert "improvement_ratio" not in blind
    assert '"hurt":0' in blind["test_metadata"]


@pytest.mark.spec("PV-16")
async def test_treatment_that_is_not_better_than_control_rejects(lab: Lab) -> None:
    """Each arm counts with its own clusters: where hard ones are treated it fails, although there is a gain."""
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    seed = id_of("control", KEY, "1").int % 2**32
    hard = {subject for subject, treated in assignment(SUBJECTS, seed).items() if treated}
    await lab.half_a_year(hard=hard)
    async with lab.later(187 * DAY):
        assert await lab.test() == {"rejected_statistical": 1}
    tests = await lab.validations()
    assert [(one["validation_type"], one["passed"]) for one in tests[1:]] == [
        ("blind_test", True), ("control_group", False)
    ]  # fmt: skip
    assert tests[-1]["failure_reason"] == "treatment_not_better"


@pytest.mark.spec("PV-16", "PV-18")
@pytest.mark.parametrize(
    ("others", "status"), [(0, "statistically_validated"), (4, "probationary"), (9, "rejected_statistical")]
)
async def test_a_result_is_judged_with_the_others_of_its_cycle(lab: Lab, others: int, status: str) -> None:
    """In the band of p the domain approves it; what it says of q depends on how many tests ended beside it."""
    for number in range(others):
        control = {"p": 0.9, "q": 0.9, "domain": "financial", "at": NOW.isoformat()}
        lab.world.owner(
            "INSERT INTO lifecycle (kind, key, about, state, data) VALUES ('pattern', %s::text, %s::text,"
            " 'rejected_statistical', jsonb_build_object('control', %s::jsonb, 'definition', '{}'::jsonb))",
            f"other-{number}", f"other-{number}", _json(control).decode(),
        )  # fmt: skip
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        assert await lab.test() == {status: 1}
        control = (await lab.row(KEY)).data["control"]
        assert 0.01 < control["p"] < 0.05
        assert control["q"] == pytest.approx(control["p"] * (others + 1))


async def test_runs_are_capped_and_may_be_switched_off(lab: Lab) -> None:
    lab.cap = 7
    await lab.history()
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    found = await lab.world.rows(
        "SELECT recorded_at AS at FROM event WHERE kind = 'record.ShadowAnalysis' AND payload ? 'core'"
    )
    made = [row["at"] for row in found]
    assert len(made) > 20
    assert max(sum(first <= at < first + 30 * DAY for at in made) for first in made) == 7
    lab.runner = None
    async with lab.later(187 * DAY):
        assert await lab.test() == {}
