"""A migrated database for these tests, savers on it of both halves, and what they need to make checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from pydantic import SecretStr

from imem.journal.settings import Settings
from imem.langgraph import ImemSaver
from tests.servers import asked, cloned, in_database


@dataclass(frozen=True)
class Base:
    """
    A database of these tests' own.

    Attributes:
        settings: name its Postgres, as the application and as the owner.
        url, admin_url: the same.
    """

    settings: Settings
    url: str
    admin_url: str

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Look, or change something, behind the application's back."""
        return asked(self.admin_url, query, parameters)

    def count(self, thread_id: str) -> dict[str, int]:
        """Return how many rows of each table a thread has."""
        [row] = self.rows(
            "SELECT (SELECT count(*) FROM langgraph.checkpoint WHERE thread_id = %s) AS checkpoints, "
            "(SELECT count(*) FROM langgraph.blob WHERE thread_id = %s) AS blobs, "
            "(SELECT count(*) FROM langgraph.write WHERE thread_id = %s) AS writes",
            *[thread_id] * 3,
        )
        return row


@pytest.fixture(scope="session")
def base(light_stack: Any, light_template: str) -> Iterator[Base]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {**in_database(light_stack.settings, url), "postgres_admin_url": SecretStr(admin_url)}
        yield Base(light_stack.settings.model_copy(update=addresses), url, admin_url)


@pytest.fixture(scope="session")
def saver(base: Base) -> Iterator[ImemSaver]:
    """Give a saver for threads."""
    with ImemSaver.open(base.settings) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session")
async def asaver(base: Base) -> AsyncIterator[ImemSaver]:
    """Give a saver for tasks of this loop."""
    async with ImemSaver.open(base.settings) as opened:
        yield opened


class ThroughThreads(BaseCheckpointSaver[str]):
    """Offers the methods for tasks, and calls those for threads: whatever one half must do, the other must as well."""

    def __init__(self, saver: ImemSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aput(self, *args: Any) -> RunnableConfig:
        return await asyncio.to_thread(self.saver.put, *args)

    async def aput_writes(self, *args: Any, **named: Any) -> None:
        await asyncio.to_thread(self.saver.put_writes, *args, **named)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.saver.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **named: Any) -> AsyncIterator[CheckpointTuple]:
        for one in await asyncio.to_thread(lambda: list(self.saver.list(config, **named))):
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        await asyncio.to_thread(self.saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.saver.prune(thread_ids, strategy=strategy))

    async def aprune_older(self, *args: Any, **named: Any) -> int:
        return await asyncio.to_thread(lambda: self.saver.prune_older(*args, **named))

    async def aget_delta_channel_history(self, **named: Any) -> Mapping[str, Any]:
        return await asyncio.to_thread(lambda: self.saver.get_delta_channel_history(**named))

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self.saver.get_next_version(current, channel)


@pytest.fixture(params=["threads", "tasks"])
def either(request: pytest.FixtureRequest, saver: ImemSaver, asaver: ImemSaver) -> Any:
    """Give each half in turn, by the methods for tasks."""
    return ThroughThreads(saver) if request.param == "threads" else asaver


# Checkpoints


def thread() -> str:
    """Return the id of a new thread."""
    return f"t-{uuid4()}"


def config(thread_id: str, checkpoint_id: str | None = None, namespace: str = "", **more: Any) -> RunnableConfig:
    named = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, **named, **more}}


def checkpoint(
    values: Mapping[str, Any] | None = None, versions: Mapping[str, Any] | None = None, checkpoint_id: str = ""
) -> Checkpoint:
    """Make a checkpoint with these channels, at version 1 each where nothing else is said."""
    values = dict(values or {})
    return {
        "v": 4,
        "id": checkpoint_id or str(uuid6()),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict(versions) if versions is not None else dict.fromkeys(values, "1"),
        "versions_seen": {},
        "updated_channels": None,
    }


def metadata(step: int = 0, **more: Any) -> CheckpointMetadata:
    made: CheckpointMetadata = {"source": "loop", "step": step, "parents": {}}
    made.update(more)  # type: ignore[typeddict-item] # keys of one's own are allowed
    return made


async def chain(saver: Any, thread_id: str, length: int, namespace: str = "", **more: Any) -> list[RunnableConfig]:
    """Put checkpoints one after the other, each with a new value of ``changing`` and the same of ``lasting``."""
    stored: list[RunnableConfig] = []
    for step in range(length):
        parent = stored[-1]["configurable"]["checkpoint_id"] if stored else None
        values = {"changing": ["value", step], "lasting": ["same", "always"]}
        one = checkpoint(values, {"changing": f"{step + 1}", "lasting": "1"})
        new = {"changing": f"{step + 1}", **({"lasting": "1"} if step == 0 else {})}
        put = await saver.aput(config(thread_id, parent, namespace, **more), one, metadata(step), new)
        stored.append(put)
    return stored


async def listed(saver: Any, where: RunnableConfig | None, **named: Any) -> list[CheckpointTuple]:
    return [one async for one in saver.alist(where, **named)]
