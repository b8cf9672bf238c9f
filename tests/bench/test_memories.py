"""
Memories: how much of the evidence a search finds, and how long it takes.

The evidence is that of LoCoMo, conversations with questions whose answers stand in certain messages. Its licence does
not let it be kept here: ``IMEM_LOCOMO`` names a folder with its ``messages.jsonl.gz`` and ``questions.jsonl.gz``. The
weights of :mod:`imem.recall.memories.ranking` were chosen on the first three conversations.
"""

from __future__ import annotations

import gzip
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import orjson
import psycopg
import pytest
import pytest_asyncio

from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import as_text
from imem.memory import Memory
from imem.recall.memories.ranking import CANDIDATES
from imem.recall.memories.store import EXACT
from tests.bench.table import Figure, Table, percentile
from tests.encoders import LOCAL
from tests.imem.memory.conftest import House, house

__all__ = ["house"]

DATA: Final = os.environ.get("IMEM_LOCOMO", "")
BARS: Final = {10: 0.76, 20: 0.83}
TUNED: Final = 3
"""Conversations on which the weights were chosen."""

FACTOR: Final = 1.5
"""Longest question, as a multiple of the statement and the encoding alone, at p95."""

pytestmark = [pytest.mark.bench, pytest.mark.skipif(not DATA, reason="IMEM_LOCOMO names no folder")]


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(Path(DATA) / name) as file:
        yield from map(orjson.loads, file)


@pytest_asyncio.fixture
async def memory(house: House) -> AsyncIterator[Memory]:
    """Remember every message, each conversation in a namespace, each session a conversation of it."""
    async with Memory.open(house.of("kate", Role.HUMAN_ADMIN)) as opened:
        for said in lines("messages.jsonl.gz"):
            caption = f" [image: {said['image_caption']}]" if said.get("image_caption") else ""
            await opened.remember(
                f"{said['speaker']}: {said['text']}{caption}",
                namespace=f"user/{said['conversation']}",
                metadata={said["id"]: True},
                conversation_id=str(said["session"]),
                author=said["speaker"],
                memory_type="episodic",
            )
        yield opened


async def test_evidence_is_found(memory: Memory, house: House, table: Table) -> None:
    """Of each question the share of its evidence among the first ten and twenty; and the time of an answer."""
    found: dict[int, dict[str, list[float]]] = {most: defaultdict(list) for most in BARS}
    taken_ms, kept = [], []
    there = {said["conversation"]: set[str]() for said in lines("messages.jsonl.gz")}
    for said in lines("messages.jsonl.gz"):
        there[said["conversation"]].add(said["id"])
    for asked in lines("questions.jsonl.gz"):
        space = f"user/{asked['conversation']}"
        evidence = set(asked["evidence"]) & there[asked["conversation"]]
        begun = time.perf_counter()
        answer = await memory.memories.search(asked["question"], namespace=space, limit=max(BARS), deadline_ms=5_000)
        taken_ms.append((time.perf_counter() - begun) * 1000)
        assert answer.reason is None
        kept.append((space, asked["question"]))
        for most, shares in found.items():
            ids = {name for item in answer.items[:most] for name in item.metadata}
            if evidence:
                shares[asked["conversation"]].append(len(ids & evidence) / len(evidence))
    p95_ms, bare_ms = percentile(taken_ms, 0.95), percentile(await bare(house, kept), 0.95)
    data = f"{sum(map(len, there.values())):,} messages"
    figures = []
    for most, shares in found.items():
        tuned, others = ([one for name in names for one in shares[name]] for names in _split(sorted(shares)))
        note = f"on the conversations for tuning {fmean(tuned):.3f}, on the others {fmean(others):.3f}"
        figures.append(
            Figure(
                name=f"evidence, R@{most}", data=data, value=fmean([*tuned, *others]), unit="", bar=BARS[most],
                better="more", note=note,
            )
        )  # fmt: skip
    note = f"{len(kept)} questions; the floor is the statement and the encoding alone"
    bar = FACTOR * bare_ms
    table.add(
        *figures,
        Figure(name="memories search p50", data=data, value=percentile(taken_ms, 0.5), unit="ms"),
        Figure(name="memories search p95", data=data, value=p95_ms, unit="ms", floor=bare_ms, bar=bar, note=note),
    )


def _split(names: list[str]) -> tuple[list[str], list[str]]:
    return names[:TUNED], names[TUNED:]


async def bare(house: House, questions: list[tuple[str, str]]) -> list[float]:
    """Return how long encoding and statement take by themselves, over one connection, in milliseconds."""
    assert house.settings.postgres_url is not None
    given = {
        "model_id": LOCAL.model_id, "dimension": LOCAL.dimension, "memory_type": None, "agent_id": None,
        "conversation_id": None, "until": None, "candidates": CANDIDATES, "exact": EXACT,
    }  # fmt: skip
    taken_ms = []
    url = house.settings.postgres_url.get_secret_value()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        for space, question in [questions[0], *questions]:
            begun = time.perf_counter()
            [vector] = await LOCAL.embed([question], deadline=Deadline.never(), purpose=Purpose.QUERY)
            asked = {**given, "scopes": [space], "query": question, "vector": as_text(vector)}
            await (await conn.execute(sql("search_memories"), asked)).fetchall()
            taken_ms.append((time.perf_counter() - begun) * 1000)
    return taken_ms[1:]
