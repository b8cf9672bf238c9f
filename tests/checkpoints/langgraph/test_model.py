"""Whatever the order of operations, the saver holds what a plain dictionary would, and refuses what comes too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from imem.journal.errors import BadInput
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import checkpoint, config, metadata

THREADS = ("one", "other")
NAMESPACES = ("", "child:1")
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False)
VALUES = st.lists(st.text(max_size=3), max_size=3) | st.none() | NUMBERS


class Threads(RuleBasedStateMachine):
    """
    Two threads of two namespaces; the model: key → (checkpoint, metadata, parent, writes), in order.

    ``late`` are the keys that went with all of their thread; ``lone`` those of writes without a checkpoint, which a
    later sweep may have removed before their thread went.
    """

    saver: ImemSaver
    stored = Bundle("stored")

    @initialize()
    def begin(self) -> None:
        self.names = {name: f"{name}-{uuid4()}" for name in THREADS}
        self.model: dict[tuple[str, str, str], Any] = {}
        self.late: set[Any] = set()
        self.lone: set[Any] = set()

    @rule(
        target=stored,
        parent=st.none() | stored,
        name=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        values=st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
        run=st.sampled_from(["r1", "r2"]),
    )
    def put(self, parent: Any, name: str, namespace: str, values: dict[str, Any], run: str) -> Any:
        if parent is not None:
            name, namespace, _ = parent
        version = uuid4().hex
        one = checkpoint(values, dict.fromkeys(values, version))
        made: Any = metadata(len(self.model), run_id=f"{run}-{self.names['one']}")
        where = config(self.names[name], parent[2] if parent else None, namespace)
        key = (name, namespace, one["id"])
        if self.taken(parent, lambda: self.saver.put(where, one, made, one["channel_versions"])):
            self.model[key] = (one, made, parent[2] if parent else None, {})
        else:
            self.late.add(key)
        return key

    @rule(key=stored, task=st.sampled_from("xy"), values=st.lists(VALUES, max_size=3))
    def put_writes(self, key: Any, task: str, values: list[Any]) -> None:
        name, namespace, checkpoint_id = key
        if not values:
            return
        where, written = config(self.names[name], checkpoint_id, namespace), [("a", value) for value in values]
        stored = self.taken(key, lambda: self.saver.put_writes(where, written, task))
        if stored and key not in self.model:
            self.lone.add(key)
        if key in self.model:
            for n, value in enumerate(values):
                self.model[key][3].setdefault((task, n), value)

    @rule(name=st.sampled_from(THREADS))
    def prune(self, name: str) -> None:
        self.saver.prune([self.names[name]])
        newest = {key[1]: key for key in self.model if key[0] == name}
        self.keep(lambda key: key[0] != name or newest[key[1]] == key)

    @rule(name=st.sampled_from(THREADS))
    def delete(self, name: str) -> None:
        self.saver.delete_thread(self.names[name])
        self.gone(name)
        self.keep(lambda key: key[0] != name)

    @rule(run=st.sampled_from(["r1", "r2"]))
    def delete_run(self, run: str) -> None:
        gone = f"{run}-{self.names['one']}"
        self.saver.delete_for_runs([gone])
        for name in THREADS:
            if {self.model[key][1]["run_id"] for key in self.model if key[0] == name} == {gone}:
                self.gone(name)
        self.keep(lambda key: self.model[key][1]["run_id"] != gone)

    def taken(self, key: Any, call: Callable[[], object]) -> bool:
        """Call, and return whether it was taken: what refers to a key that went with its thread is refused."""
        if key not in self.late:
            call()
            return True
        if key in self.lone:
            try:
                call()
            except BadInput:
                return False
            return True
        with pytest.raises(BadInput, match="was deleted with its thread"):
            call()
        return False

    def gone(self, name: str) -> None:
        """Note that all of a thread goes."""
        self.late |= {key for key in (*self.model, *self.lone) if key[0] == name}

    def keep(self, wanted: Any) -> None:
        kept = {key: held for key, held in self.model.items() if wanted(key)}
        gone = self.model.keys() - kept.keys()
        self.model = {
            key: (one, made, None if (*key[:2], parent) in gone else parent, writes)
            for key, (one, made, parent, writes) in kept.items()
        }

    @invariant()
    def both_hold_the_same(self) -> None:
        for name in getattr(self, "names", {}):
            for namespace in NAMESPACES:
                expected = [
                    (
                        one,
                        made,
                        parent,
                        [(task, "a", value) for (task, _), value in sorted(writes.items(), key=place)],
                    )
                    for key, (one, made, parent, writes) in self.model.items()
                    if key[:2] == (name, namespace)
                ][::-1]
                found = [
                    (
                        one.checkpoint,
                        one.metadata,
                        one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else None,
                        one.pending_writes,
                    )
                    for one in self.saver.list(config(self.names[name], namespace=namespace))
                ]
                assert found == expected
                newest = self.saver.get_tuple(config(self.names[name], namespace=namespace))
                assert (newest.checkpoint if newest else None) == (expected[0][0] if expected else None)


def place(item: tuple[tuple[str, int], Any]) -> tuple[str, int]:
    return item[0]


def test_the_saver_is_a_dictionary_that_lasts(saver: ImemSaver) -> None:
    machine = type("OnThisSaver", (Threads,), {"saver": saver})
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=20, deadline=None))
