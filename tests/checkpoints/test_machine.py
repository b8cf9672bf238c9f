"""Leases and checkpoints against a plain model of them: whatever is done in whatever order, both say the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from imem.cache.working.snapshots import SnapshotStore
from imem.checkpoints.leases import Leases
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind, SubtaskFailure
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.store import Checkpoints
from imem.journal.errors import BadInput, LeaseHeld, StaleEpoch
from imem.journal.postgres.database import Database

from .conftest import CLERK, FILER, World, lease_of, memory, soon

HOLDERS = st.sampled_from(["a", "b", "c"])
SUBTASKS = st.sampled_from(["fetch", "parse", "rank"])
TEXTS = st.sampled_from(["x", "y"])
STEPS_S = st.sampled_from([8, 40, -200])
"""How time moves; no sum of these is near the 30 s that a lease lasts, so that the time of the test itself is none."""

LASTS_S = 30
NAMES = FILER.names


@dataclass
class Row:
    """A checkpoint, as the model has it."""

    kind: CheckpointKind
    run: int
    epoch: int
    subtask: str | None
    text: str | None
    reason: str | None
    completed: tuple[str, ...]


@dataclass
class Model:
    """
    What must be so.

    Attributes:
        holder, epoch, until_s: of the lease; nobody's where it was raised.
        given: every lease that was ever given, with the holder that it was given to.
    """

    now_s: int = 0
    holder: str | None = None
    epoch: int = 0
    until_s: int = 0
    released: bool = False
    rows: list[Row] = field(default_factory=list)
    given: list[AgentLease] = field(default_factory=list)

    def live(self) -> bool:
        left_s = self.until_s - self.now_s
        return self.holder is not None and not self.released and 0 < left_s <= 2 * LASTS_S

    def acquire(self, holder: str) -> int | None:
        """Return the epoch; None where somebody else has the lease."""
        if self.live() and self.holder != holder:
            return None
        if not self.live():
            self.epoch += 1
        if not self.rows:
            self.rows.append(Row(CheckpointKind.START, 1, 1, None, None, None, ()))
        self.holder, self.until_s, self.released = holder, self.now_s + LASTS_S, False
        return self.epoch

    def save(self, epoch: int, wish: Row) -> int | type[Exception]:
        """Return the seq that it has then, or how it is refused."""
        last = self.rows[-1]
        if epoch != self.epoch:
            return StaleEpoch
        same = (last.kind, last.subtask, last.text, last.reason) == (wish.kind, wish.subtask, wish.text, wish.reason)
        if same and (wish.kind in {CheckpointKind.START, CheckpointKind.SUBTASK} or last.epoch == epoch):
            return len(self.rows) - 1
        completed, run = last.completed, last.run
        if wish.kind is CheckpointKind.START:
            completed, run = (), run + 1
        elif wish.kind is not CheckpointKind.PAUSE:
            first = NAMES[len(completed)] if len(completed) < len(NAMES) else None
            if wish.subtask != first:
                return BadInput
            if wish.kind is CheckpointKind.SUBTASK:
                assert wish.subtask is not None
                completed = (*completed, wish.subtask)
        self.rows.append(replace(wish, epoch=epoch, run=run, completed=completed))
        return len(self.rows) - 1


class LeasesAndCheckpoints(RuleBasedStateMachine):
    """Both side by side."""

    world: World
    runner: asyncio.Runner
    database: Database
    copies: SnapshotStore

    @initialize()
    def begin(self) -> None:
        self.model = Model()
        self.definitions = Definitions.of([FILER, CLERK])
        self.leases = Leases(self.database, self.definitions)
        self.checkpoints = Checkpoints(self.database, self.definitions, self.copies)
        self.analysis = f"machine:{uuid4().hex[:16]}"
        self.agent_id = self.analysis.replace(":", "-")
        self.saved: list[Checkpoint] = []
        self._shift(0)

    def _shift(self, seconds: int) -> None:
        """Set the clock of the one connection that the machine has."""
        self.model.now_s = seconds
        query = "SELECT set_config('imem.clock_shift', %s, false)"
        self.runner.run(self.database.rows(query, (f"{seconds} seconds",), deadline=soon()))

    @rule(by_s=STEPS_S)
    def time_moves(self, by_s: int) -> None:
        self._shift(self.model.now_s + by_s)

    @rule(holder=HOLDERS)
    def acquire(self, holder: str) -> None:
        expected = self.model.acquire(holder)
        asked = self.leases.acquire(
            analysis_id=self.analysis, agent_type="filer", agent_id=self.agent_id, subject_id="s", holder=holder,
            owner="ann", deadline=soon(),
        )  # fmt: skip
        if expected is None:
            with pytest.raises(LeaseHeld):
                self.runner.run(asked)
            return
        lease = self.runner.run(asked)
        assert (lease.epoch, lease.holder) == (expected, holder)
        self.model.given.append(lease)

    @rule(which=st.integers(0, 30))
    def renew(self, which: int) -> None:
        if not self.model.given:
            return
        lease = self.model.given[which % len(self.model.given)]
        its = lease.epoch == self.model.epoch and self.model.holder == lease.holder and not self.model.released
        if its:
            self.runner.run(self.leases.renew(lease, deadline=soon()))
            self.model.until_s = self.model.now_s + LASTS_S
        else:
            with pytest.raises(StaleEpoch):
                self.runner.run(self.leases.renew(lease, deadline=soon()))

    @rule(which=st.integers(0, 30))
    def release(self, which: int) -> None:
        if not self.model.given:
            return
        lease = self.model.given[which % len(self.model.given)]
        its = lease.holder is not None and (lease.epoch, lease.holder) == (self.model.epoch, self.model.holder)
        assert self.runner.run(self.leases.release(lease, deadline=soon())) == its
        self.model.released = self.model.released or its

    @rule()
    def raise_epoch(self) -> None:
        found = self.runner.run(self.leases.raise_epoch(self.analysis, deadline=soon()))
        if not self.model.rows:
            assert found == []
            return
        if self.model.holder is not None:
            self.model.epoch += 1
            self.model.holder, self.model.released = None, True
        assert [(one.epoch, one.holder) for one in found] == [(self.model.epoch, None)]
        self.model.given += found

    @rule(which=st.integers(0, 30), subtask=SUBTASKS, text=TEXTS)
    def complete(self, which: int, subtask: str, text: str) -> None:
        self._save(which, Row(CheckpointKind.SUBTASK, 0, 0, subtask, text, None, ()))

    @rule(which=st.integers(0, 2), text=TEXTS)
    def complete_the_next(self, which: int, text: str) -> None:
        """As often as not what an agent would do, so that runs come to their end."""
        if self.model.rows and len(done := self.model.rows[-1].completed) < len(NAMES):
            self._save(-1 - which, Row(CheckpointKind.SUBTASK, 0, 0, NAMES[len(done)], text, None, ()))

    @rule(which=st.integers(0, 30), subtask=st.none() | SUBTASKS, text=TEXTS, reason=TEXTS)
    def fail(self, which: int, subtask: str | None, text: str, reason: str) -> None:
        self._save(which, Row(CheckpointKind.FAILURE, 0, 0, subtask, text, reason, ()))

    @rule(which=st.integers(0, 30), text=TEXTS)
    def pause(self, which: int, text: str) -> None:
        self._save(which, Row(CheckpointKind.PAUSE, 0, 0, None, text, None, ()))

    @rule(which=st.integers(0, 30))
    def begin_again(self, which: int) -> None:
        self._save(which, Row(CheckpointKind.START, 0, 0, None, None, None, ()))

    def _save(self, which: int, wish: Row) -> None:
        if not self.model.given:
            return
        lease = self.model.given[which % len(self.model.given)]
        document, digest = memory(text=wish.text) if wish.text is not None else (None, None)
        count = len(self.model.rows)
        expected = self.model.save(lease.epoch, wish)
        saving = self.checkpoints.save(
            lease, kind=wish.kind, subtask=wish.subtask, document=document, digest=digest,
            failure=SubtaskFailure(reason=wish.reason) if wish.reason is not None else None, deadline=soon(),
        )  # fmt: skip
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.runner.run(saving)
            return
        saved = self.runner.run(saving)
        assert saved.seq == expected
        if len(self.model.rows) > count:
            assert all(saved.checkpoint_time > one.checkpoint_time for one in self.saved)
            self.saved.append(saved)
        else:
            assert not self.saved or saved == self.saved[-1]

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "model") or not self.model.rows:
            return
        history: list[Any] = self.runner.run(self.checkpoints.history(self.analysis, deadline=soon()))
        assert [one.seq for one in history] == list(range(len(self.model.rows)))
        assert [
            (one.kind, one.run, one.epoch, one.subtask, one.failure_reason, one.completed_subtasks) for one in history
        ] == [(row.kind, row.run, row.epoch, row.subtask, row.reason, row.completed) for row in self.model.rows]
        assert all({*one.completed_subtasks, *one.pending_subtasks} == set(NAMES) for one in history)
        latest = self.runner.run(self.checkpoints.load(self.analysis, "filer", deadline=soon()))
        assert latest is not None
        assert latest.seq == len(self.model.rows) - 1
        assert not self.saved or latest == self.saved[-1] or latest.kind is CheckpointKind.START
        lease = self.runner.run(lease_of(self.database, self.analysis, "filer"))
        assert lease is not None
        assert (lease.epoch, lease.holder) == (self.model.epoch, self.model.holder)


@pytest.mark.spec("CK-1", "CK-8")
@pytest.mark.parametrize("examples", [50, pytest.param(1000, marks=pytest.mark.chaos)])
def test_leases_and_checkpoints_are_what_the_model_says(world: World, examples: int) -> None:
    """On a real Postgres and a real Valkey; time moves both ways."""
    with asyncio.Runner() as runner:
        machine = LeasesAndCheckpoints
        machine.world, machine.runner = world, runner
        # One connection: the clock is its own.
        machine.database = Database(world.admin_url, size=1)
        client = world.durable.__class__(world.settings.valkey_durable_url.get_secret_value())
        machine.copies = SnapshotStore(client, world.snapshots._clock)
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(machine.database.close())
            runner.run(client.close())
