"""What the memory does with three data sets, beside what the bare drivers do on the same servers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import neo4j
import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.journal.statements import cypher
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.work import Finding
from imem.memory import Memory
from imem.recall.model import Briefing
from imem.services.recall import recall_over
from imem.services.stores import Stores
from tests.bench import floor
from tests.bench.replay import Bare, noting
from tests.bench.table import MB, Figure, Table, percentile
from tests.bench.worlds import World, rebuilt

pytestmark = pytest.mark.bench

Question = tuple[str, datetime | None]
"""A subject, and as of when."""

COUNTS: Final = {
    "full": {"briefs": 400, "warm": 60, "replayed": 60, "writes": 200, "reads": 300, "runaways": 10},
    "tiny": {"briefs": 60, "warm": 20, "replayed": 15, "writes": 30, "reads": 60, "runaways": 3},
}

RUNAWAY: Final = "UNWIND range(1, 100000000000) AS n WITH n WHERE n % 7 = 8 RETURN count(n) AS found"
RUNAWAY_MS: Final = 400
RUNNING: Final = "SHOW TRANSACTIONS YIELD metaData WHERE metaData.statement = 'runaway' RETURN count(*) AS running"

UNCACHED_MS: Final = 500.0
"""What a briefing that nobody keeps may take at the 95th percentile, in milliseconds."""

BRIEF_MS: Final = 60.0
"""What it may take here, where the servers are warm and stand on this machine."""

KNOWN: Final = (
    "SELECT kind, count(DISTINCT key) AS n FROM record_head WHERE kind IN ('Analysis', 'Pattern') GROUP BY kind"
)
SUBJECTS: Final = (
    "SELECT subject_id, min(known_at) AS since FROM record_head WHERE kind = 'Analysis' AND subject_id IS NOT NULL"
    " GROUP BY subject_id ORDER BY subject_id"
)
MIDDLE: Final = (
    "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY known_at) AS at FROM record_head WHERE kind = 'Analysis'"
)

ENGINE: Final[dict[str, dict[str, Any]]] = {
    "point_read": {},
    "company_history": {"limit": 30, "detailed": 2, "findings_limit": 40},
    "speakers_of_subject": {"limit": 60},
    "debates_of_subject": {"limit": 10},
}
"""Statement → what it takes beside the subject and the moment."""

POINT_READ: Final = "MATCH (s:Subject {subject_id: $given.subject_id}) RETURN s.subject_id AS subject_id"


@pytest.fixture
def counts(table: Table) -> dict[str, int]:
    return COUNTS[table.scale]


def test_load(world: World, table: Table) -> None:
    """A file on disk becomes visible in the graph, through every check, at the rate of the bar."""
    load, bare = world.load, world.floor
    assert load.events == bare.events
    table.add(
        Figure(
            name="load to visible", data=world.data, value=load.events / load.seconds, unit="events/s",
            floor=bare.events / bare.seconds,
            note="from the first line read to the last event in the graph, on a server that has just started and still "
            "compiles itself, scoring meanwhile; floor: COPY of the event and an audit row beside UNWIND/MERGE of the "
            "same nodes and links with AppliedEvent, on a server that has just started as well",
        ),
        Figure(
            name="load to visible, sustained", data=world.data, value=load.second_half, unit="events/s", bar=1000,
            better="more", note="the same in the second half of its time",
        ),
        Figure(name="load to durable", data=world.data, value=load.events / load.durable_s, unit="events/s"),
        Figure(
            name="scoring after the load", data=world.data, value=load.scoring_s, unit="s",
            note=f"until nothing was left to score, from the moment everything was visible ({load.scores:,} scores "
            f"for {world.data})",
        ),
        Figure(
            name="scores published, texts searchable after the load", data=world.data, value=load.finished_s, unit="s",
            note="the same until every score was published and every text could be found by its meaning",
        ),
        Figure(
            name="comparing after the load", data=world.data, value=load.comparing_s, unit="s",
            note="until every analysis had its neighbours, from the moment everything was visible; texts for "
            "the search get their vectors meanwhile",
        ),
    )  # fmt: skip


def test_memory(world: World, table: Table) -> None:
    """What a load holds in memory does not grow with its file."""
    peak = world.load.peak_bytes / MB
    figures = [
        Figure(name="peak memory of imem load", data=world.data, value=peak, unit="MB"),
        Figure(
            name="peak memory of the stack (RSS)", data=world.data, value=world.weights.rss / MB, unit="MB",
            note="sum over all children of the supervisor during the load; pages that several share count for each, "
            "in PSS once",
        ),
        Figure(name="peak memory of the stack (PSS)", data=world.data, value=world.weights.pss / MB, unit="MB"),
        Figure(name="start of the stack", data=world.data, value=world.started_s, unit="s"),
    ]  # fmt: skip
    note = "over that of a file a tenth as long"
    table.add(*figures, *_growth(table, world.data, "peak memory of imem load", peak, bar=1.2, note=note))


def uncaching(stores: Stores) -> Memory:
    """Return a memory that keeps no answers, and is served none that others keep."""
    memory = Memory(stores)
    memory._recall = recall_over(stores, use_cache=False)
    return memory


@pytest.mark.spec("PF-1")
async def test_brief(world: World, stores: Stores, table: Table, counts: dict[str, int]) -> None:
    """A briefing on any subject, of now and of a day in the middle, comes within the bar however large the memory."""
    known = await stores.database.rows(KNOWN, deadline=Deadline.after_ms(10_000))
    if world.data == f"{15_000:,}":
        there = {row["kind"]: row["n"] for row in known}
        assert there["Analysis"] >= 15_000
        assert there["Pattern"] >= 5_000
    assert BRIEF_MS <= UNCACHED_MS
    await measured_briefs(world.data, stores, table, counts, bar=BRIEF_MS)


async def measured_briefs(
    data: str,
    stores: Stores,
    table: Table,
    counts: dict[str, int],
    *,
    bar: float | None,
    less: Callable[[Briefing], bool] = lambda answer: answer.degraded,
) -> None:
    """
    Ask for briefings that nobody keeps, and note how long they took.

    Args:
        bar: of the p95, in milliseconds.
        less: whether a part is missing.
    """
    now, then = await questions_of(stores)
    uncached = uncaching(stores)
    chance = random.Random(7)
    asked = [chance.choice(then if nth % 2 else now) for nth in range(counts["briefs"])]
    for subject, moment in asked[: counts["warm"]]:
        await uncached.brief(subject, as_of=moment, deadline_ms=2000)
    taken, missing = await timed_briefs(uncached, asked, less)
    least = await _bare_briefs(stores, asked[: counts["replayed"]])
    p95 = percentile(taken, 0.95)
    note = (
        "uncached, through Memory and the gateway, half of them as of a day in the middle; floor: the same statements"
    )
    figures = [
        Figure(
            name=f"brief p{share:.0%}".rstrip("%"), data=data, value=percentile(taken, share), unit="ms",
            floor=percentile(least, share), bar=bar if share == 0.95 else None, note=note,
        )
        for share in (0.50, 0.95, 0.99)
    ]  # fmt: skip
    figures += _growth(table, data, "brief p95", p95, bar=2, note="over a tenth of the analyses")
    name = "briefs with a part missing"
    figures.append(Figure(name=name, data=data, value=len(missing), unit="", bar=0, note="; ".join(missing)))
    table.add(*figures)


async def timed_briefs(
    memory: Memory, asked: Sequence[tuple[str, datetime | None]], less: Callable[[Briefing], bool]
) -> tuple[list[float], list[str]]:
    """Return how long each briefing took, in milliseconds, and of each with a part missing what and why."""
    taken, missing = [], []
    for subject, moment in asked:
        begun = time.perf_counter()
        answer = await memory.brief(subject, as_of=moment)
        taken.append((time.perf_counter() - begun) * 1000)
        if less(answer):
            parts = ", ".join(
                f"{name}: {section.reason}" for name, section in answer.sections.items() if section.reason
            )
            missing.append(f"after {taken[-1]:.0f} ms {parts}")
    return taken, missing


def _growth(table: Table, data: str, name: str, value: float, *, bar: float, note: str) -> list[Figure]:
    """Return how *value* compares with the figure of the data set a tenth as large, where there is one."""
    smaller = None if data == "examples" else table.value(name, f"{int(data.replace(',', '')) // 10:,}")
    if smaller is None:
        return []
    return [Figure(name=f"{name}, growth", data=data, value=value / smaller, unit="×", bar=bar, note=note)]


async def subjects_of(stores: Stores) -> tuple[list[str], datetime]:
    """Return every subject, and a day in the middle of what is known."""
    rows = await stores.database.rows(SUBJECTS, deadline=Deadline.after_ms(10_000))
    [middle] = await stores.database.rows(MIDDLE, deadline=Deadline.after_ms(10_000))
    return [row["subject_id"] for row in rows], middle["at"].astimezone(UTC)


async def questions_of(stores: Stores) -> tuple[list[Question], list[Question]]:
    """Return what can be asked about: every subject as of now, and those known by a day in the middle as of it."""
    rows = await stores.database.rows(SUBJECTS, deadline=Deadline.after_ms(10_000))
    [middle] = await stores.database.rows(MIDDLE, deadline=Deadline.after_ms(10_000))
    at = middle["at"].astimezone(UTC)
    return [(row["subject_id"], None) for row in rows], [(row["subject_id"], at) for row in rows if row["since"] <= at]


async def _bare_briefs(stores: Stores, asked: Sequence[tuple[str, datetime | None]]) -> list[float]:
    """Return how long the bare drivers take over the statements of each briefing, in milliseconds."""
    taken = []
    async with noting(stores) as (noted, notes), Bare.open(stores.settings) as bare:
        memory = uncaching(noted)
        for subject, moment in asked:
            notes.calls.clear()
            await memory.brief(subject, as_of=moment, deadline_ms=2000)
            calls = list(notes.calls)
            await bare.run(calls)
            taken += [await bare.run(calls) for _ in range(3)]
    return taken


async def test_receipts(world: World, memory: Memory, table: Table, counts: dict[str, int]) -> None:
    """One write is acknowledged when it is durable, or waited for until the graph shows it."""
    number = iter(range(1_000_000))
    subjects, _ = await subjects_of(memory._stores)

    def finding() -> Finding:
        nth = next(number)
        return Finding(
            id=f"receipt/{nth}", analysis_id=f"receipts/{nth // 10}", subject_id=subjects[nth % len(subjects)],
            agent="agent_00", domain="domain_00", statement=f"What was found {nth}.", importance=0.5,
        )  # fmt: skip

    async def visible() -> None:
        receipt = await memory.record_finding(finding(), wait_visible=True)
        assert receipt.visible

    durable_ms = await _timed(lambda: memory.record_finding(finding()), counts["writes"])
    visible_ms = await _timed(visible, counts["writes"])
    inserted = await floor.inserts(world.settings, counts["writes"])
    merged = await floor.merges(world.settings, counts["writes"])
    for share in (0.50, 0.95):
        end = f"p{share:.0%}".rstrip("%")
        table.add(
            Figure(
                name=f"receipt durable {end}", data=world.data, value=percentile(durable_ms, share), unit="ms",
                floor=percentile(inserted, share), note="one finding, one at a time; floor: one bare INSERT committed",
            ),
            Figure(
                name=f"receipt visible {end}", data=world.data, value=percentile(visible_ms, share), unit="ms",
                floor=percentile(merged, share), note="the same, waited for; floor: one bare MERGE committed",
            ),
        )  # fmt: skip


async def _timed(call: Callable[[], Awaitable[Any]], count: int) -> list[float]:
    taken = []
    for nth in range(count + 10):
        begun = time.perf_counter()
        await call()
        if nth >= 10:
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def test_engine(world: World, stores: Stores, table: Table, counts: dict[str, int]) -> None:
    """Deadlines, slots and translated errors cost little beside the driver's own work."""
    subjects, middle = await subjects_of(stores)
    medians: list[tuple[float, float]] = []
    async with Bare.open(stores.settings) as bare:
        for name, more in ENGINE.items():
            text = cypher(name).text if more else POINT_READ
            dates = {"known_until": middle, "recorded_until": END_OF_TIME} if more else {}
            taken: dict[str, list[float]] = {"ours": [], "theirs": []}
            for nth in range(counts["reads"] + 20):
                values = {"subject_id": subjects[nth % len(subjects)], **more, **dates}
                # Whoever comes first pays for a cold page.
                for who in ("ours", "theirs") if nth % 2 else ("theirs", "ours"):
                    begun = time.perf_counter()
                    if who == "ours":
                        await stores.graph.read_text(name, text, values, deadline=Deadline.after_ms(2000))
                    else:
                        await bare.read(text, values)
                    if nth >= 20:
                        taken[who].append((time.perf_counter() - begun) * 1000)
            medians.append((percentile(taken["ours"], 0.5), percentile(taken["theirs"], 0.5)))
    worst = max(ours / theirs for ours, theirs in medians)
    note = "median of Graph.read over the median of a bare session.run, alternating; the worst of four statements"
    table.add(Figure(name="engine overhead", data=world.data, value=worst, unit="×", floor=1, bar=1.3, note=note))


@pytest.mark.spec("GR-12")
async def test_timeouts(world: World, stores: Stores, table: Table, counts: dict[str, int]) -> None:
    """A runaway is gone from the server soon after its deadline."""
    late_ms: list[float] = []
    async with floor.driver(world.settings) as bare:
        await _until(bare, running=False)  # The server plans the question before it is asked in earnest.
        # The first round is not counted: in it the server plans the runaway.
        while len(late_ms) < counts["runaways"] + 1:
            begun = time.perf_counter()
            runaway = asyncio.create_task(_runaway(stores))
            if not await _until(bare, running=True, unless=runaway):
                continue
            await _until(bare, running=False)
            late_ms.append((time.perf_counter() - begun) * 1000 - RUNAWAY_MS)
            await runaway
    late_ms = late_ms[1:]
    note = f"from the deadline of a statement ({RUNAWAY_MS} ms) until SHOW TRANSACTIONS no longer names it"
    table.add(
        Figure(name="lateness of timeouts p50", data=world.data, value=percentile(late_ms, 0.5), unit="ms"),
        Figure(name="lateness of timeouts, worst", data=world.data, value=max(late_ms), unit="ms", bar=200, note=note),
    )


async def _runaway(stores: Stores) -> None:
    with pytest.raises(BudgetExceeded):
        await stores.graph.read_text("runaway", RUNAWAY, deadline=Deadline.after_ms(RUNAWAY_MS))


async def _until(bare: neo4j.AsyncDriver, *, running: bool, unless: asyncio.Task[None] | None = None) -> bool:
    """Wait until there is a runaway, or none; return False if *unless* ended first, too soon to be seen."""
    async with bare.session(database="neo4j") as session:
        while True:
            ended = unless is not None and unless.done()
            row = await (await session.run(RUNNING)).single(strict=True)
            if bool(row["running"]) is running:
                return True
            if ended:
                return False
            await asyncio.sleep(0.002)


@pytest.mark.spec("GR-6")
def test_rebuild(world: World, table: Table) -> None:
    """The graph is made anew beside the one in use and takes over: it says the same, and the journal streams by."""
    told = rebuilt(world.settings)
    bare, peak = world.floor, told["peak_bytes"] / MB
    figures = [
        Figure(
            name="rebuild", data=world.data, value=told["events"] / max(told["replay_s"], 1e-9), unit="events/s",
            floor=bare.events / bare.graph_seconds,
            note="replay into a second server, cold; floor: the bare pipeline's time in the graph",
        ),
        Figure(name="rebuild, with start, compare and take-over", data=world.data, value=told["seconds"], unit="s"),
        Figure(name="peak memory of a rebuild", data=world.data, value=peak, unit="MB"),
    ]  # fmt: skip
    note = "over that of a journal a tenth as long"
    table.add(*figures, *_growth(table, world.data, "peak memory of a rebuild", peak, bar=1.2, note=note))
