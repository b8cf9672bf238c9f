"""
Nodes of LangGraph's graphs as steps that run with and without ``await``. Nothing here imports LangGraph.

A node is written once, as a generator of calls of the memory. With :class:`imem.Memory` it becomes a coroutine
function, with ``Memory.sync()`` a plain one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

State = Any
"""A mapping, or an object with the keys as its fields: a dataclass or a model of pydantic."""

Node = Callable[..., Any]

Steps = Generator[Callable[[], Any], Any, Any]
"""The steps of a node: it yields calls, gets their results or errors, and returns the update of the state."""


def value_of(state: State, key: str) -> Any:
    """Return a value of a state; None where it has no such key."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def node_of(method: Callable[..., Any], steps: Callable[..., Steps]) -> Node:
    """Return what does the steps: a coroutine function where *method* of the memory is one, a plain one elsewhere."""

    async def run(*given: Any, **named: Any) -> Any:
        walk = steps(*given, **named)
        proceed: Callable[[], Any] = partial(next, walk)
        while True:
            try:
                call = proceed()
            except StopIteration as done:
                return done.value
            try:
                result = call()
                proceed = partial(walk.send, await result if inspect.isawaitable(result) else result)
            except Exception as error:  # noqa: BLE001 - the steps handle it, or raise it
                proceed = partial(walk.throw, error)

    def run_blocking(*given: Any, **named: Any) -> Any:
        try:
            run(*given, **named).send(None)
        except StopIteration as done:
            # No event loop is needed: a memory without coroutines gives nothing to wait for.
            return done.value
        raise TypeError("The node is a coroutine function, and the memory has none.")

    return run if inspect.iscoroutinefunction(method) else run_blocking
