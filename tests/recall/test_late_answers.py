"""An answer that comes after its deadline says so, whatever was asked."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from imem.journal.deadline import Deadline
from imem.kg import views
from imem.memory import Memory
from tests.recall.conftest import RecallHarness
from tests.recall.test_modes_of_answers import known
from tests.surface import hints_of, methods_of

ASKED: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "brief": lambda memory: memory.brief("T0"),
    "history": lambda memory: memory.history("T0"),
    "similar": lambda memory: memory.similar("T0"),
    "debates": lambda memory: memory.debates("T0"),
    "contradictions": lambda memory: memory.contradictions("T0"),
    "patterns": lambda memory: memory.patterns("T0"),
    "lessons": lambda memory: memory.lessons("T0"),
    "panel": lambda memory: memory.panel("T0"),
    "weights": lambda memory: memory.weights(["agent0"], "up_or_down"),
    "track_record": lambda memory: memory.track_record("agent0"),
    "track_records": lambda memory: memory.track_records(),
    "credibility": lambda memory: memory.credibility(),
    "explain": lambda memory: memory.explain("agent0", "up_or_down"),
    "auto_resolve": lambda memory: memory.auto_resolve("agent0", "agent1", "up_or_down"),
    "debate": lambda memory: memory.debate("b0"),
    "text": lambda memory: memory.text("Analysis", "a0"),
    "view": lambda memory: memory.view("top_patterns", "*"),
    "search": lambda memory: memory.search("anything"),
    "query": lambda memory: memory.query("nearest_names", {"search": "t0"}),
}
"""Every question that a memory is asked."""


def test_every_question_is_among_them() -> None:
    """Whatever has a mode is an answer, and can be late."""
    answers = set()
    for name, method in methods_of(Memory).items():
        returned = hints_of(method)["return"]
        if "deadline_ms" in inspect.signature(method).parameters:
            for kind in typing.get_args(returned) or (returned,):
                names = {*getattr(kind, "model_fields", ()), *getattr(kind, "__dataclass_fields__", ())}
                listed = inspect.isclass(kind) and issubclass(kind, list)
                names |= set(inspect.signature(kind).parameters) if listed else set()
                if "mode" in names:
                    assert "late_ms" in names, (name, kind)
                    answers.add(name)
    assert answers == set(ASKED)


async def test_whatever_is_late_says_by_how_much(harness: RecallHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is not late says nothing."""
    await known(harness)
    await views.rebuild(harness.journal.database, deadline=Deadline.never())
    for name, ask in ASKED.items():
        answer = await ask(harness.memory)
        assert answer is not None, name
        assert answer.late_ms is None, name

    monkeypatch.setattr(Deadline, "late_ms", lambda _: 312.0)

    assert {name: (await ask(harness.memory)).late_ms for name, ask in ASKED.items()} == dict.fromkeys(ASKED, 312.0)
