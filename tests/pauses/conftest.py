"""A database of its own for each test, and both Valkeys emptied before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.servers import cloned

from .world import World, close_world, make_world


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(light_stack.settings, url, admin_url)
        for plain in (made.working_redis, made.durable_redis):
            await plain.flushall()
        yield made
        await close_world(made)
