"""LangGraph's threads beside the saver that LangGraph itself has for Postgres: same server, same states, in turns."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypedDict
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from imem.langgraph import ImemSaver
from tests.bench.peers import Runner, peer_on
from tests.bench.table import Figure, Table, percentile
from tests.checkpoints.langgraph.conftest import Base, base
from tests.servers import with_database

__all__ = ["base"]

SIZES: Final = {"1 kB": 1_000, "100 kB": 100_000}
TIMES: Final = 60 if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else 400
"""How often each call is measured."""

WARM: Final = 20
"""Calls before that."""

BAR: Final = 1.2
"""How much slower than the peer a call may be at p95."""

THREADS: Final = {"full": 1_000, "tiny": 40}
"""Threads that wait and are resumed."""

AT_ONCE: Final = 10
"""Of them, how many go on at the same time."""

LENGTH: Final = 100
"""Checkpoints of the thread whose size is measured."""


@pytest_asyncio.fixture
async def peer(base: Base) -> AsyncIterator[AsyncPostgresSaver]:
    async with peer_on(base.admin_url) as saver:
        yield saver


@pytest_asyncio.fixture
async def ours(base: Base) -> AsyncIterator[ImemSaver]:
    async with ImemSaver.open(base.settings) as saver:
        yield saver


@pytest.mark.bench
@pytest.mark.parametrize("data", SIZES)
async def test_calls_beside_langgraphs_own_saver(
    ours: ImemSaver, peer: AsyncPostgresSaver, table: Table, data: str
) -> None:
    """In turns, so that both meet the same machine; one task, one connection each, every commit on disk."""
    runners = {"ours": Runner(ours, SIZES[data]), "peer": Runner(peer, SIZES[data])}
    for n in range(WARM + TIMES):
        if n == WARM:
            for runner in runners.values():
                for taken in runner.taken_ms.values():
                    taken.clear()
        for name in ("ours", "peer") if n % 2 else ("peer", "ours"):
            await runners[name].step(n)

    figures = []
    for call in runners["ours"].taken_ms:
        for share, label in ((0.5, "p50"), (0.95, "p95")):
            mine, floor = (percentile(runner.taken_ms[call], share) for runner in runners.values())
            bar = BAR * floor if label == "p95" else None
            figures.append(
                Figure(name=f"LangGraph {call} {label}", data=data, value=mine, unit="ms", floor=floor, bar=bar)
            )
    table.add(*figures)


@pytest.fixture
def database_size(base: Base) -> Callable[[str, tuple[str, ...]], int]:
    """Measure what tables take on disk, with their indexes, in some database."""

    def measure(name: str, tables: tuple[str, ...]) -> int:
        url = with_database(base.admin_url, name) if name else base.admin_url
        with psycopg.connect(url, autocommit=True) as conn:
            [size] = conn.execute(
                "SELECT sum(pg_total_relation_size(t.name::regclass)) FROM unnest(%s::text[]) AS t (name)",
                (list(tables),),
            ).fetchone() or (0,)
            return int(size)

    return measure


class Case(TypedDict, total=False):
    """What the graph of a waiting thread knows."""

    subject: str
    answer: str
    verdict: str


def asking(saver: Any) -> Any:
    """Return a graph that waits for an answer in its second node, and says what came of it in its third."""

    def read(state: Case) -> Case:
        return {"subject": state["subject"].upper()}

    def ask(state: Case) -> Case:
        return {"answer": interrupt(state["subject"])}

    def judge(state: Case) -> Case:
        return {"verdict": f"{state['subject']}: {state['answer']}"}

    graph = StateGraph(Case)
    for node in (read, ask, judge):
        graph.add_node(node.__name__, node)
    for one, next_one in ((START, "read"), ("read", "ask"), ("ask", "judge"), ("judge", END)):
        graph.add_edge(one, next_one)
    return graph.compile(checkpointer=saver)


async def resumed_a_second(saver: Any, threads: int) -> float:
    """Let *threads* threads wait for an answer, then answer all; return how many a second went on to their end."""
    graph, run = asking(saver), uuid4().hex
    lanes = asyncio.Semaphore(AT_ONCE)

    async def on(number: int, given: Any) -> Any:
        async with lanes:
            return await graph.ainvoke(given, {"configurable": {"thread_id": f"{run}-{number}"}})

    await asyncio.gather(*(on(number, {"subject": f"company:{number}"}) for number in range(threads)))
    begun = time.perf_counter()
    ended = await asyncio.gather(*(on(number, Command(resume="yes")) for number in range(threads)))
    took_s = time.perf_counter() - begun
    assert [one["verdict"] for one in ended] == [f"COMPANY:{number}: yes" for number in range(threads)]
    return threads / took_s


@pytest.mark.bench
async def test_a_thousand_threads_go_on(ours: ImemSaver, peer: AsyncPostgresSaver, table: Table) -> None:
    """Threads that waited for a person, resumed by one process, ten at once, to their end."""
    threads = THREADS[table.scale]
    figure, floor = [await resumed_a_second(saver, threads) for saver in (ours, peer)]
    table.add(
        Figure(
            name="LangGraph threads resumed", data=f"{threads:,} threads", value=figure, unit="1/s", floor=floor,
            better="more",
            note=f"{AT_ONCE} at once in one process, from the interrupt to the end; floor: LangGraph's own saver",
        )
    )  # fmt: skip


@pytest.mark.bench
async def test_bytes_of_a_thread(
    ours: ImemSaver, peer: AsyncPostgresSaver, table: Table, database_size: Callable[[str, tuple[str, ...]], int]
) -> None:
    """A thread of a hundred steps, one of its two larger channels never changing: on disk, indexes included."""
    own = tuple(f"langgraph.{name}" for name in ("checkpoint", "blob", "write"))
    theirs = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    name = peer.conn.info.dbname  # type: ignore[union-attr] # it was made from a URL
    before = database_size("", own), database_size(name, theirs)
    for saver in (ours, peer):
        runner = Runner(saver, SIZES["1 kB"])
        for n in range(LENGTH):
            await runner.step(n)
    mine, floor = database_size("", own) - before[0], database_size(name, theirs) - before[1]

    table.add(
        Figure(
            name="LangGraph bytes a checkpoint",
            data="100 steps",
            value=mine / LENGTH,
            unit="B",
            floor=floor / LENGTH,
            bar=floor / LENGTH,
            note="tables and indexes on disk, with a task's writes after each; 1 kB of messages, another kB of writes",
        )
    )
