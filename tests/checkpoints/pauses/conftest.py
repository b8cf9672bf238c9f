"""A database of its own for each test, and both Valkeys emptied before it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from tests.cache.working.servers import OwnServer, own_server
from tests.servers import as_pipelines, cloned

from .world import World, close_world, make_world


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no load of the machine that runs the tests hold a resume back, as it must; the test of that sets its own."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(light_stack.settings, url, admin_url, pipeline_url=as_pipelines(light_stack.settings, url))
        for plain in (made.working_redis, made.durable_redis):
            await plain.flushall()
        yield made
        await close_world(made)


@pytest.fixture
def memories() -> Iterator[tuple[OwnServer, OwnServer]]:
    """Lend a working and a durable server of the test's own."""
    with (
        TemporaryDirectory(prefix="imem-own-") as one,
        TemporaryDirectory(prefix="imem-own-") as two,
        own_server(Path(one)) as working,
        own_server(Path(two)) as durable,
    ):
        yield working, durable


@pytest_asyncio.fixture
async def own(light_stack: Any, light_template: str, memories: tuple[OwnServer, OwnServer]) -> AsyncIterator[World]:
    working, durable = memories
    settings = SimpleNamespace(valkey_working_url=SecretStr(working.url), valkey_durable_url=SecretStr(durable.url))
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(settings, url, admin_url, pipeline_url=as_pipelines(light_stack.settings, url))
        yield made
        await close_world(made)
