"""Debates in trouble: what overtakes what, values at their bounds, strangers, and rows that fail."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from imem.credibility.scores.auto_resolve import Basis
from imem.credibility.scores.reading import agent_scores
from imem.debates import running
from imem.debates.running import DEBATES
from imem.debates.states import Act
from imem.jobs.lifecycle import AdvanceReport, advance_due
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, BudgetExceeded, TransitionRefused
from imem.journal.events.ids import id_of
from imem.journal.settings import Role
from imem.kg.kinds.enums import DebatePriority, DebateState
from imem.review.states import TaskState
from imem.services.task_kinds import TASK_KINDS

from .conftest import ADMIN, BEAR, BULL, ENOUGH, HOUR, KINDS, Forum, claimed
from .test_debates import opened_gate, passed, scored

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
MALLORY = Actor("mallory", Role.AGENT)


async def round_of(forum: Forum, *kinds: str) -> AdvanceReport:
    """Let the pipeline make one round over some kinds of rows."""
    runtime: Any = SimpleNamespace(
        database=forum.world.pipelines, gateway=forum.world.engine, task_kinds=TASK_KINDS,
        halflife_years=forum.halflife_years, auto_resolution_basis=forum.basis,
    )  # fmt: skip
    return await advance_due(runtime, {kind: KINDS[kind] for kind in kinds}, until=ENOUGH)


async def asked(forum: Forum, *, said: bool = False, **given: Any) -> Any:
    """Open a debate at whose level 1 both stand, with evidence of the challenged side if wanted."""
    debate = await forum.challenge(**given)
    if said:
        await forum.act(debate, Act.RESPOND, BULL, text="They are prepaid.", evidence=["f-own"])
    for side in (BULL, BEAR):
        await forum.act(debate, Act.STAND, side)
    await forum.advance()
    return debate


async def test_an_answer_that_was_stored_counts_before_a_later_withdrawal(forum: Forum) -> None:
    await forum.reviewer()
    debate = await asked(forum)
    await forum.say(side="challenger", rationale="It is so.")
    await forum.act(debate, Act.WITHDRAW, BEAR)
    await round_of(forum, DEBATES.kind)
    await forum.later(HOUR)

    assert [task.state for task in await forum.tasks()] == [TaskState.ANSWERED]
    state = await forum.state(debate)
    assert (state["state"], state["resolution_method"]) == ("closed", "human_binding")


async def test_a_withdrawal_at_the_gate_leaves_the_finding_as_it_was(forum: Forum) -> None:
    """And not the challenger's own position, which counted provisionally."""
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    assert (await forum.state(debate))["final_position"] == "price_target 80.0 (bear)"
    await forum.act(debate, Act.WITHDRAW, BEAR)
    await forum.advance()

    state = await forum.state(debate)
    assert (state["state"], state.get("final_position"), state["provisional"]) == ("withdrawn", None, False)
    last = (await forum.resolutions(debate))[-1]
    assert last["winning_agent"] == "bull"
    assert [task.state for task in await forum.tasks()] == [TaskState.WITHDRAWN]


@pytest.mark.parametrize("value", [1e20, -1.7e308, 1.5])
async def test_values_of_any_size_are_decided(forum: Forum, value: float) -> None:
    debate = await forum.challenge(value=value)
    await forum.later(16 * MINUTE)
    now = await forum.now(debate)
    assert (now.state, now.challenger.value) == (DebateState.PROVISIONAL, value)
    await forum.answer(side="challenger", rationale="x" * 2000)
    assert (await forum.now(debate)).state is DebateState.CLOSED


async def test_a_rationale_that_could_not_be_recorded_is_refused(forum: Forum) -> None:
    await forum.reviewer()
    await asked(forum)
    with pytest.raises(BadInput, match="rationale"):
        await forum.say(side="challenger", rationale="x" * 2001)


async def test_a_value_is_not_changed_once_a_person_is_asked(forum: Forum) -> None:
    """What a side says then, and its evidence, reach the reviewer who asked for it."""
    await forum.reviewer()
    debate = await asked(forum)
    await forum.answer("evidence")
    with pytest.raises(TransitionRefused, match="stated until level 3"):
        await forum.act(debate, Act.RESPOND, BEAR, text="It is 500.", value=500.0)
    await forum.act(debate, Act.RESPOND, BEAR, text="See the filing.", evidence=["e-bear"])
    await forum.advance()

    [task] = await forum.tasks()
    side = task.package.challenger
    assert (side.text, side.value, side.evidence) == ("See the filing.", 80.0, ("e-bear",))
    await forum.later(9 * HOUR)
    assert (await forum.state(debate))["final_position"] == "price_target 80.0 (bear)"


async def test_a_debate_is_about_the_metric_of_the_finding(forum: Forum) -> None:
    with pytest.raises(BadInput, match="metric: is that of the finding, price_target"):
        await forum.challenge(metric="volatility", value=500.0)


async def test_the_disputed_finding_is_no_evidence(forum: Forum) -> None:
    debate = await forum.challenge()
    with pytest.raises(BadInput, match="evidence"):
        await forum.act(debate, Act.RESPOND, BULL, text="It says so itself.", evidence=["f-bull"])


async def test_the_last_gate_waits_for_debates(forum: Forum) -> None:
    """Also for one that becomes provisional after the answer was stored."""
    debate = await forum.challenge()
    await opened_gate(forum, 5)
    [gate] = await forum.world.rows("SELECT due_at FROM workflow.gate")
    assert gate["due_at"] is None
    with pytest.raises(TransitionRefused, match="1 debates of its analysis have not ended"):
        await passed(forum, 5)
    await forum.act(debate, Act.ACCEPT, BEAR)
    await forum.advance()

    stored = await forum.world.rows("SELECT 1 FROM lifecycle WHERE kind = 'gate' AND requested_at IS NULL")
    assert stored
    await forum.challenge("e-bull")
    forum.world.owner(
        "UPDATE lifecycle SET request = jsonb_build_object('state', 'VALIDATED', 'actor', 'ann', 'role', 'human_admin',"
        " 'reason', 'Fine.'), requested_at = imem_now() WHERE kind = 'gate'"
    )
    report = await round_of(forum, "gate")
    assert (report.refused, report.moved) == (1, {})
    assert [row["waits"] for row in await forum.world.rows("SELECT waits FROM workflow.gate")] == [True]


async def test_a_side_does_not_decide_its_own_debate(forum: Forum) -> None:
    await forum.world.say(claimed("f-ann", ADMIN.id))
    await forum.reviewer()
    debate = await forum.challenge("f-ann")
    await forum.later(16 * MINUTE)
    await forum.say(side="challenged", rationale="I am right.")
    report = await round_of(forum, "task")
    assert report.refused == 1
    assert (await forum.now(debate)).state is DebateState.LEVEL3


async def test_strangers_records_stop_no_debate(forum: Forum) -> None:
    taken = str(id_of("debate", BEAR.id, "f-bull"))
    core = {
        "subject_id": "company:MU", "topic": "Mine", "challenger_agent": "mallory", "challenged_agent": "bull",
        "participants": ["bull", "mallory"], "timestamp": "2026-01-05T00:00:00Z",
    }  # fmt: skip
    await forum.world.say({"record": "Debate", "core": {"id": taken, **core}}, actor=MALLORY)
    debate = await forum.challenge()
    assert debate.debate_id != taken
    assert (await forum.challenge()).debate_id == debate.debate_id, "a repeat returns it"

    turn = {
        "subject_id": "company:MU",
        "debate_id": debate.debate_id,
        "number": 2**31 - 1,
        "speaker": "mallory",
        "text": "!",
    }
    await forum.world.say(
        {"record": "DebateTurn", "core": {**turn, "speaker": "mallory", "text": "!"}},
        {"record": "Debate", "core": {"id": f"{debate.debate_id}/2", **core}},
        actor=MALLORY,
    )
    await forum.act(debate, Act.RESPOND, BULL, text="They are prepaid.")
    await forum.later(61 * MINUTE)
    await forum.answer("redebate", rationale="New filings are out.")
    assert (await forum.now(f"{debate.debate_id}/2.2")).state is DebateState.INITIATED


async def test_one_slow_debate_does_not_stop_the_others(forum: Forum, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await asked_twice(forum)

    async def slow(database: Any, pairs: Any, *more: Any, **named: Any) -> Any:
        if ("bull", "valuation") in pairs and not slow.seen:  # type: ignore[attr-defined]
            slow.seen = True  # type: ignore[attr-defined]
            raise BudgetExceeded("It was not there before the deadline.")
        return await agent_scores(database, pairs, *more, **named)

    slow.seen = False  # type: ignore[attr-defined]
    monkeypatch.setattr(running, "agent_scores", slow)
    report = await round_of(forum, DEBATES.kind)
    assert (report.failed, report.moved) == (1, {DEBATES.kind: 1})
    states = {(await forum.now(one)).state for one in (first, second)}
    assert DebateState.PROVISIONAL in states


@pytest.mark.spec("DB-1")
async def test_the_longest_way_takes_eight_hours(forum: Forum) -> None:
    """Acknowledged, with a judge who does not decide, and a reviewer who does not either."""
    await forum.reviewer()
    debate = await forum.challenge(judge="jim")
    await forum.act(debate, Act.ACKNOWLEDGE, BULL)
    for hours, state in ((1, DebateState.LEVEL2), (2, DebateState.LEVEL3)):
        await forum.later(hours * HOUR + 30 * SECOND)
        now = await forum.now(debate)
        assert (now.state, now.counts) == (state, "bear" if hours == 2 else None)
    await forum.later(8 * HOUR + 40 * SECOND)
    assert (await forum.now(debate)).state is DebateState.PROVISIONAL


@pytest.mark.spec("CR-13")
async def test_the_setting_chooses_which_verdict_counts(forum: Forum) -> None:
    """The same records: one basis decides where the other does not."""
    await scored(forum, "bull", 54, 6)
    await scored(forum, "bear", 33, 27)
    await forum.world.say(claimed("f-own", "bull"))
    states = {}
    for basis, finding in ((Basis.POSTERIOR, "f-bull"), (Basis.AS_DESIGNED, "e-bull")):
        forum.basis = basis
        debate = await asked(forum, finding=finding, evidence=["e-bear"], said=True)
        records = await forum.group("Debate", debate.debate_id, "records")
        assert records["basis"] == basis.value
        states[basis] = (await forum.now(debate)).state
        assert records[f"{basis.value}_resolved"] is (states[basis] is DebateState.CLOSED)
    assert len(set(states.values())) == 2


async def asked_twice(forum: Forum) -> tuple[Any, Any]:
    made = []
    for finding in ("f-bull", "e-bull"):
        debate = await forum.challenge(finding, priority=DebatePriority.SUPPORTING)
        for side in (BULL, BEAR):
            await forum.act(debate, Act.STAND, side)
        made.append(debate)
    return made[0], made[1]


async def test_what_is_not_recorded_is_not_done(forum: Forum) -> None:
    """An answer that seems to come from the future, since the clock was set back, waits until it does not."""
    await forum.reviewer()
    debate = await asked(forum)
    await forum.say(side="challenger", rationale="It is so.")
    forum.world.owner("UPDATE lifecycle SET requested_at = imem_now() + interval '1 hour' WHERE kind = 'task'")
    report = await round_of(forum, "task")
    if report.failed:
        assert (await forum.now(debate)).state is DebateState.LEVEL3
        async with forum.clock(2 * HOUR):
            await forum.advance()
    state = await forum.state(debate)
    assert (state["state"], state["resolution_method"]) == ("closed", "human_binding")
    assert (await forum.resolutions(debate))[-1]["winning_agent"] == "bear"
