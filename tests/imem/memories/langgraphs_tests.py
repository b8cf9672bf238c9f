"""
LangGraph's own tests of its store for Postgres, with our store in the place of theirs.

``test_langgraphs_tests.py`` runs this file by a pytest of its own, in the folder of LangGraph's unpacked distribution:
its tests are a package ``tests``, as ours are. ``THEIRS`` names the module of it that is run, ``ADMIN_URL`` the
database as its owner.

Of theirs, what reaches behind the store is replaced: rows are ours, and to sleep is to move what expires.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import numpy as np
import psycopg
import pytest
import pytest_asyncio

from imem.journal.deadline import Deadline
from imem.journal.settings import Settings
from imem.kg.similarity.embedders import Vectors, unit
from imem.kg.similarity.sentence_models import Purpose
from imem.langgraph import MemoryStore
from imem.memory import Memory
from imem.recall.memories.namespaces import segment_of

SETTINGS: Final = Settings.read({name: value for name, value in os.environ.items() if name.startswith("IMEM_")})
ADMIN_URL: Final = os.environ["ADMIN_URL"]
NAME: Final = os.environ["THEIRS"]
AWAITED: Final = "async" in NAME

pytest.register_assert_rewrite(NAME)
theirs: Final = import_module(NAME)
globals().update({name: value for name, value in vars(theirs).items() if name.startswith("test_")})


class Embedder:
    """Their model as an embedder of ours."""

    model_id, dimension, unrelated = "characters", 500, 0.0

    def __init__(self, model: Any) -> None:
        self._model = model

    async def embed(
        self,
        texts: Sequence[str],
        *,
        deadline: Deadline,  # noqa: ARG002 - as the protocol has it
        purpose: Purpose = Purpose.COMPARE,  # noqa: ARG002 - as above
    ) -> Vectors:
        return unit(np.array(self._model.embed_documents(texts)))


class Served(MemoryStore):
    """
    Ours with what their tests call of theirs besides: a sweeper, of which ours has no need.

    Attributes:
        root: below which its items are.
        ttl_config: what it is told there has no effect.
    """

    def __init__(self, memory: Any, fields: Sequence[str] | None) -> None:
        self.root = f"agent/ann/{uuid4().hex}"
        self.ttl_config = {}
        super().__init__(memory, root=self.root, fields=fields)

    def start_ttl_sweeper(self) -> Any:
        return asyncio.sleep(0) if AWAITED else None

    stop_ttl_sweeper = start_ttl_sweeper


# Behind the store


def behind(statement: str, *given: Any) -> list[Any]:
    with psycopg.connect(ADMIN_URL, autocommit=True) as conn:
        cursor = conn.execute(statement, given)
        return cursor.fetchall() if cursor.description is not None else []


def pass_time(seconds: float) -> None:
    behind("UPDATE recall.memory SET expires_at = expires_at - %s", timedelta(seconds=seconds))


def expire_now(store: Served, namespace: Sequence[str], key: str) -> None:
    behind(
        "UPDATE recall.memory SET expires_at = imem_now() - interval '1 minute' WHERE namespace = %s AND item_key = %s",
        *place(store, namespace, key),
    )


def expires_at(store: Served, namespace: Sequence[str], key: str) -> datetime:
    [[found]] = behind(
        "SELECT expires_at FROM recall.memory WHERE namespace = %s AND item_key = %s AND superseded_at IS NULL",
        *place(store, namespace, key),
    )
    assert isinstance(found, datetime)
    return found


def row_exists(store: Served, namespace: Sequence[str], key: str) -> bool:
    return expires_at(store, namespace, key) is not None


def place(store: Served, namespace: Sequence[str], key: str) -> tuple[str, str]:
    return "/".join((store.root, *map(segment_of, namespace))), key


def awaited(function: Any) -> Any:
    async def call(*given: Any) -> Any:
        return function(*given)

    return call


# In the place of theirs


@pytest.fixture
def fake_embeddings() -> Any:
    return theirs.CharacterEmbeddings(dims=Embedder.dimension)


@pytest.fixture(autouse=True)
def embedder(fake_embeddings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: Embedder(fake_embeddings))


@contextmanager
def served(*_: Any, text_fields: Sequence[str] | None = None, **__: Any) -> Iterator[Served]:
    with Memory.sync(SETTINGS) as memory:
        yield Served(memory, text_fields)


@asynccontextmanager
async def aserved(*_: Any, text_fields: Sequence[str] | None = None, **__: Any) -> AsyncIterator[Served]:
    async with Memory.open(SETTINGS) as memory:
        yield Served(memory, text_fields)


def blocking_store() -> Iterator[Served]:
    with served() as opened:
        yield opened


async def awaited_store() -> AsyncIterator[Served]:
    async with aserved() as opened:
        yield opened


store: Any = pytest_asyncio.fixture(awaited_store) if AWAITED else pytest.fixture(blocking_store)
vector_store = store

BLOCKING: Final = {
    "_create_vector_store": served,
    "_expire_now": expire_now,
    "_stored_expires_at": expires_at,
    "_row_exists": row_exists,
    "time": SimpleNamespace(**{**vars(time), "sleep": pass_time}),
}
AWAITING: Final = {
    "_create_vector_store": aserved,
    "_aexpire_now": awaited(expire_now),
    "_astored_expires_at": awaited(expires_at),
    "_arow_exists": awaited(row_exists),
    "asyncio": SimpleNamespace(**{**vars(asyncio), "sleep": awaited(pass_time)}),
}
for name, value in (AWAITING if AWAITED else BLOCKING).items():
    assert hasattr(theirs, name), f"{NAME} has no {name}."
    setattr(theirs, name, value)
