"""Debates end: by the sides, by records, by a judge, by a person, or with the cautious position; never in silence."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from imem.checkpoints.pauses import human_gates
from imem.debates.service import Debates
from imem.debates.states import Act
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused, UnknownDebate
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.kinds.enums import DebatePriority, DebateState
from imem.review.states import TaskState

from ..conftest import finding, outcome, text  # noqa: TID252 - a folder of its own
from .conftest import ADMIN, BEAR, BULL, ENOUGH, HOUR, LIMITS, LONG_AGO, Forum, claimed

CHAOS = bool(os.environ.get("IMEM_CHAOS"))
MINUTE = timedelta(minutes=1)
CRITICAL = DebatePriority.CRITICAL_PATH
TUTOR = Actor("tutor", Role.AGENT)


# Level 1


@pytest.mark.spec("DB-14")
async def test_a_side_accepts(forum: Forum) -> None:
    debate = await forum.challenge()
    assert (debate.state, debate.challenger.value, debate.challenged.value) == (DebateState.INITIATED, 80.0, 100.0)
    await forum.act(debate, Act.ACKNOWLEDGE, BULL)
    await forum.advance()
    assert (await forum.now(debate)).state is DebateState.LEVEL1
    await forum.act(debate, Act.RESPOND, BULL, text="They are prepaid.", evidence=["e-bull"])
    await forum.act(debate, Act.ACCEPT, BEAR, text="Convinced.")
    await forum.advance()

    now = await forum.now(debate)
    assert (now.state, now.counts, now.turn) == (DebateState.CLOSED, "bull", None)
    state = await forum.state(debate)
    assert (state["resolution_level"], state["resolution_method"], state["provisional"]) == (
        "1_agent",
        "consensus",
        False,
    )
    [end] = await forum.resolutions(debate)
    assert (end["winning_agent"], end["winning_position"]) == ("bull", "price_target 100.0 (bull)")
    assert await forum.audit(debate) == [
        ("challenge", "bear", "initiated"),
        ("acknowledge", "bull", "level1"),
        ("agree", "bear", "closed"),
    ]


async def test_the_challenger_withdraws(forum: Forum) -> None:
    debate = await forum.challenge()
    await forum.act(debate, Act.WITHDRAW, BEAR)
    await forum.advance()
    assert (await forum.state(debate))["state"] == "withdrawn"
    assert await forum.resolutions(debate) == []


@pytest.mark.spec("DB-2")
async def test_level_1_ends_in_time(forum: Forum) -> None:
    """Without an acknowledgement after 15 minutes; with one 60 minutes after the challenge."""
    await forum.reviewer(capacity=9)
    silent, answered = await forum.challenge(), await forum.challenge("e-bull")
    await forum.act(answered, Act.ACKNOWLEDGE, BULL)
    await forum.later(15 * MINUTE - timedelta(seconds=30))
    assert [(await forum.now(one)).state.value for one in (silent, answered)] == ["initiated", "level1"]
    await forum.later(15 * MINUTE + timedelta(seconds=30))
    assert [(await forum.now(one)).state.value for one in (silent, answered)] == ["level3", "level1"]
    await forum.later(60 * MINUTE - timedelta(seconds=30))
    assert (await forum.now(answered)).state is DebateState.LEVEL1
    await forum.later(60 * MINUTE + timedelta(seconds=30))
    assert (await forum.now(answered)).state is DebateState.LEVEL3


async def test_limits_differ_by_priority(forum: Forum) -> None:
    """Those of a debate are what was set when it was opened; a person's as well."""
    await forum.reviewer(capacity=9)
    limits = replace(LIMITS, acknowledge="900,critical_path=60", answer="21600,critical_path=3600")
    forum.debates = Debates(Gateway(forum.world.database, BULL), limits)
    urgent = await forum.challenge(priority=DebatePriority.CRITICAL_PATH)
    other = await forum.challenge("e-bull")
    await forum.later(2 * MINUTE)
    assert [(await forum.now(one)).state.value for one in (urgent, other)] == ["level3", "initiated"]
    await forum.later(59 * MINUTE)
    assert (await forum.now(urgent)).state is DebateState.LEVEL3
    await forum.later(63 * MINUTE)
    assert [(await forum.now(one)).state.value for one in (urgent, other)] == ["provisional", "level3"]


async def test_both_sides_stand(forum: Forum) -> None:
    """Level 1 ends at once: a debate between programs takes seconds."""
    debate = await forum.challenge()
    await forum.act(debate, Act.STAND, BEAR)
    await forum.advance()
    assert (await forum.now(debate)).state is DebateState.INITIATED
    await forum.act(debate, Act.STAND, BULL)
    await forum.advance()
    assert (await forum.now(debate)).state is DebateState.PROVISIONAL
    assert [after for _, _, after in await forum.audit(debate)] == ["initiated", "level2", "provisional"]


# Level 2


async def scored(forum: Forum, agent: str, right: int, wrong: int) -> None:
    """Let an agent have settled claims in the domain."""
    lines = []
    for number in range(right + wrong):
        known, at = LONG_AGO + timedelta(days=number), LONG_AGO + timedelta(days=number, hours=12)
        metric = f"{agent}-{number}"
        subject = f"market:{metric}"
        said = finding(
            f"{agent}-{number}", known, at, agent=agent, domain="valuation", subject_id=subject, probability=0.9
        )
        lines += [said, outcome(f"o-{metric}", at, at, float(number < right), subject_id=subject)]
    await forum.world.say(*lines)
    await forum.world.settle()


@pytest.mark.spec("CR-13")
async def test_records_decide_and_both_verdicts_are_kept(forum: Forum) -> None:
    await scored(forum, "bull", 58, 2)
    await scored(forum, "bear", 12, 48)
    debate = await forum.challenge(evidence=["e-bear"])
    await forum.act(debate, Act.RESPOND, BULL, text="Prepaid.", evidence=["e-bull"])
    await forum.act(debate, Act.STAND, BULL)
    await forum.act(debate, Act.STAND, BEAR)
    await forum.advance()

    state, records = await forum.state(debate), await forum.group("Debate", debate.debate_id, "records")
    assert (state["state"], state["resolution_method"], state["resolution_level"]) == (
        "closed", "credibility_weighted", "2_facilitator",
    )  # fmt: skip
    assert (records["reason"], records["basis"], records["posterior_resolved"]) == ("differential", "posterior", True)
    assert records["posterior_differential"] > records["posterior_threshold"]
    assert {"as_designed_resolved", "as_designed_differential"} <= records.keys()
    assert records["challenged_n"] == pytest.approx(60)
    assert (await forum.now(debate)).counts == "bull"
    [end] = await forum.resolutions(debate)
    assert end["winning_agent"] == "bull"
    assert end["credibility_differential"] == pytest.approx(records["posterior_differential"])


async def test_what_records_do_not_decide_goes_to_a_person(forum: Forum) -> None:
    """Without evidence of both sides, on the critical path, or without records; the reason is stored."""
    await forum.reviewer(capacity=9)
    await scored(forum, "bull", 58, 2)
    await scored(forum, "bear", 12, 48)
    critical = await forum.challenge(evidence=["e-bear"], priority=CRITICAL)
    await forum.act(critical, Act.RESPOND, BULL, text="Prepaid.", evidence=["e-bull"])
    bare = await forum.challenge("e-bull")
    for one in (critical, bare):
        await forum.act(one, Act.STAND, BULL)
        await forum.act(one, Act.STAND, BEAR)
    await forum.advance()

    tasks = await forum.tasks(TaskState.OPEN)
    assert [task.package.escalated for task in tasks] == ["critical_path", "missing_evidence"]
    assert {task.package.recommended for task in tasks} == {"challenged"}
    for one in (critical, bare):
        assert (await forum.group("Debate", one.debate_id, "records"))["posterior_resolved"] is True
        assert (await forum.state(one))["provisional"] is True


async def test_a_judge_decides_or_is_late(forum: Forum) -> None:
    await forum.reviewer(capacity=9)
    judged, late = await forum.challenge(judge="tutor"), await forum.challenge("e-bull", judge="tutor")
    with pytest.raises(TransitionRefused, match="too late to judge"):
        await forum.act(judged, Act.JUDGE, TUTOR, winner="bull", text="Early.")
    for one in (judged, late):
        await forum.act(one, Act.STAND, BULL)
        await forum.act(one, Act.STAND, BEAR)
    await forum.advance()
    now = await forum.now(judged)
    assert (now.state, now.turn) == (DebateState.LEVEL2, "tutor")
    with pytest.raises(PermissionDenied):
        await forum.act(judged, Act.JUDGE, BULL, winner="bull", text="Me.")
    with pytest.raises(BadInput, match="winner"):
        await forum.act(judged, Act.JUDGE, TUTOR, winner="nobody", text="Neither.")
    await forum.act(judged, Act.JUDGE, TUTOR, winner="bear", text="Margins do shrink.")
    await forum.advance()
    state = await forum.state(judged)
    assert (await forum.now(judged)).counts == "bear"
    assert (state["state"], state["resolution_method"]) == ("closed", "judged")
    assert (await forum.audit(judged))[-1] == ("decide", "tutor", "closed")
    # Against the finding: a lost challenge has the scores of its agent published anew.
    due = await forum.world.rows("SELECT key FROM due_row WHERE kind = 'changed'")
    assert "bull/valuation" in {row["key"] for row in due}

    await forum.later(HOUR + MINUTE)
    assert (await forum.now(late)).state is DebateState.LEVEL3


# Level 3


@pytest.mark.spec("DB-1", "DB-8", "GT-7")
async def test_nobody_answers(forum: Forum) -> None:
    """A conservative value is shown from level 3 on; after six hours it counts provisionally."""
    await forum.reviewer()
    debate = await forum.challenge()
    await forum.later(15 * MINUTE + timedelta(seconds=30))
    asked = await forum.state(debate)
    assert (asked["state"], asked["resolution_level"], asked["provisional"]) == ("level3", "3_human", True)
    assert asked["final_position"] == "price_target 80.0 (bear)"
    assert (await forum.now(debate)).counts == "bear"

    await forum.later(6 * HOUR + 20 * MINUTE)

    state = await forum.state(debate)
    assert (state["state"], state["resolution_level"], state["resolution_method"], state["provisional"]) == (
        "provisional", "4_fallback", "conservative_default", True,
    )  # fmt: skip
    assert state["final_position"] == "price_target 80.0 (bear)"
    now = await forum.now(debate)
    assert (now.provisional, now.counts) == (True, "bear")
    [end] = await forum.resolutions(debate)
    assert end["winning_agent"] == "bear"


@pytest.mark.spec("DB-5", "GT-9")
async def test_five_debates_and_one_expert(forum: Forum) -> None:
    """Three are active; the default of the others applies at once, whatever their priority."""
    await forum.reviewer()
    await forum.world.say(*(claimed(f"f-{n}", "bull") for n in range(5)))
    order = (
        DebatePriority.SUPPORTING,
        DebatePriority.VALUATION,
        DebatePriority.SUPPORTING,
        CRITICAL,
        DebatePriority.VALUATION,
    )
    opened = []
    for number, priority in enumerate(order):
        debate = await forum.challenge(f"f-{number}", priority=priority)
        await forum.act(debate, Act.STAND, BULL)
        await forum.act(debate, Act.STAND, BEAR)
        await forum.advance()
        opened.append(debate)
    states = [(await forum.now(one)).state.value for one in opened]
    assert states == ["level3", "level3", "level3", "provisional", "provisional"]


@pytest.mark.spec("DB-6")
async def test_the_inbox_lists_the_critical_path_first(forum: Forum) -> None:
    await forum.reviewer()
    await forum.world.say(*(claimed(f"f-{n}", "bull") for n in range(3)))
    for number, priority in enumerate((DebatePriority.SUPPORTING, DebatePriority.VALUATION, CRITICAL)):
        await forum.challenge(f"f-{number}", priority=priority)
    await forum.later(16 * MINUTE)
    listed = [task.package.priority.value for task in await forum.tasks(TaskState.OPEN)]
    assert listed == ["critical_path", "valuation", "supporting"]


@pytest.mark.spec("GT-8")
async def test_evidence_is_asked_for_once(forum: Forum) -> None:
    await forum.reviewer()
    debate = await forum.challenge()
    await forum.act(debate, Act.STAND, BULL)
    await forum.act(debate, Act.STAND, BEAR)
    await forum.advance()
    [before] = await forum.tasks()
    await forum.answer("evidence")
    [after] = await forum.tasks()
    assert before.due_at is not None
    assert after.due_at == before.due_at + 2 * HOUR
    with pytest.raises(TransitionRefused, match="More time was given before"):
        await forum.answer("evidence")
    await forum.later(7 * HOUR)
    assert (await forum.now(debate)).state is DebateState.LEVEL3
    await forum.act(debate, Act.RESPOND, BULL, text="Here it is.", evidence=["e-bull"])
    await forum.later(8 * HOUR + MINUTE)
    assert (await forum.now(debate)).state is DebateState.PROVISIONAL


@pytest.mark.spec("CR-17")
async def test_a_person_decides_against_the_finding(forum: Forum) -> None:
    """That is binding; it is recorded as the person's override of the finding."""
    await forum.reviewer()
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await forum.answer(side="challenger", rationale="Margins did shrink.")
    state = await forum.state(debate)
    assert (state["state"], state["resolution_level"], state["resolution_method"], state["provisional"]) == (
        "closed", "3_human", "human_binding", False,
    )  # fmt: skip
    rows = await forum.world.rows(
        "SELECT actor, payload -> 'core' AS core FROM event WHERE kind = 'record.HumanOverride'"
    )
    [override] = rows
    core = override["core"]
    assert (override["actor"], core["agent"], core["finding_id"], core["domain"]) == (
        "ann",
        "bull",
        "f-bull",
        "valuation",
    )
    due = await forum.world.rows("SELECT queue, kind FROM due_row WHERE kind = 'HumanOverride'")
    assert [row["queue"] for row in due] == ["scores"]


async def test_a_person_decides_for_the_finding(forum: Forum) -> None:
    await forum.reviewer()
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await forum.answer(side="challenged")
    [end] = await forum.resolutions(debate)
    assert end["winning_agent"] == "bull"
    assert await forum.world.rows("SELECT 1 FROM event WHERE kind = 'record.HumanOverride'") == []


# After the default


@pytest.mark.spec("DB-10")
@pytest.mark.parametrize(("value", "asks"), [(89.0, True), (91.0, False)])
async def test_an_override_asks_for_reruns_above_the_threshold(forum: Forum, value: float, *, asks: bool) -> None:
    """The finding says 100: 89 is a change of 0.11, 91 of 0.09; an analysis that rests on it is told, each once."""
    await forum.world.say(
        claimed("f-rests", "carl", analysis="a-2"),
        {
            "link": "CITES", "from": {"Finding": "f-rests"}, "to": {"Finding": "f-bull"},
            "known_at": "2026-01-06T00:00:00Z", "props": {"at": "2026-01-06T00:00:00Z", "rank": 1},
        },
        {
            "link": "CITES", "from": {"Finding": "f-bull"}, "to": {"Finding": "f-rests"},
            "known_at": "2026-01-06T00:00:00Z", "props": {"at": "2026-01-06T00:00:00Z", "rank": 1},
        },
    )  # fmt: skip
    debate = await forum.challenge(value=value)
    await forum.later(16 * MINUTE)
    assert (await forum.now(debate)).state is DebateState.PROVISIONAL
    assert [one.package.dependants for one in await forum.tasks()] == [("a-2",)]
    await forum.answer(side="challenger", rationale="It is so.")

    state = await forum.state(debate)
    assert (state["state"], state["resolution_method"], state["resolution_level"]) == (
        "closed",
        "override",
        "5_gate_review",
    )
    assert state["override_window_closed"] is not None
    ends = await forum.resolutions(debate)
    review = await forum.group("DebateResolution", ends[-1]["id"], "review")
    assert review["human_override"] is True
    assert review["downstream_impact"] == [f"{'rerun' if asks else 'noted'}: a-2"]
    told = await forum.world.rows("SELECT analysis_id FROM workflow.alert WHERE kind = 'POSITION_OVERRIDDEN'")
    assert [row["analysis_id"] for row in told] == (["a-2"] if asks else [])


async def test_a_default_is_confirmed(forum: Forum) -> None:
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await forum.answer("confirm")
    state = await forum.state(debate)
    assert (state["state"], state["provisional"], state["resolution_method"]) == (
        "closed",
        False,
        "conservative_default",
    )
    assert state["final_position"] == "price_target 80.0 (bear)"
    assert len(await forum.resolutions(debate)) == 1


async def test_a_person_asks_for_another_debate(forum: Forum) -> None:
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await forum.answer("redebate", rationale="New filings are out.")
    assert (await forum.state(debate))["state"] == "superseded"
    again = await forum.now(f"{debate.debate_id}/2")
    assert (again.state, again.challenger.agent, again.challenger.value) == (DebateState.INITIATED, "bear", 80.0)
    links = await forum.world.rows(
        "SELECT payload ->> 'from_key' AS a, payload ->> 'to_key' AS b FROM event WHERE kind = 'link.SUPERSEDES'"
    )
    assert [(row["a"], row["b"]) for row in links] == [(again.debate_id, debate.debate_id)]
    await forum.act(again, Act.ACCEPT, BULL)
    await forum.advance()
    assert (await forum.now(again)).state is DebateState.CLOSED


async def opened_gate(forum: Forum, gate: int, analysis: str = "a-1") -> None:
    """Let the analysis run, and open a gate of it."""
    forum.world.owner(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES (%s, 'company:MU', imem_now())"
        " ON CONFLICT DO NOTHING",
        analysis,
    )
    await human_gates.open_gate(forum.world.database, analysis, gate, due_at=None, by=ADMIN, deadline=ENOUGH)


async def rejected(forum: Forum, gate: int, analysis: str = "a-1") -> None:
    """Reject the analysis for good; the pipelines have not seen it yet."""
    await human_gates.answer_gate(
        forum.world.database, analysis, gate, "reject_for_good", reason="No.", by=ADMIN, deadline=ENOUGH
    )


async def passed(forum: Forum, gate: int) -> None:
    await human_gates.answer_gate(
        forum.world.database, "a-1", gate, "validate", reason="Fine.", by=ADMIN, deadline=ENOUGH
    )
    await forum.advance()


@pytest.mark.spec("DB-9")
async def test_an_open_window_keeps_an_analysis_from_being_finalised(forum: Forum) -> None:
    """A gate that nobody answered leaves the window open; gate 5 is passed once a person has reviewed the default."""
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await opened_gate(forum, 4)
    await forum.later(25 * HOUR)
    assert (await forum.now(debate)).state is DebateState.PROVISIONAL
    await opened_gate(forum, 5)
    with pytest.raises(TransitionRefused, match="1 review tasks of its analysis are not reviewed"):
        await passed(forum, 5)
    await forum.answer("confirm")
    await passed(forum, 5)
    assert (await forum.now(debate)).state is DebateState.CLOSED


async def test_a_gate_closes_the_window(forum: Forum) -> None:
    """After gate 5 was rejected for good, what nobody reviewed stands."""
    debate = await forum.challenge()
    await forum.later(16 * MINUTE)
    await opened_gate(forum, 5)
    await rejected(forum, 5)
    await forum.advance()
    state = await forum.state(debate)
    assert (state["state"], state["provisional"], state["resolution_method"]) == (
        "closed",
        False,
        "conservative_default",
    )
    assert state["override_window_closed"] is not None


@pytest.mark.spec("DB-11")
async def test_deadlines_outlive_the_process(forum: Forum) -> None:
    """They are rows: whoever looks next finds what is due, once, whatever else has been restarted meanwhile."""
    debate = await forum.challenge()
    await forum.act(debate, Act.ACKNOWLEDGE, BULL)
    await forum.advance()
    before = (await forum.now(debate)).until
    await forum.world.pipelines.close()
    forum.world.pipelines = Database(forum.world.pipeline_url, size=4)
    forum.world.engine = Gateway(forum.world.pipelines, forum.world.engine.actor)
    await forum.advance()
    assert (await forum.now(debate)).until == before
    await forum.later(61 * MINUTE)
    await forum.later(62 * MINUTE)
    assert [after for _, _, after in await forum.audit(debate)] == ["initiated", "level1", "level2", "provisional"]


@pytest.mark.spec("DB-12")
@pytest.mark.longer
async def test_an_answer_races_the_end_of_its_time(forum: Forum) -> None:
    """One outcome each: the decision of the person, or the default and then its override."""
    await forum.reviewer(capacity=9)
    ends = Counter[str]()
    for number in range(1_000 if CHAOS else 12):
        await forum.world.say(claimed(f"r-{number}", "bull"))
        debate = await forum.challenge(f"r-{number}")
        for side in (BULL, BEAR):
            await forum.act(debate, Act.STAND, side)
        await forum.advance()
        async with forum.clock(7 * HOUR, application=False):
            await asyncio.gather(forum.advance(), forum.say(side="challenger", rationale="So it is."))
            await forum.advance()
        state, resolutions = await forum.state(debate), await forum.resolutions(debate)
        assert (state["state"], state["provisional"]) == ("closed", False)
        assert len(resolutions) == (2 if state["resolution_method"] == "override" else 1)
        assert resolutions[-1]["winning_agent"] == "bear"
        ends[state["resolution_method"]] += 1
    assert set(ends) <= {"human_binding", "override"}


@pytest.mark.spec("CR-18")
async def test_a_side_that_people_override_wins_nothing(forum: Forum) -> None:
    """What its records would decide goes on to a person, where the people were right."""
    await scored(forum, "bull", 60, 60)
    await scored(forum, "bear", 2, 58)
    moment = datetime.now(UTC)
    await forum.world.say(
        *(
            {
                "record": "HumanOverride",
                "known_at": text(moment - timedelta(days=70 - number)),
                "core": {
                    "id": f"h-{number}", "agent": "bull", "domain": "valuation", "finding_id": f"bull-{60 + number}",
                    "reason": "flawed_logic", "overridden_at": text(moment - timedelta(days=70 - number)),
                },
            }
            for number in range(60)
        ),
        actor=Actor("ann", Role.HUMAN_ADMIN, may_import=True),
    )  # fmt: skip
    await forum.world.settle()
    debate = await forum.challenge(evidence=["e-bear"])
    await forum.act(debate, Act.RESPOND, BULL, text="Prepaid.", evidence=["e-bull"])
    for side in (BULL, BEAR):
        await forum.act(debate, Act.STAND, side)
    await forum.advance()
    records = await forum.group("Debate", debate.debate_id, "records")
    assert records["reason"] == "override_flag"
    assert (await forum.state(debate))["state"] == "provisional"


# Bad input


async def test_a_challenge_is_refused(forum: Forum) -> None:
    """Of a finding that does not exist, of one's own, of what was challenged otherwise, with wrong arguments."""
    for wrong, field in (
        ({"finding": "unknown"}, "finding_id"),
        ({"by": BULL}, "finding_id"),
        ({"judge": "bull"}, "judge"),
        ({"value": float("nan")}, "value"),
        ({"value": "buy"}, "value"),
        ({"evidence": ["unknown"]}, "evidence.0"),
        ({"evidence": ["f-bull"]}, "evidence"),
    ):
        with pytest.raises(BadInput) as refused:
            await forum.challenge(**wrong)
        assert refused.value.field == field, wrong
    assert await forum.world.rows("SELECT 1 FROM lifecycle WHERE kind = 'debate'") == []
    assert await forum.world.rows("SELECT 1 FROM event WHERE kind = 'record.Debate'") == []

    first, again = await asyncio.gather(forum.challenge(), forum.challenge())
    assert first.debate_id == again.debate_id
    with pytest.raises(BadInput, match="was challenged by you before"):
        await forum.challenge(basis="Another reason.")


async def test_an_act_is_refused(forum: Forum) -> None:
    debate = await forum.challenge()
    stranger = Actor("carl", Role.AGENT)
    for act, by in ((Act.ACKNOWLEDGE, BEAR), (Act.WITHDRAW, BULL), (Act.RESPOND, stranger), (Act.JUDGE, stranger)):
        with pytest.raises(PermissionDenied):
            await forum.act(debate, act, by, text="Hm.")
    with pytest.raises(UnknownDebate):
        await forum.act("unknown", Act.STAND, BEAR)
    with pytest.raises(BadInput, match="value"):
        await forum.act(debate, Act.RESPOND, BULL, text="Inf.", value=float("inf"))
    await forum.act(debate, Act.ACCEPT, BULL)
    with pytest.raises(TransitionRefused, match="bull has ended the debate: accept"):
        await forum.act(debate, Act.WITHDRAW, BEAR)
    async with forum.clock(16 * MINUTE):
        late = await forum.challenge("e-bull")
    async with forum.clock(40 * MINUTE):
        with pytest.raises(TransitionRefused, match="The time of initiated is over"):
            await forum.act(late, Act.ACCEPT, BULL)


async def test_an_act_is_stored_once(forum: Forum) -> None:
    debate = await forum.challenge()
    for _ in range(2):
        await forum.act(debate, Act.RESPOND, BULL, text="They are prepaid.")
    turns = await forum.world.rows(
        "SELECT payload #>> '{core,speaker}' AS speaker, payload #>> '{core,number}' AS number FROM event"
        " WHERE kind = 'record.DebateTurn' ORDER BY position"
    )
    assert [(row["number"], row["speaker"]) for row in turns] == [("1", "bear"), ("2", "bull")]


async def test_debates_are_listed_for_their_sides(forum: Forum) -> None:
    debate = await forum.challenge(judge="tutor")
    for name, expected in (("bull", 1), ("bear", 1), ("tutor", 1), ("carl", 0)):
        found = await forum.debates.running(agent=name, analysis_id=None, limit=9, deadline=ENOUGH)
        assert len(found) == expected
    await forum.act(debate, Act.WITHDRAW, BEAR)
    await forum.advance()
    assert await forum.debates.running(agent="bull", analysis_id="a-1", limit=9, deadline=ENOUGH) == []
