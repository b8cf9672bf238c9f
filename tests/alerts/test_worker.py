"""The processes themselves: beat asks, a worker sends, a receiver gets it within half a minute."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from imem.alerts.notifiers import verify
from imem.jobs.alert_pipelines import SEND_ALERTS
from imem.journal.settings import Settings
from imem.local import state
from imem.local.process import ProcessIdentity
from imem.workers.celery_app import make_app
from tests.http_server import serving
from tests.servers import in_database
from tests.workers import process

from .conftest import AlertHarness, failure
from .killed import SECRET

PROMISED_S = 30.0


def settings_of(stack: Any, harness: AlertHarness, home: Path, webhook: str) -> Settings:
    given: Settings = stack.settings
    return given.model_copy(
        update={
            "home": home, **in_database(given, harness.url), "neo4j_url": "bolt://127.0.0.1:1",
            "webhook_url": SecretStr(webhook), "webhook_secret": SecretStr(SECRET), "log_level": "DEBUG",
        }
    )  # fmt: skip


@pytest.mark.spec("CK-41")
async def test_an_alert_of_a_failure_leaves_within_half_a_minute(
    harness: AlertHarness, light_stack: Any, home: Path
) -> None:
    """Raised beside running processes: it is there, signed, before the promised time is over."""
    with serving() as server:
        settings = settings_of(light_stack, harness, home, f"{server.url}/t0ken")
        async with process("celery", settings), process("beat", settings):
            # The processes start meanwhile; what they find when they are up counts from here.
            await _beats(home)
            began = time.monotonic()
            await harness.say(failure())
            assert await asyncio.to_thread(server.arrived.wait, 3 * PROMISED_S), logged(home)
            took = time.monotonic() - began

    assert took < PROMISED_S
    assert "t0ken" not in logged(home)
    assert verify(SECRET, server.asked[0].headers, server.asked[0].body)


def logged(home: Path) -> str:
    """Return what the processes have logged."""
    return "".join(log.read_text() for log in home.glob("*.log"))


async def _beats(home: Path) -> None:
    """Wait until beat and the worker have said that they are at work: a first pass has been through."""
    async with asyncio.timeout(120):
        while SEND_ALERTS.name not in (home / "celery.log").read_text():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


def test_beat_asks_every_ten_seconds(light_stack: Any) -> None:
    entry = make_app(light_stack.settings).conf.beat_schedule[SEND_ALERTS.name]
    assert (entry["task"], entry["schedule"]) == (SEND_ALERTS.name, 10.0)


def test_workers_of_the_local_stack_get_the_webhook_from_who_started_it(home: Path) -> None:
    """By the state file, which is private: processes get no secret by their environment."""
    from imem.local.supervisor import Supervisor
    from imem.local.workers import environment

    settings = Settings.read(
        {"IMEM_WEBHOOK_URL": "https://h/t0ken", "IMEM_WEBHOOK_SECRET": SECRET, "IMEM_HOME": str(home)}
    )
    endpoints = Supervisor(settings)._given()
    filled = state.fill(Settings.read({}), endpoints)

    assert filled.webhook_url == settings.webhook_url
    assert filled.webhook_secret == settings.webhook_secret
    assert "IMEM_WEBHOOK_SECRET" not in environment(settings)
    assert "IMEM_WEBHOOK_URL" not in environment(settings)
    assert SECRET not in repr(state.StackState(ProcessIdentity(1, 0, ""), endpoints=endpoints))
    own = Settings.read({"IMEM_WEBHOOK_URL": "https://other/x", "IMEM_WEBHOOK_SECRET": "another secret of ours"})
    assert state.fill(own, endpoints).webhook_url == own.webhook_url
