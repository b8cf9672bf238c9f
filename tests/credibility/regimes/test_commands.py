"""``imem regime`` and ``imem jobs``: what they print, who may, and with which exit code they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from imem.cli import app
from imem.jobs.reports import keep_report
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.memory import Memory
from tests.imem.memory.conftest import MemoryHarness
from tests.servers import as_pipelines, cloned, in_database

TABLE = """known_at,sp500_return_12m,fed_funds,vix
2024-06-03,0.25,5.33,12.9
2024-06-04,0.25,5.33,31.5
"""


@pytest.fixture
def harness(light_stack: Any, light_template: str) -> Iterator[MemoryHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {**in_database(light_stack.settings, url), "neo4j_url": "bolt://127.0.0.1:1", "deadline_ms": 30_000}
        yield MemoryHarness(light_stack.settings.model_copy(update=addresses), admin_url)


class Line:
    """The command line of an actor."""

    def __init__(self, harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch, role: Role = Role.HUMAN_ADMIN) -> None:
        monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("kate", role))

    def __call__(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == code, done.output
        return done.stdout


def test_a_person_sets_a_regime_and_takes_it_back(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(harness, monkeypatch)
    assert "US: NORMAL (stale)" in line("regime")
    assert "No reading is known." in line("regime")
    made = json.loads(line("regime", "set", "BEAR_LOW_RATES", "--at", "2026-06-01T00:00:00Z", "--json"))
    line("regime", "set", "BEAR_LOW_RATES", "--at", "2026-06-01T00:00:00Z")
    said = line("regime")
    assert "US: BEAR_LOW_RATES, as of" in said
    assert said.count("2026-06-01 00:00 UTC  BEAR_LOW_RATES  by kate") == 1
    assert "NORMAL" in line("regime", "--as-of", "2026-06-02"), "it was not known then"
    line("regime", "withdraw", made["id"], "--reason", "A slip.")
    assert "US: NORMAL (stale)" in line("regime")
    line("regime", "withdraw", made["id"], "--reason", "A slip.", code=2)
    line("regime", "set", "SIDEWAYS", code=2)
    line("regime", "set", "NORMAL", "--at", "2200-01-01T00:00:00Z", code=2)
    line("regime", "set", "NORMAL", "--at", "2026-06-01T00:00:00", code=2)


def test_a_history_is_imported_once(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the days from which its values could be known; a file that says something else is refused."""
    line = Line(harness, monkeypatch)
    path = tmp_path / "indicators.csv"
    path.write_text(TABLE)
    assert line("regime", "import", str(path)) == "2 readings, 2 of them new.\n"
    assert line("regime", "import", str(path)) == "2 readings, 0 of them new.\n"
    assert "US: NORMAL (stale)" in line("regime", "--as-of", "2024-06-03T23:59:59Z")
    assert "US: BULL_HIGH_RATES, as of" in line("regime", "--as-of", "2024-06-03")
    assert "HIGH_VOLATILITY, S&P 500 +25.0%, rate 5.33, VIX 31.5  by indicators.csv" in line("regime")
    path.write_text(TABLE.replace("31.5", "11"))
    line("regime", "import", str(path), code=2)
    path.write_text(TABLE.replace("31.5", "calm"))
    line("regime", "import", str(path), code=2)


def test_an_agent_reads_the_regime_and_sets_none(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(harness, monkeypatch, Role.AGENT)
    assert "US: NORMAL" in line("regime")
    line("regime", "set", "NORMAL", code=1)
    with Memory.sync(harness.of("kate", Role.AGENT)) as memory:
        assert memory.regime(limit=3).readings == ()


async def test_what_pipelines_did_is_kept(harness: MemoryHarness) -> None:
    """Of each the newest, of one all that are kept; idle runs do not push out the others."""
    url = harness.settings.postgres_url
    assert url is not None
    database = Database(as_pipelines(harness.settings, url.get_secret_value()))

    async def ran(report: dict[str, Any], error: str | None = None) -> None:
        await keep_report(database, "credibility.detect_regime", report, took_s=0.5, error=error, keep=3)

    with capture_logs() as logs:
        for number in range(5):
            await ran({"regime": "NORMAL", "nth": number})
            await ran({"regime": None})
        await ran({}, "PostgresUnavailable: It is away.")
    assert logs == []
    kept = [
        (row["report"], row["error"])
        for row in await database.rows(
            "SELECT report, error FROM pipeline_report ORDER BY started_at", deadline=Deadline.never()
        )
    ]
    await database.close()
    assert kept == [
        ({"nth": 3, "regime": "NORMAL"}, None),
        ({"nth": 4, "regime": "NORMAL"}, None),
        ({}, "PostgresUnavailable: It is away."),
    ]


def test_jobs_are_listed(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(harness, monkeypatch)
    said = line("jobs")
    assert "credibility.detect_regime  every 15 s\n  no report yet" in said
    assert "credibility.reconcile  daily at 03:17 UTC" in said
    assert "credibility.review  first day of a quarter at 04:37 UTC\n  no report yet" in said
    assert json.loads(line("jobs", "credibility.settle", "--json")) == {
        "schedules": {"credibility.settle": "every 15 s"}, "reports": [],
    }  # fmt: skip
    line("jobs", "no.such", code=2)


def test_a_report_names_what_it_lists(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the review of a quarter does its proposals; what is empty is left out."""
    url = harness.settings.postgres_url
    assert url is not None

    async def ran() -> None:
        database = Database(as_pipelines(harness.settings, url.get_secret_value()))
        report = {"scores": 2, "proposed": ["bias:1: ann, +30.0%", "bias:2: bob, -5.0%"], "blind_spots": []}
        await keep_report(database, "credibility.review", report, took_s=0.5, error=None, keep=3)
        await database.close()

    asyncio.run(ran())
    said = Line(harness, monkeypatch)("jobs", "credibility.review")
    assert "proposed bias:1: ann, +30.0%; bias:2: bob, -5.0%" in said
    assert "blind" not in said
