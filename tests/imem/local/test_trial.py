"""Trial stacks: their time is moved for SQL, for every process and for the schedule, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from imem.journal.clock import MachineClock, SystemClock, follow_trial
from imem.journal.errors import BadInput, StackError
from imem.journal.settings import Settings
from imem.local import state, trial
from imem.local.doctor import checks
from imem.local.folders import Folders
from imem.local.migrate import migrate
from imem.local.supervisor import LocalStack
from imem.workers.beat import SteadyScheduler
from imem.workers.celery_app import make_app
from tests.conftest import settings_for
from tests.imem.local.programs import environment, imem, shown, sure

JUNE = datetime(2026, 6, 1, 6, tzinfo=UTC)
DAY, NEAR = timedelta(days=1), timedelta(minutes=10)
YEAR = JUNE + 365 * DAY

TELLS = """
from imem.journal.clock import SystemClock
from imem.journal.settings import Settings
from imem.local.state import with_local_endpoints

with_local_endpoints(Settings.read())
print(SystemClock().now().isoformat())
"""
"""A program that uses the stack of its home and says what time it is."""


@pytest.fixture(autouse=True)
def machine_time() -> Iterator[None]:
    """Let this process go by the machine's clock again."""
    yield
    follow_trial(None)


def near(at: datetime, expected: datetime) -> bool:
    """Whether a time is the expected one, for all that has passed since."""
    return abs(at - expected) < NEAR


def told(connection: psycopg.Connection[Any], query: str = "SELECT imem_now()") -> datetime:
    """Return the journal's time as a session is told it."""
    at = sure(connection.execute(query.encode()).fetchone())[0]
    assert isinstance(at, datetime)
    return at


def test_a_year_passes_for_every_role_and_every_process(home: Path) -> None:
    """Open sessions and programs that run see it; the application moves nothing; and time never goes back."""
    settings = settings_for(home)
    trial.begin(settings, JUNE)
    with LocalStack(settings, servers={"postgres", "valkey"}, workers=False) as stack:
        migrate(stack.settings)
        trial.settle(stack.settings)
        roles = [
            shown(getattr(stack.settings, f"postgres_{one}url")) for one in ("", "curator_", "pipeline_", "admin_")
        ]
        _follow(settings)
        assert near(SystemClock().now(), JUNE)
        for url in roles:
            with psycopg.connect(url) as session:
                assert near(told(session), JUNE)

        with psycopg.connect(roles[0], autocommit=True) as application:
            application.execute("PREPARE told AS SELECT imem_now()")
            for _ in range(8):  # From the sixth execution on its plan is kept.
                assert near(told(application, "EXECUTE told"), JUNE)
            _moves_nothing(application)
            assert near(trial.advance(settings, 365 * DAY), YEAR)
            assert near(told(application, "EXECUTE told"), YEAR)
            assert near(told(application), YEAR)
        assert near(SystemClock().now(), YEAR), "a process that runs reads the file again"
        ran = subprocess.run(
            [sys.executable, "-c", TELLS],
            env=environment(IMEM_HOME=str(home)),
            capture_output=True,
            text=True,
            check=True,
        )
        assert near(datetime.fromisoformat(ran.stdout.strip()), YEAR)
        _never_goes_back(roles[-1], stack.settings, home)
        _is_said(home)


def _follow(settings: Settings) -> None:
    """Use the stack of a home, of which Neo4j is left out."""
    named = settings.model_copy(update={"neo4j_url": "bolt://127.0.0.1:1"})
    state.with_local_endpoints(named)


def _moves_nothing(application: psycopg.Connection[Any]) -> None:
    """The application's role can neither move time nor undo it."""
    for statement in (
        "SELECT imem_advance_clock('400 days')",
        "CREATE OR REPLACE FUNCTION imem_clock_ahead() RETURNS interval LANGUAGE sql AS 'SELECT interval ''9 d'''",
        "ALTER FUNCTION imem_clock_ahead() RENAME TO another",
        "DROP FUNCTION imem_clock_ahead()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute(statement.encode())
    for shift in ("400 days", "0", ""):
        application.execute("SELECT set_config('imem.clock_shift', %s, false)", (shift,))
        assert near(told(application), JUNE)


def _never_goes_back(owner: str, settings: Settings, home: Path) -> None:
    """In a journal with events time is not put back, and what a killed command left is made to agree with it."""
    clock = Folders(home).clock
    before = json.loads(clock.read_text())["ahead_s"]
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("ALTER TABLE event DISABLE TRIGGER USER")
        connection.execute(
            "INSERT INTO event (event_id, actor, actor_role, imported, agent_seq, kind, record_key, payload,"
            " payload_hash, occurred_at, known_at, recorded_at, order_key) VALUES (gen_random_uuid(), 'a', 'agent',"
            " false, 1, 'record.X', 'x', '{}', '', imem_now(), imem_now() - interval '1 s', imem_now(), '')"
        )
        clock.write_text(json.dumps({"ahead_s": before - 1_000_000}))
        trial.settle(settings)
        assert near(told(connection), YEAR)
    assert json.loads(clock.read_text())["ahead_s"] == before


def _is_said(home: Path) -> None:
    """``imem clock``, ``status`` and ``doctor`` say that it is a trial; a doctor elsewhere calls the journal broken."""
    said = f"TRIAL: its time is {YEAR:%Y-%m-%d} 06:"
    assert imem(home, "clock", "show").stdout.startswith(said)
    assert said in imem(home, "status").stdout
    assert json.loads(imem(home, "status", "--json").stdout)["clock"]["now"].startswith(f"{YEAR:%Y-%m-%d}")
    [found] = [one for one in checks.examine({"IMEM_HOME": str(home)}) if one.about == "clock"]
    assert found.level is checks.CheckLevel.WEAK
    assert found.text.startswith(said)
    clock = Folders(home).clock
    clock.rename(home / "aside")  # As of a dump that was restored where no trial is.
    [found] = [one for one in checks.examine({"IMEM_HOME": str(home)}) if "a trial's" in one.text]
    assert found.level is checks.CheckLevel.BROKEN
    refused = imem(home, "clock", "advance", "31d")
    assert refused.returncode == 1
    assert "is no trial" in refused.stderr


def test_what_is_no_trial_stays_at_the_machines_time(home: Path) -> None:
    """A folder that holds a memory, a journal elsewhere, and a trial that has begun: one sentence each."""
    settings = settings_for(home)
    folders = Folders(home)
    folders.prepare()
    folders.secrets.write_text("{}")
    with pytest.raises(StackError, match=r"holds a memory that is no trial.*IMEM_HOME=/some/folder"):
        trial.begin(settings, None)
    assert not folders.clock.exists()
    with pytest.raises(StackError, match="No stack that is ready runs"):
        trial.advance(settings, DAY)

    folders.secrets.unlink()
    with pytest.raises(BadInput, match="more than ten years"):
        trial.begin(settings, JUNE - 5_000 * DAY)
    trial.begin(settings, JUNE)
    trial.begin(settings, None)
    with pytest.raises(StackError, match=r"has begun.*imem clock advance"):
        trial.begin(settings, JUNE)
    elsewhere = imem(home, "up", "--detach", IMEM_POSTGRES_URL="postgresql://x:y@127.0.0.1:1/z")
    assert elsewhere.returncode == 1
    assert "IMEM_POSTGRES_URL is set" in elsewhere.stderr
    assert imem(home, "up", "--at", "2026-06-01").returncode == 2


@pytest.mark.parametrize("text", ["", "0d", "-1d", "31", "d", "1.5d", "31D", "1w", "99999999d", "1d2h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Zero and backwards among it."""
    with pytest.raises(BadInput, match="is no duration, such as 31d"):
        trial.duration(text)


def test_the_schedule_goes_by_the_trials_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due daily is asked for when a month has passed in a moment; the next request takes its time again."""
    asked: list[str] = []

    def noted(entry: Any, producer: Any = None) -> None:  # noqa: ARG001 - as Celery calls it
        asked.append(entry.task)

    clock = tmp_path / "clock.json"
    trial_file(clock, JUNE)
    follow_trial(clock)
    settings = Settings.read({"IMEM_HOME": str(tmp_path), "IMEM_VALKEY_DURABLE_URL": "redis://127.0.0.1:1/0"})
    scheduler = SteadyScheduler(make_app(settings), lazy=True, schedule_filename=str(tmp_path / "schedule"))
    monkeypatch.setattr(scheduler, "apply_entry", noted)
    monkeypatch.setitem(vars(scheduler), "producer", None)
    try:
        scheduler.setup_schedule()
        while scheduler.tick() == 0:
            pass
        asked.clear()
        trial_file(clock, JUNE + 31 * DAY)
        while scheduler.tick() == 0:
            pass
        assert set(asked) == {one.task for one in scheduler.schedule.values()}, "quarters begin in July"
        asked.clear()
        assert scheduler.tick() > 0
        assert asked == []
    finally:
        scheduler.close()


def trial_file(path: Path, at: datetime) -> None:
    """Let the time of a trial be *at*, as its home says it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"ahead_s": round((at - MachineClock().now()).total_seconds())}))
    new.replace(path)
