"""The broker is away: rounds come all the same, from the worker's own processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from imem.jobs.alert_pipelines import SEND_ALERTS
from imem.jobs.fallback_rounds import FallbackRound, note_begun
from imem.journal.errors import ValkeyUnavailable
from imem.journal.settings import Settings
from imem.services.pauses import sender
from imem.workers.celery_app import QUEUE, make_app
from tests.cache.working.servers import OwnServer
from tests.http_server import HttpServer, serving
from tests.punctual import Punctual
from tests.servers import in_database
from tests.waiting import until
from tests.workers import process

from .world import World, soon

PROMISED_S = 60.0

HANG_S = 2.0
"""No call takes longer, whatever is silent."""


@pytest.fixture
def receiver() -> Iterator[HttpServer]:
    with serving() as server:
        yield server


@pytest.fixture
def settings(
    own: World, memories: tuple[OwnServer, OwnServer], light_stack: Any, home: Path, receiver: HttpServer
) -> Settings:
    given: Settings = light_stack.settings
    return given.model_copy(
        update={
            "home": home,
            **in_database(given, own.url),
            "neo4j_url": "bolt://127.0.0.1:1",
            "valkey_working_url": SecretStr(memories[0].url),
            "valkey_durable_url": SecretStr(memories[1].url),
            "webhook_url": SecretStr(f"{receiver.url}/told"),
            "webhook_secret": SecretStr("a secret of the tests"),
        }
    )


async def dead(own: World, analysis_id: str, stock_id: str) -> None:
    """Have an agent that runs by its row, and whose process is gone."""
    lease = await own.begin(analysis_id, stock_id=stock_id)
    agents = {lease.agent_type: lease.agent_id}
    await own.orchestrator.start_analysis(analysis_id, stock_id, agents, deadline=soon())
    assert await own.orchestrator.begin(own.sent[-1], deadline=soon()) is not None
    own.owner("UPDATE workflow.agent_task SET started_at = imem_now() - interval '1 hour' WHERE state = 'RUNNING'")
    own.owner("UPDATE workflow.agent_leases SET expires_at = imem_now() - interval '1 second'")


@pytest.mark.spec("CK-38")
@pytest.mark.parametrize("how", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.chaos)])
async def test_a_pause_is_driven_and_an_alert_leaves_without_the_broker(
    own: World, memories: tuple[OwnServer, OwnServer], settings: Settings, receiver: HttpServer, how: signal.Signals
) -> None:
    """The durable server is silent, or gone: a dead agent is found, people are told, its pause waits for that alone."""
    durable = memories[1]

    def told() -> bytes:
        return b"".join(one.body for one in receiver.asked)

    async def by_the_broker() -> bool:
        await asyncio.to_thread(
            make_app(settings).send_task, SEND_ALERTS.name, queue=QUEUE, ignore_result=True, expires=5
        )
        return b"a-0" in told()

    async def alone() -> bool:
        return b"a-1" in told()

    async def waits() -> bool:
        rows = await own.rows("SELECT * FROM workflow.paused_analyses WHERE analysis_id = 'a-1'")
        return bool(rows) and (rows[0]["step"], rows[0]["last_trouble"] is not None) == (3, True)

    async def paused() -> bool:
        return bool((await own.pause_row("a-1"))["status"] == "PAUSED")

    await dead(own, "a-0", "company:A")
    async with process("celery", settings):
        await until(by_the_broker)
        await dead(own, "a-1", "company:MU")
        if how is signal.SIGSTOP:
            durable.signal(how)
        else:
            durable.kill()
        try:
            async with asyncio.timeout(PROMISED_S):
                await until(alone)
                await until(waits)
        finally:
            if how is signal.SIGSTOP:
                durable.signal(signal.SIGCONT)
            else:
                durable.start()
        await until(paused)


@pytest.mark.spec("RS-1")
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_whoever_starts_an_agent_does_not_wait_for_the_broker(
    own: World, memories: tuple[OwnServer, OwnServer], settings: Settings, how: signal.Signals
) -> None:
    """It hears before a call counts as hanging that the message did not leave; the row has it sent again."""
    send, in_time = sender(make_app(settings)), Punctual()
    await own.begin("a-1")
    await own.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    if how is signal.SIGSTOP:
        memories[1].signal(how)
    else:
        memories[1].kill()
    try:
        with in_time.within(HANG_S), pytest.raises(ValkeyUnavailable):
            await send(own.sent[-1])
    finally:
        if how is signal.SIGSTOP:
            memories[1].signal(signal.SIGCONT)
    assert in_time.late_s < 0


def test_what_one_process_began_no_other_begins() -> None:
    """The moment is the worker's, not the process's; the broker's tasks count, others do not."""
    regular = FallbackRound("named", 0.0, os.getpid)
    assert regular.overdue

    slow = FallbackRound("named", 1e6, os.getpid)
    slow._begun.value = -1e9
    assert slow.overdue
    other = Process(target=note_begun([slow]), kwargs={"task": FallbackRound("other", 1.0, os.getpid)})
    other.start()
    other.join()
    assert slow.overdue
    other = Process(target=note_begun([slow]), kwargs={"task": slow})
    other.start()
    other.join()
    assert not slow.overdue
