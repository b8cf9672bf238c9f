"""Plans: descendants and not siblings, completed and nothing less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.pauses.plan import (
    AgentState,
    Begin,
    Plan,
    Progress,
    Restart,
    checked,
    descendants,
    plan,
    plan_of,
    ready,
    restricted,
)
from imem.journal.errors import BadInput

GRAPH = {name: definition.after for name, definition in Definitions.read().agents.items()}
NINE = sorted(GRAPH)
DONE, ON, NOT = Progress.COMPLETED, Progress.IN_PROGRESS, Progress.NOT_BEGUN


def states(failed: tuple[str, ...] = (), **progress: Progress) -> list[AgentState]:
    return [
        AgentState(
            name, progress.get(name, NOT), checkpointed=progress.get(name, NOT) is not NOT, failed=name in failed
        )
        for name in NINE
    ]


def test_a_failed_agent_its_descendants_and_its_siblings() -> None:
    """The failed one goes on, its child that had begun begins anew, a sibling in progress goes on, one done is kept."""
    found = plan(
        states(
            ("business_research",),
            screening=DONE, business_research=ON, financial_analyst=DONE, strategy_analyst=ON, valuation=ON,
        ),
        GRAPH,
    )  # fmt: skip

    assert found.restart == (
        Restart("business_research", Begin.CHECKPOINT),
        Restart("strategy_analyst", Begin.CHECKPOINT),
        Restart("valuation", Begin.CLEAN),
    )
    assert found.skip == ("financial_analyst", "screening")
    assert found.wait == ("debate_facilitator", "news_monitor", "qc_agent", "report_writer")


def test_an_agent_in_progress_without_a_checkpoint_begins_at_the_beginning() -> None:
    found = plan([AgentState("screening", ON, checkpointed=False, failed=True)], GRAPH)

    assert found.restart == (Restart("screening", Begin.CLEAN),)


@given(st.data())
def test_whatever_failed_every_agent_has_its_place(data: st.DataObject) -> None:
    """Each agent stands once; nobody outside the failed and their descendants begins anew for their sake."""
    progress = {name: data.draw(st.sampled_from(Progress), label=name) for name in NINE}
    begun = [name for name in NINE if progress[name] is not NOT]
    failed = tuple(data.draw(st.sets(st.sampled_from(begun)), label="failed")) if begun else ()
    found = plan(states(failed, **progress), GRAPH)

    behind = descendants(GRAPH, failed)
    clean = {one.agent_type for one in found.restart if one.begin is Begin.CLEAN}
    assert sorted(found.agents) == NINE
    assert clean == {name for name in behind if progress[name] is not NOT}
    assert {name for name in NINE if progress[name] is DONE and name not in behind and name not in failed} == set(
        found.skip
    )
    assert set(found.wait) == {name for name in NINE if progress[name] is NOT}
    assert checked(found, states(failed, **progress), GRAPH) == found


@pytest.mark.spec("CK-38")
@given(st.sets(st.sampled_from(NINE)), st.sets(st.sampled_from(NINE)))
def test_ready_means_that_every_parent_has_completed(present: set[str], completed: set[str]) -> None:
    """Also where agents between them take no part: order passes through those."""
    around = restricted(GRAPH, present)
    full = {name: descendants(GRAPH, [name]) for name in NINE}
    for name in ready(around, completed & present, present - completed):
        ancestors = {other for other in present if name in full[other]}
        nearest = {
            one for one in ancestors if not any(one in full[other] and other in full[one] for other in ancestors)
        }
        assert around[name] <= completed
        # Whoever is before it, and not before another one before it, has completed.
        assert {one for one in nearest if not full[one] & ancestors} <= completed


def test_agents_that_wait_for_themselves_are_refused() -> None:
    with pytest.raises(BadInput, match="depends_on"):
        restricted({"a": ("b",), "b": ("a",)}, ["a"])


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "resume_plan"),
        ({"again": []}, "resume_plan.again"),
        ({"skip": "screening"}, "resume_plan.skip"),
        ({"skip": [3]}, "resume_plan.skip.0"),
        ({"wait": ["screening", "screening"]}, "resume_plan.wait.1"),
        ({"restart": {"screening": "anew"}}, "resume_plan.restart.screening"),
    ],
)
def test_a_plan_of_another_shape_is_refused_by_its_field(document: object, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        plan_of(document)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (Plan(skip=("astrologer",)), "resume_plan.skip"),
        (Plan(restart=(Restart("screening", Begin.CLEAN),), skip=("screening",)), "resume_plan.skip"),
        (Plan(skip=("business_research",)), "resume_plan.skip"),
        (Plan(restart=(Restart("valuation", Begin.CHECKPOINT),)), "resume_plan.restart"),
        (Plan(wait=("business_research",)), "resume_plan.wait"),
        (Plan(restart=(Restart("screening", Begin.CLEAN),)), "resume_plan.skip"),
    ],
)
def test_a_plan_that_would_not_do_is_refused_by_its_field(given: Plan, field: str) -> None:
    """Unknown, twice, unfinished, without a checkpoint, begun; and kept though what it rests on is made anew."""
    present = states(screening=DONE, financial_analyst=DONE, business_research=ON)
    with pytest.raises(BadInput) as refused:
        checked(given, present, GRAPH)
    assert refused.value.field == field


def test_a_plan_says_the_same_after_a_row() -> None:
    found = plan(states(("screening",), screening=ON, valuation=ON), GRAPH)

    assert plan_of(found.to_dict()) == found
