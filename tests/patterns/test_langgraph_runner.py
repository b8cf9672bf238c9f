"""The example of a shadow runner: graphs of LangGraph make the forecasts of a blind test and share nothing."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache as ModelCache
from langchain_core.globals import set_llm_cache
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt

from examples.langgraph import shadow_runner
from examples.langgraph.shadow_runner import TRACING, GraphRunner, Model, NoForecast, State
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.journal.settings import Settings
from imem.patterns.shadows import OpenForecast, ShadowRunner, shadow_runner_of
from tests.patterns.parts import DAY, ENOUGH, NOW, Lab, definition, weeks

EFFECT = 0.35


def question(subject_id: str = "market:q0", *, stated: float = 0.6, event: bool = True) -> OpenForecast:
    return OpenForecast(
        subject_id=subject_id, metric="up", target_at=NOW + DAY, predicted_at=NOW, stated=stated, event=event
    )


@pytest.fixture(autouse=True)
def _untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TRACING:
        monkeypatch.delenv(name, raising=False)


async def test_a_blind_test_records_the_forecasts_of_the_graph(lab: Lab) -> None:
    """The graph moves each recorded 0.6 to 0.7; one that fails is left out, and the next round makes it."""
    failed: list[str] = []

    async def model(state: State) -> State:
        if not failed:
            failed.append(state["question"])
            raise ConnectionError
        return await shadow_runner.placeholder_model(state)

    lab.runner = GraphRunner(model)
    await lab.history()
    await lab.propose(definition())
    assert (await lab.test())["begun"] == 1
    said, _ = weeks(0, 1, start=NOW + DAY, horizon=13 * DAY, seed=3)
    matching = sum(line["core"]["probability"] >= 0.5 for line in said)
    async with lab.later(2 * DAY):
        await lab.world.say(*said)
        assert await lab.test() == {"shadows": matching - 1}
        assert await lab.test() == {"shadows": 1}
        assert await lab.test() == {}
    await lab.half_a_year(since=2)
    async with lab.later(189 * DAY):
        assert await lab.test() == {"statistically_validated": 1}
    found = await lab.world.rows(
        "SELECT e.payload -> 'core' AS core, h.subject_id, h.metric, h.target_at FROM event AS e"
        " JOIN record_head AS h ON h.kind = 'Finding' AND h.grp = 'core'"
        " AND h.key = e.payload -> 'core' ->> 'finding_id'"
        " WHERE e.kind = 'record.ShadowAnalysis' AND e.payload ? 'core'"
    )
    assert len(found) >= 40
    assert {row["core"]["without_pattern_prediction"] for row in found} == {0.6}
    assert {round(row["core"]["with_pattern_prediction"], 9) for row in found} == {0.7}
    asked = [f"{row['subject_id']}, {row['metric']}, {row['target_at'].isoformat()}" for row in found]
    assert len(set(asked)) == len(asked)
    assert failed[0] in asked
    tests = await lab.validations()
    assert [(one["validation_type"], one["passed"]) for one in tests[:2]] == [("holdout", True), ("blind_test", True)]


@pytest.mark.parametrize(
    ("claim", "of", "forecast"),
    [
        ("higher", question(stated=0.6), 0.7),
        ("lower", question(stated=0.6), 0.5),
        ("higher", question(stated=0.95), 1.0),
        ("lower", question(stated=0.05), 0.0),
        ("higher", question(stated=50.0, event=False), 55.0),
        ("lower", question(stated=-50.0, event=False), -55.0),
        ("higher", question(stated=0.0, event=False), 0.0),
    ],
)
async def test_the_forecast_is_in_the_unit_of_the_recorded_one(claim: str, of: OpenForecast, forecast: float) -> None:
    made = await GraphRunner().forecast(definition(claim=claim), EFFECT, of, deadline=ENOUGH)
    assert type(made) is float
    assert made == pytest.approx(forecast)


async def test_the_state_holds_pattern_and_question_and_not_the_name_of_the_pattern() -> None:
    seen: list[State] = []

    async def model(state: State) -> State:
        seen.append(state.copy())
        return {"forecast": 1}

    pattern = definition()
    made = await GraphRunner(model).forecast(pattern, EFFECT, question(), deadline=ENOUGH)
    assert (made, type(made)) == (1.0, float)
    [state] = seen
    prompt = state.pop("prompt")
    assert state == {
        "condition": ["forecast at least 0.5"], "claim": "higher", "mechanism": pattern.mechanism, "effect": EFFECT,
        "question": f"market:q0, up, {(NOW + DAY).isoformat()}", "known_at": NOW.isoformat(), "baseline": 0.6,
        "event": True,
    }  # fmt: skip
    assert all(part in prompt for part in (state["question"], state["known_at"], "0.6", "at least 0.5", "higher"))
    assert [word for word in (pattern.name, pattern.key) if word in f"{prompt}{state}"] == []


async def test_two_calls_share_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has a graph of its own, and reads what it was given alone, also while another one runs."""
    graphs: list[Any] = []
    build = shadow_runner.build

    def built(model: Any) -> Any:
        graphs.append(build(model))
        return graphs[-1]

    monkeypatch.setattr(shadow_runner, "build", built)
    both, seen = asyncio.Barrier(2), []

    async def model(state: State) -> State:
        await both.wait()  # Each has begun before one ends.
        assert get_config()["configurable"].get("thread_id") is None
        assert get_runtime().store is None
        seen.append((state["question"].partition(",")[0], state["baseline"], "forecast" in state))
        return {"forecast": state["baseline"]}

    runner, pattern = GraphRunner(model), definition()
    for _ in range(2):
        first, second = await asyncio.gather(
            runner.forecast(pattern, EFFECT, question("market:q1", stated=0.5), deadline=ENOUGH),
            runner.forecast(pattern, EFFECT, question("market:q2", stated=0.8), deadline=ENOUGH),
        )
        assert (first, second) == (0.5, 0.8)
    assert sorted(seen) == [("market:q1", 0.5, False)] * 2 + [("market:q2", 0.8, False)] * 2
    assert len({id(graph) for graph in graphs}) == 4
    assert all(not graph.checkpointer and graph.store is None and graph.cache is None for graph in graphs)


async def test_a_graph_inherits_nothing_of_the_graph_that_calls_the_runner() -> None:
    saver, store = InMemorySaver(), InMemoryStore()
    seen: list[Any] = []

    async def model(state: State) -> State:
        seen.append((get_runtime().store, sorted(get_config()["configurable"].keys() & {"thread_id", "mine"})))
        return await shadow_runner.placeholder_model(state)

    async def calling(state: State) -> State:
        del state
        assert get_runtime().store is store
        return {"forecast": await GraphRunner(model).forecast(definition(), EFFECT, question(), deadline=ENOUGH)}

    graph = StateGraph(State).add_node("calling", calling).add_edge(START, "calling").add_edge("calling", END)
    parent = graph.compile(checkpointer=saver, store=store, cache=InMemoryCache())
    ended = await parent.ainvoke(State(event=True), {"configurable": {"thread_id": "t", "mine": 1}})

    assert ended["forecast"] == pytest.approx(0.7)
    assert seen == [(None, [])]
    assert {one.config["configurable"]["checkpoint_ns"] for one in saver.list(None)} == {""}
    assert not any("prompt" in one.checkpoint["channel_values"] for one in saver.list(None))


async def test_the_deadline_cancels_the_graph() -> None:
    asked, cancelled = [], []

    async def model(state: State) -> State:
        asked.append(state)
        try:
            await asyncio.sleep(20.0)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return {}

    runner = GraphRunner(model)
    with pytest.raises(BudgetExceeded, match="no forecast before the deadline"):
        await runner.forecast(definition(), EFFECT, question(), deadline=Deadline.after_ms(500))
    assert (len(asked), cancelled) == (1, [True])
    with pytest.raises(BudgetExceeded, match="No time was left"):
        await runner.forecast(definition(), EFFECT, question(), deadline=Deadline.after_ms(0))
    assert len(asked) == 1


def answering(answer: Any) -> Model:
    """Return a model that always gives one answer."""

    async def model(state: State) -> State:
        del state
        return {"forecast": answer}

    return model


@pytest.mark.parametrize("answer", [None, "0.7", True, math.nan, math.inf, -math.inf, 10**400, 1.01, -0.01])
async def test_an_answer_that_is_no_probability_is_refused(answer: Any) -> None:
    with pytest.raises(NoForecast, match="not a number from 0 to 1") as refused:
        await GraphRunner(answering(answer)).forecast(definition(), EFFECT, question(), deadline=ENOUGH)
    assert repr(answer)[:80] in refused.value.message


@pytest.mark.parametrize("answer", [None, math.nan, math.inf, -math.inf, 10**400])
async def test_an_answer_that_is_no_finite_value_is_refused(answer: Any) -> None:
    with pytest.raises(NoForecast):
        await GraphRunner(answering(answer)).forecast(definition(), EFFECT, question(event=False), deadline=ENOUGH)


@pytest.mark.parametrize("failure", ["error", "timeout of its own", "interrupt", "nothing"])
async def test_a_graph_that_fails_says_why(failure: str) -> None:
    async def model(state: State) -> State:
        del state
        if failure == "error":
            raise ValueError("the model is overloaded")
        if failure == "timeout of its own":
            raise TimeoutError("the model is slow")
        return {"forecast": interrupt("?")} if failure == "interrupt" else {}

    with pytest.raises(NoForecast) as failed:
        await GraphRunner(model).forecast(definition(), EFFECT, question(), deadline=ENOUGH)
    assert failed.value.retryable
    said = {"error": "the model is overloaded", "timeout of its own": "the model is slow"}
    assert said.get(failure, "") in failed.value.message


async def test_instances_are_not_clean_where_the_process_shares_answers_or_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = GraphRunner()
    assert await runner.clean()
    for name in TRACING:
        with monkeypatch.context() as changed:
            changed.setenv(name, "true")
            assert not await runner.clean()
    set_llm_cache(ModelCache())
    try:
        assert not await runner.clean()
    finally:
        set_llm_cache(None)
    assert await runner.clean()


def test_the_setting_names_the_runner() -> None:
    named = Settings.read({"IMEM_SHADOW_RUNNER": "examples.langgraph.shadow_runner:GraphRunner"})
    runner = shadow_runner_of(named)
    assert isinstance(runner, GraphRunner)
    assert isinstance(runner, ShadowRunner)
