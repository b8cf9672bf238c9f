"""What beat asks for does not wait for a clock that was set back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from imem.journal.settings import Settings
from imem.workers.beat import SteadyScheduler
from imem.workers.celery_app import make_app

HOUR = timedelta(hours=1)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SteadyScheduler]:
    """A scheduler of the product's tasks, whose broker is away: what is due is noted."""
    settings = Settings.read({"IMEM_HOME": str(tmp_path), "IMEM_VALKEY_DURABLE_URL": "redis://127.0.0.1:1/0"})
    made = SteadyScheduler(make_app(settings), lazy=True, schedule_filename=str(tmp_path / "schedule"))
    made.setup_schedule()
    yield made
    made.close()


def test_a_clock_that_was_set_back_stops_no_task(scheduler: SteadyScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked for again when as much time has passed as always; also where the file is of before."""
    asked: list[str] = []

    def noted(entry: Any, producer: Any = None) -> None:  # noqa: ARG001 - as Celery calls it
        asked.append(entry.task)

    monkeypatch.setattr(scheduler, "apply_entry", noted)
    monkeypatch.setitem(vars(scheduler), "producer", None)
    regular = {name: one for name, one in scheduler.schedule.items() if hasattr(one.schedule, "run_every")}
    assert len(regular) > 5
    scheduler.tick()
    shift(scheduler, HOUR)  # As if an hour were taken off the clock.

    waits_s = scheduler.tick()
    assert waits_s <= min(one.schedule.seconds for one in regular.values())
    assert all(one.last_run_at <= one.default_now() for one in scheduler.schedule.values())
    assert asked == []

    shift(scheduler, -HOUR)  # What is regular is due, and all of it.
    scheduler._heap = None
    while scheduler.tick() == 0:
        pass
    assert {one.task for one in regular.values()} <= set(asked)


def shift(scheduler: SteadyScheduler, by: timedelta) -> None:
    """Move every last run, and what follows from it, on the clock."""
    for entry in scheduler.schedule.values():
        entry.last_run_at += by
    if scheduler._heap is not None:
        scheduler._heap[:] = [event._replace(time=event.time + by.total_seconds()) for event in scheduler._heap]
