"""Lessons are proposed, merged, decided on and delivered, in a journal of the test's own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from imem.journal.errors import BadInput, TransitionRefused
from imem.kg.kinds.enums import LessonSource
from imem.kg.kinds.learning import HumanInsight, Lesson, PostMortem
from imem.kg.kinds.patterns import Pattern
from imem.postmortem.lessons.gate import LessonDecision, LessonWording
from imem.postmortem.lessons.life import ACTOR
from imem.postmortem.lessons.states import says_the_opposite, says_the_same
from tests.credibility.conftest import World, cites, decision, finding
from tests.postmortem.lessons.parts import (
    DAY0,
    LINKS,
    PERSON,
    agent,
    decide,
    go_on,
    lesson,
    links,
    record,
    states,
    superseded,
    waiting,
)


async def reviewed_case(world: World, key: str = "case", patterns: tuple[str, ...] = ()) -> None:
    """Record a decision of ann that was off, and what a person answered about it."""
    flu = finding("f", DAY0, datetime(2026, 2, 1, tzinfo=UTC), probability=0.6)
    await world.say(flu, decision("d", DAY0), cites("d", "f", DAY0))
    case = PostMortem(id=key, decision_id="d", checkpoint=90, deviation=0.5, trigger_date=DAY0)
    await record(world, case)
    said = HumanInsight(
        id=f"{key}/insight", postmortem_id=key, primary_reason="timing", factors_missed="Inventories.",
        warning_signs_missed="Prices.", future_actions="Look.", foreseeability_rating=3, review_date=DAY0,
        patterns_to_revise=patterns or None,
    )  # fmt: skip
    await record(world, said, actor=PERSON)


async def test_a_lesson_waits_for_gate_6_and_no_agent_has_it(world: World) -> None:
    await world.say(agent("ann"))
    await record(world, lesson("l"))
    await go_on(world)

    assert await states(world) == {"l": "pending_gate6"}
    [item] = await waiting(world)
    assert (item.lesson_id, item.reviewed, item.confirmations, item.decision_ids) == ("l", False, 1, ())
    assert (item.insight, item.affected_domains) == (lesson("l").insight, ("flu",))
    assert await links(world) == []
    await go_on(world)
    assert await states(world) == {"l": "pending_gate6"}, "nothing is due"


async def test_what_a_person_reviewed_is_delivered_as_advice_and_applied_when_it_is_approved(world: World) -> None:
    await reviewed_case(world)
    await world.say(agent("ann"), agent("bob"), agent("cy", domains=["gas"]), agent("ref", "baseline"))
    await record(world, lesson("l", postmortem_id="case", affected_domains=None), actor=PERSON)
    await go_on(world)

    assert await states(world) == {"l": "pending_gate6"}
    [item] = await waiting(world)
    assert (item.reviewed, item.postmortem_id, item.decision_ids) == (True, "case", ("d",))
    assert item.affected_domains == ("flu",), "those of the findings that its decision cites"
    assert await links(world) == [(link, name) for link in LINKS for name in ("ann", "bob")]

    await world.say(agent("dan"))
    await decide(world, "l", LessonDecision.APPROVE)
    assert await states(world) == {"l": "approved"}, "dan does not have it yet"
    await go_on(world)
    assert await states(world) == {"l": "applied"}
    assert await links(world) == [(link, name) for link in LINKS for name in ("ann", "bob", "dan")]
    assert await waiting(world) == []
    with pytest.raises(TransitionRefused, match="applied"):
        await decide(world, "l", LessonDecision.APPROVE)


async def test_a_lesson_of_no_agent_is_applied_at_once(world: World) -> None:
    await record(world, lesson("l"))
    await go_on(world)
    await decide(world, "l", LessonDecision.APPROVE)
    assert await states(world) == {"l": "applied"}


async def test_a_rejected_lesson_stays_so(world: World) -> None:
    await record(world, lesson("l"))
    await go_on(world)
    with pytest.raises(BadInput, match="reason"):
        await decide(world, "l", LessonDecision.REJECT, " ")
    await decide(world, "l", LessonDecision.REJECT, "It is one case.")
    assert await states(world) == {"l": "rejected"}
    for what in (LessonDecision.APPROVE, LessonDecision.TEST_FIRST):
        with pytest.raises(TransitionRefused, match="rejected"):
            await decide(world, "l", what)
    [row] = await world.rows(
        "SELECT action_reason AS reason FROM memory_access_audit"
        " WHERE action = 'reject' AND request_context ->> 'kind' = 'lesson'"
    )
    assert row["reason"] == "It is one case."
    with pytest.raises(BadInput, match="lesson_id"):
        await decide(world, "none", LessonDecision.APPROVE)


async def test_a_person_approves_in_other_words(world: World) -> None:
    await record(world, lesson("l"))
    await go_on(world)
    wording = LessonWording(recommended_action="Look at inventories, but in cyclical sectors alone.")
    for what, words in ((LessonDecision.ADD_CAVEATS, None), (LessonDecision.APPROVE, wording)):
        with pytest.raises(BadInput, match="wording"):
            await decide(world, "l", what, wording=words)

    await decide(world, "l", LessonDecision.ADD_CAVEATS, "It is too wide.", wording)
    assert await states(world) == {"l": "applied"}
    [row] = await world.rows("SELECT actor, payload FROM event WHERE kind = 'correct.Lesson'")
    said = Lesson.model_validate(row["payload"]["core"])
    assert (row["actor"], said) == (
        "kate", lesson("l").model_copy(update={"recommended_action": wording.recommended_action})
    )  # fmt: skip


async def test_a_lesson_that_is_to_be_tested_first_goes_on_waiting(world: World) -> None:
    await record(world, lesson("l"))
    await go_on(world)
    await decide(world, "l", LessonDecision.TEST_FIRST, "Ten decisions with it.")
    assert await states(world) == {"l": "pending_gate6"}
    [item] = await waiting(world)
    assert item.notes == ("kate: Ten decisions with it.",)
    await decide(world, "l", LessonDecision.APPROVE)
    assert await states(world) == {"l": "applied"}


async def test_what_says_the_same_confirms_the_older_one(world: World) -> None:
    same = {"insight": "Inventories rise first.", "recommended_action": "Look at inventories before prices."}
    await record(world, lesson("l1", **same))
    await record(world, lesson("l2", **same | {"insight": "Inventories rise first!"}))
    await record(world, lesson("l3", **same, category="timing"), lesson("l4", **same, affected_domains=["gas"]))
    opposite = same | {
        "recommended_action": "Do not look at inventories before prices.",
        "insight": "Inventories rise.",
    }
    await record(world, lesson("o1", **opposite), lesson("o2", **same, contradicting_ids=["l1"]))
    await record(world, lesson("o3", **same, scope_sector="Energy"))
    await go_on(world)
    for key in ("o1", "o2", "o3"):
        await decide(world, key, LessonDecision.REJECT, "It says something else.")

    assert await states(world) == {
        "l1": "pending_gate6", "l2": "superseded", "l3": "pending_gate6", "l4": "pending_gate6",
        "o1": "rejected", "o2": "rejected", "o3": "rejected",
    }  # fmt: skip
    assert {one.lesson_id: one.confirmations for one in await waiting(world)} == {"l1": 2, "l3": 1, "l4": 1}
    assert await superseded(world) == [("l1", "l2")]

    await record(world, lesson("l5", **same, source=LessonSource.HUMAN_INSIGHT), actor=PERSON)
    await go_on(world)
    assert (await states(world))["l5"] == "pending_gate6", "what a person says is not buried in what nobody reviewed"
    await record(world, lesson("l6", **same, confirmations=3))
    await decide(world, "l1", LessonDecision.REJECT, "l5 says it.")
    await go_on(world)
    assert {one.lesson_id: one.confirmations for one in await waiting(world)} == {"l3": 1, "l4": 1, "l5": 4}


async def test_what_says_the_opposite_is_named_to_the_person_who_decides(world: World) -> None:
    said = {"insight": "Inventories rise first.", "recommended_action": "Look at inventories before prices."}
    against = said | {"recommended_action": "Don't look at inventories before prices."}
    await record(world, lesson("l1", **said))
    await record(world, lesson("l2", **against), lesson("l3", **against, category="timing"))
    await record(world, lesson("l4", insight="Something else.", contradicting_ids=["l1"]))
    await go_on(world)
    found = {one.lesson_id: one.contradicting_ids for one in await waiting(world)}
    assert found == {"l1": ("l2", "l4"), "l2": ("l1",), "l3": (), "l4": ("l1",)}


@pytest.mark.parametrize("no", ["Don't look", "Don\u2019t look", "Do not look", "Never look"])
def test_a_negation_is_one_however_it_is_written(no: str) -> None:
    """Of a long lesson, too, in which one word is few of all."""
    rest = " at the inventories of the supply chain of a company before its prices are compared with those of peers."
    one = lesson("a", insight="Inventories rise first.", recommended_action=f"Look{rest}")
    other = lesson("b", insight="Inventories rise first.", recommended_action=f"{no}{rest}")
    assert says_the_opposite(one, other)
    assert not says_the_same(one, other)


async def test_a_lesson_is_approved_in_the_place_of_another(world: World) -> None:
    await world.say(agent("ann"))
    await record(world, lesson("old"), lesson("new", insight="A newer insight."), lesson("odd", insight="An odd one."))
    await go_on(world)
    await decide(world, "old", LessonDecision.APPROVE)
    await go_on(world)
    assert (await states(world))["old"] == "applied"
    assert {one.lesson_id: one.replaceable for one in await waiting(world)} == {"new": ("old",), "odd": ("old",)}
    for what, other in ((LessonDecision.REPLACE, None), (LessonDecision.APPROVE, "old"), (LessonDecision.REPLACE, "x")):
        with pytest.raises(BadInput, match="replaces"):
            await decide(world, "new", what, replaces=other)
    with pytest.raises(TransitionRefused):
        await decide(world, "new", LessonDecision.REPLACE, replaces="odd")
    with pytest.raises(BadInput, match="replaces"):
        await decide(world, "new", LessonDecision.REPLACE, replaces="new")
    assert (await states(world))["new"] == "pending_gate6", "nothing is half done"

    await decide(world, "new", LessonDecision.REPLACE, "It is more exact.", replaces="old")
    await go_on(world)
    assert await states(world) == {"old": "superseded", "new": "applied", "odd": "pending_gate6"}
    assert await superseded(world) == [("new", "old")]
    await decide(world, "odd", LessonDecision.REPLACE, replaces="old")
    await go_on(world)
    assert (await states(world))["odd"] == "applied", "what it should replace is over already"
    assert await superseded(world) == [("new", "old")], "it replaced nothing"


async def test_a_state_that_is_recorded_with_a_lesson_is_kept(world: World) -> None:
    state = Lesson.State(state="retired", reviewed=True, applied=False, effectiveness_tracked=False)
    await record(world, lesson("l", state=state), writer="postmortem")
    await go_on(world)
    assert await states(world) == {"l": "retired"}
    assert await waiting(world) == []


@pytest.mark.spec("PM-12")
async def test_a_lesson_changes_no_pattern(world: World) -> None:
    """
    What a person would revise is proposed beside it, and linked as approved after Gate 6 alone.

    Before Gate 6 and after it, the pattern stays as it is.
    """
    status = Pattern.Status(status="active", quarantined=False)
    pattern = Pattern(pattern_id="p", name="Peaks", category="cycles", status=status)
    await record(world, pattern, actor=PERSON, writer="patterns")
    await reviewed_case(world, patterns=("p", "unknown"))
    await world.say(agent("ann"))

    async def effects() -> tuple[set[str], list[Any]]:
        kinds = {row["kind"] for row in await world.rows("SELECT kind FROM event WHERE actor = %s", ACTOR.id)}
        heads = "SELECT kind, key, grp, position FROM record_head WHERE kind <> 'Lesson' AND kind NOT LIKE 'link.%%'"
        return kinds, await world.rows(f"{heads} ORDER BY 1, 2, 3")

    _, before = await effects()
    await record(world, lesson("l", postmortem_id="case"))
    await go_on(world)

    links_of = {f"link.{name}" for name in LINKS}
    assert await effects() == ({"record.Lesson", "link.AFFECTS_PATTERN", *links_of}, before)
    proposed = await world.rows("SELECT payload ->> 'to_key' AS key FROM event WHERE kind = 'link.AFFECTS_PATTERN'")
    assert [row["key"] for row in proposed] == ["p"]
    [item] = await waiting(world)
    assert item.patterns == {"p": "Peaks"}
    await decide(world, "l", LessonDecision.APPROVE, patterns=item.patterns, task_id="learning-1")
    assert await effects() == ({"record.Lesson", "link.AFFECTS_PATTERN", "link.REVISED_BY", *links_of}, before)
    [revised] = await world.rows("SELECT payload FROM event WHERE kind = 'link.REVISED_BY'")
    said = revised["payload"]
    assert (said["from_key"], said["to_key"], said["props"]) == ("p", "l", {"task_id": "learning-1"})


@pytest.mark.parametrize("decided", [False, True])
async def test_a_merged_lesson_loses_no_revision_of_a_pattern(world: World, *, decided: bool) -> None:
    """The older one proposes it while it waits; where it is decided, the newer one is asked about by itself."""
    status = Pattern.Status(status="active", quarantined=False)
    pattern = Pattern(pattern_id="p", name="Peaks", category="cycles", status=status)
    await record(world, pattern, actor=PERSON, writer="patterns")
    same = {"insight": "Inventories rise first.", "recommended_action": "Look at inventories before prices."}
    await record(world, lesson("old", **same), actor=PERSON)
    await go_on(world)
    if decided:
        await decide(world, "old", LessonDecision.APPROVE)
        await go_on(world)
    await reviewed_case(world, patterns=("p",))
    await record(world, lesson("new", **same, postmortem_id="case"))
    await go_on(world)

    asked = "new" if decided else "old"
    assert {one.lesson_id: one.patterns for one in await waiting(world)} == {asked: {"p": "Peaks"}}
    assert (await states(world))["old"] == ("applied" if decided else "pending_gate6")
    assert (await states(world))["new"] == ("pending_gate6" if decided else "superseded")


async def test_each_state_ends_what_caches_hold_of_lessons(world: World) -> None:
    """A cached section that shows lessons is valid under one epoch alone; a lesson without a state is in none."""

    async def epoch() -> int:
        return int((await world.rows("SELECT epoch FROM pattern_epoch"))[0]["epoch"])

    before = await epoch()
    await record(world, lesson("l"))
    assert await epoch() == before
    await go_on(world)
    assert await epoch() == before + 1
    await decide(world, "l", LessonDecision.REJECT, "It is one case.")
    assert await epoch() == before + 2
