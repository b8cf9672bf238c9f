"""
A shadow runner: a graph of LangGraph forecasts with a pattern, for blind tests.

Copy this file and replace ``placeholder_model`` with a call of your model. The worker finds the runner by a setting:
``IMEM_SHADOW_RUNNER=shadow_runner:GraphRunner``, with the folder of the file in ``PYTHONPATH``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextvars import Context
from typing import Any, Final, Protocol, TypedDict

from langchain_core.globals import get_llm_cache
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError
from imem.patterns.definition import PatternDefinition
from imem.patterns.shadows import OpenForecast

TRACING: Final = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2")
"""Variables that make LangChain send prompts to a log that is shared."""


class State(TypedDict, total=False):
    """What the graph knows; not the name or key of the pattern, since a record that has one contaminates the test."""

    condition: list[str]
    claim: str
    mechanism: str
    effect: float
    question: str
    known_at: str
    baseline: float
    event: bool
    prompt: str
    forecast: float


class Model(Protocol):
    """A model that forecasts. It is asynchronous, so that the deadline can cancel it."""

    async def __call__(self, state: State) -> State:
        """Return the forecast, as a part of the state."""


async def placeholder_model(state: State) -> State:
    """
    Take the place of a model. REPLACE THIS with a call of your model that answers ``state["prompt"]``.

    It needs no network and no key: it moves the recorded forecast by a tenth in the direction that the pattern claims.
    """
    step = 0.1 if state["event"] else 0.1 * abs(state["baseline"])
    moved = state["baseline"] + (step if state["claim"] == "higher" else -step)
    return {"forecast": min(1.0, max(0.0, moved)) if state["event"] else moved}


async def describe(state: State) -> State:
    """Write the prompt."""
    asked = f"{state['question']}: the {'probability' if state['event'] else 'value'}, known at {state['known_at']}?"
    pattern = f"Where {' and '.join(state['condition'])}, it turns out {state['claim']}. {state['mechanism']}"
    return {"prompt": f"{asked} The forecast without the following is {state['baseline']}. {pattern}"}


def build(model: Model) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a new graph without a checkpointer, a store or a cache."""
    graph = StateGraph(State).add_node("describe", describe).add_node("model", model).add_edge(START, "describe")
    return graph.add_edge("describe", "model").add_edge("model", END).compile(checkpointer=False)


class NoForecast(ImemError):
    """The graph made no forecast that can be recorded. The next round repeats it while the question is open."""

    retryable = True


class GraphRunner:
    """Makes each forecast by a graph of its own; a ``ShadowRunner``."""

    def __init__(self, model: Model = placeholder_model) -> None:
        self._model = model

    async def clean(self) -> bool:
        """Return whether this process has no cache of model answers and sends no traces."""
        return get_llm_cache() is None and not any(os.environ.get(name, "").lower() == "true" for name in TRACING)

    async def forecast(
        self, pattern: PatternDefinition, effect: float, of: OpenForecast, *, deadline: Deadline
    ) -> float:
        """
        Return the forecast of a new graph: a probability of an event, otherwise a value.

        Raises:
            BudgetExceeded: the deadline has passed; the graph was cancelled.
            NoForecast: the graph failed, or its answer is no such number.
        """
        deadline.check("a shadow forecast")
        state = State(
            condition=[atom.words for atom in pattern.condition], claim=pattern.claim.value, effect=effect,
            mechanism=pattern.mechanism, question=f"{of.subject_id}, {of.metric}, {of.target_at.isoformat()}",
            known_at=of.predicted_at.isoformat(), baseline=of.stated, event=of.event,
        )  # fmt: skip
        try:
            async with asyncio.timeout(deadline.left_s()):
                # The caller's context may hold a checkpointer, a store and a cache, which graphs inherit.
                task = asyncio.create_task(build(self._model).ainvoke(state), context=Context())
                answer = (await task).get("forecast")
        except Exception as error:  # a graph may raise anything: it is raised again, as an error of the forecast
            if deadline.passed:
                raise BudgetExceeded("The graph made no forecast before the deadline.") from error
            raise NoForecast(f"The graph failed: {error!r:.200}") from error
        low, high = (0.0, 1.0) if of.event else (-sys.float_info.max, sys.float_info.max)
        if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not low <= answer <= high:
            raise NoForecast(f"The forecast of the graph is {answer!r:.80}, not a number from {low:g} to {high:g}.")
        return float(answer)
