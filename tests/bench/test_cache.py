"""Kept answers: how soon they come, how often they are there, what they weigh, and a graph that stops for a minute."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import psycopg
import pytest
from redis.asyncio import Redis

from imem.cache.keys import APPLIER_HEARTBEAT, CHANGES
from imem.cache.metrics import REQUESTS
from imem.cache.scripts import script
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.gateway import _audit_row
from imem.journal.statements import sql
from imem.kg.kinds.work import Analysis, Finding
from imem.local.folders import Folders
from imem.local.state import running
from imem.memory import Memory
from imem.recall.model import Quality
from imem.services.stores import Stores
from tests.bench import floor
from tests.bench.replay import Bare
from tests.bench.table import MB, Figure, Table, percentile
from tests.bench.test_memory import subjects_of
from tests.bench.worlds import World, _family, all_done

pytestmark = pytest.mark.bench

COUNTS: Final = {
    "full": {"briefs": 400, "reads": 100_000, "stopped_s": 60, "asked_a_second": 50, "findings": 20},
    "tiny": {"briefs": 60, "reads": 5_000, "stopped_s": 8, "asked_a_second": 20, "findings": 5},
}

LARGEST: Final = pytest.mark.parametrize("world", ["large"], indirect=True)
"""What takes minutes is measured on one data set."""

KEPT_MS: Final = 200.0
"""What a briefing may take at the 95th percentile where all of it is kept, in milliseconds."""

READER: Final = "a reader"

RUN: Final = 50
"""Whole briefings in a row that say that everything is well again."""

SECTOR: Final = """
SELECT 'company:' || c.key AS subject_id FROM record_head AS c JOIN event AS e ON e.position = c.position
WHERE c.kind = 'Company' AND c.grp = 'profile'
  AND EXISTS (SELECT FROM record_head AS a WHERE a.kind = 'Analysis' AND a.subject_id = 'company:' || c.key)
ORDER BY e.payload -> 'groups' -> 'profile' ->> 'sector', c.key LIMIT 10
"""


@pytest.fixture
def counts(table: Table) -> dict[str, int]:
    return COUNTS[table.scale]


async def _timed(call: Callable[[], Awaitable[Any]]) -> float:
    begun = time.perf_counter()
    await call()
    return (time.perf_counter() - begun) * 1000


async def _emptied(world: World) -> None:
    url = world.settings.valkey_cache_url
    assert url is not None
    async with Redis.from_url(url.get_secret_value()) as bare:
        await bare.flushall()


@pytest.mark.spec("PF-1")
async def test_kept_briefings(world: World, stores: Stores, table: Table, counts: dict[str, int]) -> None:
    """All sections, through Memory and the gateway: from another process's answers, and from one's own."""
    subjects, _ = await subjects_of(stores)
    chance = random.Random(11)
    asked = chance.sample(subjects, min(len(subjects), counts["briefs"]))
    # What other measurements have left to be done would end answers meanwhile.
    with psycopg.connect(floor.admin_url(world.settings), autocommit=True) as conn:
        all_done(conn, compared=True)
    await _emptied(world)
    async with Memory.open(world.settings) as loader:
        for subject in asked:
            for _ in range(3):
                if (await loader.brief(subject, deadline_ms=2000)).mode == "normal":
                    break
    # What is left to be scored is kept by nobody: then there is nothing to measure.
    async with Memory.open(world.settings) as memory:
        for subject in asked[:5]:
            await memory.brief(subject)
        tiers = memory._stores.tiers
        assert tiers is not None
        shared, own = [], []
        before = _counted()
        for subject in asked:
            tiers.local.clear()
            shared.append(await _timed(lambda subject=subject: memory.brief(subject)))  # type: ignore[misc]
            own.append(await _timed(lambda subject=subject: memory.brief(subject)))  # type: ignore[misc]
        asked_of = _counted() - before
    least_shared, least_own = await _least(world, stores, counts["briefs"])
    figures = [
        Figure(
            name=f"brief from {tier} p{share:.0%}".rstrip("%"), data=world.data, value=percentile(taken, share),
            unit="ms", floor=percentile(least, share), bar=bar if share == 0.50 else KEPT_MS,
            note="all sections through Memory and the gateway, patterns audited; floor: the bare drivers leave "
            "that row and ask what has changed, at once" + (", after one MGET" if tier == "C1" else ""),
        )
        for tier, taken, least, bar in (("C1", shared, least_shared, 5.0), ("C2", own, least_own, 1.5))
        for share in (0.50, 0.95)
    ]  # fmt: skip
    misses = sum(count for (tier, _, _), count in asked_of.items() if tier == "L3")
    table.add(
        *figures,
        Figure(
            name="sections of kept briefings that were loaded", data=world.data, value=misses / (14 * len(asked)) * 100,
            unit="%", bar=1,
        ),
    )  # fmt: skip


async def _least(world: World, stores: Stores, count: int) -> tuple[list[float], list[float]]:
    """Return what the bare drivers take for what no kept briefing is without: an audit row, and one look."""
    urls = world.settings.valkey_cache_url, world.settings.valkey_durable_url
    assert urls[0] is not None
    assert urls[1] is not None
    row = _audit_row(
        stores.gateway.actor, Resource(ResourceType.PATTERNS), Action.READ, authorized=True, outcome="granted"
    )
    look, tags = script("changes_versions"), range(0, 3_000, 100)
    shared, own = [], []
    async with (
        Bare.open(stores.settings) as bare,
        Redis.from_url(urls[0].get_secret_value()) as cache,
        Redis.from_url(urls[1].get_secret_value()) as durable,
    ):
        await cache.set("bench:body", b"x" * 20_000)
        await durable.script_load(look.text.decode())

        async def recorded() -> None:
            async with bare.pool.connection() as conn:
                await (await conn.execute(sql("audit_patterns"), row)).fetchall()

        async def both() -> None:
            await asyncio.gather(recorded(), durable.evalsha(look.sha1.decode(), 2, CHANGES, APPLIER_HEARTBEAT, *tags))

        for _ in range(count):
            own.append(await _timed(both))
            shared.append(own[-1] + await _timed(lambda: cache.mget(["bench:body"] * 8)))
    return shared, own


def _counted() -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for metric in REQUESTS.collect():
        for sample in metric.samples:
            if sample.name == "cache_requests_total":
                labels = sample.labels
                found[labels["tier"], labels["query"], labels["result"]] += int(sample.value)
    return found


@pytest.mark.spec("PF-2")
async def test_hits_of_a_sector(world: World, stores: Stores, table: Table, counts: dict[str, int]) -> None:
    """Ten analyses of one sector, each of which asks, states findings of its own, and asks again; cold and warmed."""
    rows = await stores.database.rows(SECTOR, deadline=Deadline.after_ms(10_000))
    subjects = [row["subject_id"] for row in rows]
    if len(subjects) < 10:
        subjects = (await subjects_of(stores))[0][:10]
    for warmed in (False, True):
        await _emptied(world)
        before = _counted()
        for nth, subject in enumerate(subjects):
            async with Memory.open(world.settings) as memory:
                if warmed:
                    for peer in subjects:
                        await memory.warm(peer)
                await _an_analysis(memory, subject, f"sector/{warmed}/{nth}", subjects, counts["findings"])
        asked = _counted() - before
        _hit_rates(table, world, asked, warmed=warmed)


async def _an_analysis(memory: Memory, subject: str, name: str, peers: Sequence[str], findings: int) -> None:
    """Ask as an analysis does: its subject before each finding, its peers between."""
    when = (await memory.brief(subject, deadline_ms=2000)).as_of
    await memory.record_analysis(Analysis(id=name, subject_id=subject, date=when, kind="bench"), wait_visible=True)
    for nth in range(findings):
        for peer in (subject, peers[nth % len(peers)]):
            await memory.brief(peer, deadline_ms=2000)
        if nth % 5 == 4:
            await memory.record_finding(
                Finding(
                    id=f"{name}/{nth}", analysis_id=name, subject_id=subject, agent="agent_00", domain="domain_00",
                    statement="What was found.", importance=0.5,
                ),
                wait_visible=True,
            )  # fmt: skip


def _hit_rates(table: Table, world: World, asked: Counter[tuple[str, str, str]], *, warmed: bool) -> None:
    state = "warmed" if warmed else "cold"
    note = (
        "ten analyses of one sector, each in a process of its own that asks of its subject and its peers and states "
        "findings between; warming not counted, stale ones no hits"
    )
    kinds = sorted({query for _, query, _ in asked} - {"name"})
    totals = Counter(dict.fromkeys(kinds, 0))
    hits = Counter(dict.fromkeys(kinds, 0))
    for (_, query, result), count in asked.items():
        if query in totals:
            totals[query] += count
            hits[query] += count if result in {"hit", "negative"} else 0
    for kind in kinds:
        share = 100 * hits[kind] / max(1, totals[kind])
        table.add(Figure(name=f"hits, {state}, {kind}", data=world.data, value=share, unit="%", better="more"))
    share = 100 * sum(hits.values()) / max(1, sum(totals.values()))
    bar = 80 if warmed else None
    figure = Figure(name=f"hits, {state}", data=world.data, value=share, unit="%", bar=bar, better="more", note=note)
    table.add(figure)


@LARGEST
async def test_memory_of_each_process_is_flat(world: World, table: Table, counts: dict[str, int]) -> None:
    """What each process holds after very many reads is what it held after a few, and so do those it reads from."""
    async with Memory.open(world.settings) as memory:
        subjects, _ = await subjects_of(memory._stores)
        chance = random.Random(5)
        chosen = chance.sample(subjects, min(50, len(subjects)))

        async def read(count: int) -> None:
            for _ in range(count // 10):
                await asyncio.gather(*(memory.history(chance.choice(chosen), deadline_ms=2000) for _ in range(10)))

        await read(counts["reads"] // 20)
        before = _weights(world)
        begun = time.perf_counter()
        await read(counts["reads"])
        took_s = time.perf_counter() - begun
        after = _weights(world)
    note = (
        f"{counts['reads']:,} reads of the history of 50 subjects, ten at a time; over that after a twentieth of them; "
        "what several processes of a server share counts once"
    )
    table.add(
        *(
            Figure(name=f"memory of {name}, before", data=world.data, value=before[name] / MB, unit="MB")
            for name in before
        ),
        *(
            Figure(
                name=f"memory of {name}, growth", data=world.data, value=after[name] / before[name], unit="×", bar=1.1,
                note=note if name == READER else "",
            )
            for name in before
        ),
        Figure(name="kept reads", data=world.data, value=counts["reads"] / took_s, unit="reads/s", better="more"),
    )  # fmt: skip


def _weights(world: World) -> dict[str, int]:
    """Return what this process, and each of the stack with its children, holds in bytes; of what is shared its part."""
    state = running(Folders(world.settings.home))
    assert state is not None
    found = {READER: psutil.Process().memory_full_info().pss}
    for name, child in sorted(state.children.items()):
        if child.pid is not None:
            found[name] = sum(process.memory_full_info().pss for process in _family(child.pid))
    return found


@dataclass
class Crowd:
    """
    Asks at a steady rate, half of the time about what is kept, whatever becomes of the answers.

    Attributes:
        memory: what is asked.
        subjects, known: about what; the answers about *known* are kept.
        taken: how long each took, from when it was due, in milliseconds.
        answers: when each was there, and whether it was whole.
        unlabelled: those that are less than they say.
    """

    memory: Memory
    subjects: Sequence[str]
    known: Sequence[str]
    taken: list[float] = field(default_factory=list)
    answers: list[tuple[float, bool]] = field(default_factory=list)
    unlabelled: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(3))

    async def ask(self, nth: int, due: float) -> None:
        subject = self.known[nth % len(self.known)] if nth % 2 else self._chance.choice(self.subjects)
        briefing = await self.memory.brief(subject)
        ended = time.perf_counter()
        self.taken.append((ended - due) * 1000)
        self.answers.append((ended, briefing.mode == "normal"))
        self.unlabelled += any(
            section.quality is not Quality.EXACT and not section.reason for section in briefing.sections.values()
        )

    async def load(self, seconds: float, a_second: int) -> None:
        """Ask for so long, from anew."""
        self.taken.clear()
        self.answers.clear()
        begun, asking = time.perf_counter(), set()
        for nth in range(int(seconds * a_second)):
            due = begun + nth / a_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asking.add(asyncio.create_task(self.ask(nth, due)))
        await asyncio.gather(*asking)


@LARGEST
@pytest.mark.spec("PF-7", "RS-3")
async def test_a_graph_that_stops_for_a_minute(world: World, table: Table, counts: dict[str, int]) -> None:
    """SIGSTOP under load, half of it about what is kept: every answer in time and labelled; then it is caught up."""
    async with Memory.open(world.settings) as memory:
        subjects, _ = await subjects_of(memory._stores)
        known = random.Random(3).sample(subjects, min(20, len(subjects)))
        for subject in known:
            await memory.brief(subject, deadline_ms=2000)
        crowd, graph, pid = Crowd(memory, subjects, known), memory._stores.graph, _neo4j(world)
        await crowd.load(3, counts["asked_a_second"])
        graph.most_running = 0
        os.kill(pid, signal.SIGSTOP)
        try:
            await crowd.load(counts["stopped_s"], counts["asked_a_second"])
        finally:
            os.kill(pid, signal.SIGCONT)
        stopped, back = sorted(crowd.taken), time.perf_counter()
        await crowd.load(10, counts["asked_a_second"])
        recovered_s = _recovered(crowd.answers) - back
    assert not crowd.unlabelled
    note = f"{len(stopped):,} briefings, {counts['asked_a_second']} a second, while Neo4j was stopped with SIGSTOP"
    table.add(
        Figure(name="brief, graph stopped, p50", data=world.data, value=percentile(stopped, 0.5), unit="ms"),
        Figure(
            name="brief, graph stopped, p99.9", data=world.data, value=percentile(stopped, 0.999), unit="ms", bar=500,
            note=note,
        ),
        Figure(name="brief, graph stopped, worst", data=world.data, value=stopped[-1], unit="ms", bar=550),
        Figure(
            name="graph back until all whole", data=world.data, value=recovered_s, unit="s", bar=10,
            note="from SIGCONT to the first of fifty whole briefings in a row",
        ),
        Figure(
            name="statements in the graph at once, most", data=world.data, value=graph.most_running, unit="", bar=10,
        ),
    )  # fmt: skip


def _recovered(answers: Sequence[tuple[float, bool]]) -> float:
    """Return when the first of fifty whole briefings in a row ended, by the clock of the ends; never is infinity."""
    since, run = float("inf"), 0
    for ended, whole in sorted(answers):
        if not whole:
            since, run = float("inf"), 0
        elif (run := run + 1) == 1:
            since = ended
        if run == RUN:
            return since
    return float("inf")


def _neo4j(world: World) -> int:
    """Return the process that listens at the graph's port."""
    url = world.settings.neo4j_url
    assert url is not None
    port = int(url.rpartition(":")[2])
    for connection in psutil.net_connections("tcp"):
        here: Any = connection.laddr
        if connection.status == psutil.CONN_LISTEN and here.port == port and connection.pid:
            return int(connection.pid)
    raise AssertionError("nobody listens at the graph's port")
