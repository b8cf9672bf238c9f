"""A database of its own for each test, and both Valkeys emptied before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest_asyncio
from psycopg import sql as composed

from tests.servers import with_database

from .world import World, close_world, make_world


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    name = f"{light_template}_{uuid4().hex[:8]}"
    admin = light_stack.settings.postgres_admin_url.get_secret_value()
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(
            composed.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(composed.Identifier, (name, light_template)))
        )
        url = with_database(light_stack.settings.postgres_url.get_secret_value(), name)
        made = make_world(light_stack.settings, url, with_database(admin, name))
        for plain in (made.working_redis, made.durable_redis):
            await plain.flushall()
        yield made
        await close_world(made)
        conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))
