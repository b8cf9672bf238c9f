"""A pipeline is declared once: what Celery, beat and the rounds without a broker make of the declaration."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from hypothesis import given
from hypothesis import strategies as st

import imem.credibility
from imem.credibility.pipelines import ACTORS
from imem.jobs.backlog import APPLIER, WORK
from imem.jobs.celery_tasks import beat_schedule, register
from imem.jobs.due import DueRule, halving
from imem.jobs.fallback_rounds import LATE_S, FallbackRound, FallbackWatch, fallback_rounds
from imem.jobs.pipeline import Daily, Every, Monthly, Pipeline, Quarterly
from imem.jobs.runtime import slot
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import PostgresUnavailable
from imem.journal.settings import Settings
from imem.kg.kinds.catalog import KINDS, LINK_TYPES
from imem.kg.projection.derived_values import QUEUE as GRAPH
from imem.patterns.life import PROPOSED
from imem.workers.pipelines import DUE_RULES, PIPELINES
from tests.docs.pages import ROOT


class Reports:
    """Stands for the table of reports."""

    def __init__(self) -> None:
        self.kept: list[Mapping[str, Any]] = []

    async def commit(self, _name: str, given: Mapping[str, Any], *, deadline: Deadline) -> None:  # noqa: ARG002
        self.kept.append(given)


class Process:
    """A worker process's runtime that runs work in a loop of its own, and counts."""

    runs = 0

    def __init__(self) -> None:
        self.database: Any = Reports()

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def call() -> Any:
            return await work()

        self.runs += 1
        return asyncio.run(call())


@pytest.fixture
def process() -> Iterator[Process]:
    runtime = Process()
    slot.install(runtime)
    yield runtime
    slot.install(None)


async def twice(runtime: Process, _until: Deadline) -> Mapping[str, Any]:
    return {"more": runtime.runs < 2, "run": runtime.runs}


async def away(_runtime: Process, _until: Deadline) -> Mapping[str, Any]:
    raise PostgresUnavailable("It is away.")


def declared(step: Any, name: str = "test.pipeline", **more: Any) -> Pipeline[Any]:
    return Pipeline(name, step, Every(5.0), budget_ms=1_000, **more)


@pytest.fixture
def app() -> Celery:
    made = Celery("test", broker="memory://", set_as_current=False)
    made.conf.update(task_always_eager=True, task_eager_propagates=True)
    return made


def test_a_run_that_ends_with_work_left_asks_for_another(process: Process, app: Celery) -> None:
    register(app, [declared(twice)])

    assert app.tasks["test.pipeline"].apply().get() == {"more": True, "run": 1}
    assert process.runs == 2


@pytest.mark.usefixtures("process")
def test_a_store_that_is_away_is_skipped_or_retried_as_declared(app: Celery) -> None:
    """Without retries the run ends with an empty report; with them Celery sees the error and tries again, bounded."""
    assert declared(away).run() == {}
    with pytest.raises(PostgresUnavailable):
        declared(away, retry_max_s=60).run()
    register(app, [declared(away, "test.away", retry_max_s=60)])
    task = app.tasks["test.away"]

    assert (task.max_retries, task.retry_backoff_max) == (5, 60)


@pytest.mark.usefixtures("process")
def test_what_a_run_did_is_kept_or_why_it_ended(process: Process) -> None:
    """As many reports as are declared; one that says nothing is idle, and an error none."""
    declared(twice, reports=7).run()
    declared(away).run()

    async def idle(_runtime: Process, _until: Deadline) -> Mapping[str, Any]:
        return {"scores": 0, "more": False}

    declared(idle).run()
    kept = [(one["report"], one["error"], one["idle"], one["keep"]) for one in process.database.kept]
    assert kept == [
        ('{"more":true,"run":1}', None, False, 7),
        ("{}", "PostgresUnavailable: It is away.", False, 1),
        ("{}", None, True, 1),
    ]


def test_a_process_without_a_runtime_says_so() -> None:
    with pytest.raises(RuntimeError, match="no runtime"):
        declared(twice).run()


def test_cadences_of_beat() -> None:
    """Seconds expire when the next request comes; a day's request is kept for half a day, a quarter's for a week."""
    settings = Settings.read({})
    schedule = beat_schedule(
        [
            declared(twice),
            Pipeline("daily", twice, Daily(2, 41), budget_ms=None),
            Pipeline("weekly", twice, lambda _: Daily(4, 11, sundays=True), budget_ms=None),
            Pipeline("quarterly", twice, Quarterly(4, 37), budget_ms=None),
            Pipeline("monthly", twice, Monthly(3, 15), budget_ms=None),
        ],
        settings,
    )

    assert schedule["test.pipeline"] == {"task": "test.pipeline", "schedule": 5.0, "options": {"expires": 5.0}}
    assert schedule["daily"]["schedule"] == crontab(hour="2", minute="41")
    assert schedule["weekly"]["schedule"] == crontab(hour="4", minute="11", day_of_week="sunday")
    assert schedule["weekly"]["options"] == {"expires": 12 * 60 * 60}
    first = crontab(hour="4", minute="37", day_of_month="1", month_of_year="1,4,7,10")
    assert schedule["quarterly"]["schedule"] == first
    assert schedule["monthly"]["schedule"] == crontab(hour="3", minute="15", day_of_month="1")
    assert schedule["quarterly"]["options"] == schedule["monthly"]["options"] == {"expires": 7 * 24 * 60 * 60}


def test_what_must_not_wait_for_the_broker_is_declared() -> None:
    """Alerts, pauses, gates, scores and what agents publish come without it; the names are those of the tasks."""
    settings = Settings.read({})
    rounds = fallback_rounds(PIPELINES, settings)

    assert {one.name: one.overdue_after_s for one in rounds if not one.calendar} == {
        "alerts.send": 20.0, "alerts.watch_memory": 60.0, "alerts.watch_access": 120.0, "checkpoints.manage": 6.0,
        "jobs.advance": 6.0,
        "sync.gates": 120.0, "sync.flush": 10.0, "sync.snapshots": 10.0,
        "credibility.settle": 30.0, "credibility.detect_regime": 30.0,
        "credibility.publish_scores": 30.0, "credibility.find_contradictions": 30.0,
        "credibility.track_forecasts": 30.0, "postmortem.open_cases": 30.0, "credibility.measure_returns": 120.0,
        "archives.build": 120.0,
        "postmortem.validate_successes": 120.0, "postmortem.lessons": 30.0, "gates.learning": 600.0,
    }  # fmt: skip
    # All that the calendar asks for but what is large, and what clears the broker's Valkey.
    assert {one.name for one in rounds if one.calendar} == {
        "credibility.reconcile", "credibility.review", "recall.consolidate_memories", "recall.maintain_memories",
        "recall.retain_signals", "checkpoints.retire", "journal.upkeep", "postmortem.measure_lessons",
    }  # fmt: skip
    assert {one.overdue_after_s for one in rounds if one.calendar} == {LATE_S}
    assert len({one.name for one in PIPELINES}) == len(PIPELINES)


CALENDAR: Mapping[Daily | Monthly, crontab] = {
    Daily(2, 41): crontab(hour="2", minute="41"),
    Daily(4, 11, sundays=True): crontab(hour="4", minute="11", day_of_week="sunday"),
    Quarterly(4, 37): crontab(hour="4", minute="37", day_of_month="1", month_of_year="1,4,7,10"),
    Monthly(3, 15): crontab(hour="3", minute="15", day_of_month="1"),
}


@pytest.mark.parametrize("cadence", CALENDAR)
@given(
    moment=st.timedeltas(timedelta(), timedelta(days=9999)).map(lambda later: datetime(2020, 1, 1, tzinfo=UTC) + later)
)
def test_the_calendar_is_that_of_beat(cadence: Daily | Monthly, moment: datetime) -> None:
    """The moment that was due last is one of beat's, and beat has none between it and now."""
    last, beat = cadence.latest_before(moment), CALENDAR[cadence]

    def beats_next(after: datetime) -> datetime:
        began, left, _ = beat.remaining_delta(after, tz=UTC)
        following: datetime = began + left
        return following

    assert beats_next(last - timedelta(seconds=1)) == last <= moment < beats_next(last)
    assert cadence.latest_before(last) == last


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_the_calendar_asks_for_is_begun_one_after_the_other() -> None:
    """In one thread, which an error of a run does not end; what is urgent does not wait for it."""
    order: list[str] = []
    both, urgent = Event(), Event()

    def first() -> None:
        assert urgent.wait(30)
        order.append("first")
        raise LookupError("Of one run alone.")

    def second() -> None:
        order.append("second")
        both.set()

    calendar = [FallbackRound(work.__name__, LATE_S, work, calendar=True) for work in (first, second)]
    for one in calendar:
        assert not one.overdue
        one._begun.value -= LATE_S
    watch = FallbackWatch([*calendar, FallbackRound("urgent", 0.0, urgent.set)])
    assert [thread.name for thread in watch._threads] == ["imem-urgent", "imem-calendar"]
    watch.start()
    assert both.wait(60)
    watch.stop()
    assert order == ["first", "second"]
    assert not any(one.overdue for one in calendar)


def test_rules_name_events_that_exist() -> None:
    """An event that no kind records would never make anything due, and one queue's kinds never mean two things."""
    events = {f"{verb}.{name}" for verb in ("record", "correct") for name in KINDS}
    events |= {f"link.{name}" for name in LINK_TYPES} | {PROPOSED}
    assert {rule.event for rule in DUE_RULES} <= events
    assert len(set(DUE_RULES)) == len(DUE_RULES)


def test_what_makes_work_due_wakes_the_pipeline() -> None:
    rule = DueRule("queue", "Finding", "record.Finding", "$key")
    assert declared(twice, due=(rule, rule._replace(event="link.CITES"))).wakes_on == {"record.Finding", "link.CITES"}
    assert declared(twice).wakes_on == frozenset()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50), st.sets(st.integers(0, 9)), st.integers(1, 64))
def test_halving_sets_the_bad_rows_aside_and_no_other(rows: list[int], bad: set[int], size: int) -> None:
    """However large the batches are: each good row is done once, in order, and each bad one is set aside."""
    left, done, aside = list(rows), [], []

    async def work(most: int) -> int:
        batch = left[:most]
        if not bad.isdisjoint(batch):
            raise ValueError("bad")
        done.extend(batch)
        del left[:most]
        return len(batch)

    async def alone(_error: Exception) -> int:
        aside.append(left.pop(0))
        return 1

    while left:
        asyncio.run(halving(work, size, alone))
    assert done == [row for row in rows if row not in bad]
    assert aside == [row for row in rows if row in bad]


def test_what_is_no_fault_of_the_contents_halves_nothing() -> None:
    sizes = []

    async def work(most: int) -> int:
        sizes.append(most)
        raise PostgresUnavailable("It is away.")

    async def alone(_error: Exception) -> int:
        raise AssertionError("Nothing is set aside.")

    with pytest.raises(PostgresUnavailable):
        asyncio.run(halving(work, 64, alone))
    assert sizes == [64]


def test_every_actor_of_the_credibility_pipelines_is_declared() -> None:
    """The demo tells by them what the product wrote itself; one that is missing makes its second run refuse."""
    names = [one.name for one in pkgutil.walk_packages(imem.credibility.__path__, "imem.credibility.")]
    found = {
        value for name in names for value in vars(importlib.import_module(name)).values() if isinstance(value, Actor)
    }
    assert found == set(ACTORS)
    assert len({actor.id for actor in ACTORS}) == len(ACTORS) == 7


def test_every_queue_is_counted() -> None:
    """Rules, statements and modules name queues; what none of them names is no work."""
    named = {rule.queue for rule in DUE_RULES} | {GRAPH}
    inserting = re.compile(r"INSERT INTO due_row \([^)]*\)\s*(?:VALUES \(|SELECT (?:DISTINCT )?)'(\w+)'")
    for path in (*ROOT.glob("sql/schema/*.sql"), *ROOT.glob("sql/queries/*.sql")):
        named |= set(inserting.findall(path.read_text(encoding="utf-8")))
    assert {"memories", "reflection", "credibility"} <= named
    assert named <= {work.name for work in WORK}
    assert {work.pipeline for work in WORK} - {APPLIER} <= {one.name for one in PIPELINES}
    assert len({work.name for work in WORK}) == len(WORK)
