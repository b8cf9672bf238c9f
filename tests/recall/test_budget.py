"""Whatever breaks or crawls, an answer comes in time and says what it is worth."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import SecretStr

from cache.tiered import CACHES_MS
from imem.memory import Memory
from journal.clock import ManualClock
from journal.deadline import Deadline
from journal.errors import BudgetExceeded, OutcomeUnknown, StoreUnavailable
from journal.modes import Mode
from journal.settings import Role
from kg.engine import Graph, Record
from kg.kinds.work import Finding
from recall.model import AWAY, EXHAUSTED, Arm, Briefing, Completeness, Quality
from recall.watching import MOST_TIMEOUTS, Outcome, Watch
from tests.graph_proofs.test_engine import RUNAWAY
from tests.proxy import SlowProxy, slowly, through
from tests.recall import facts
from tests.recall.conftest import Desk
from tests.recall.test_kept import _season
from tests.waiting import until

LATE_S = 0.15
"""How much later than its deadline an answer may be on a busy machine, in seconds."""


@dataclass
class Far:
    """
    A memory whose every server is behind a proxy.

    Attributes:
        desk: the same servers, without.
        memory: what is asked.
        proxies: by server: graph, postgres, durable, cache.
    """

    desk: Desk
    memory: Memory
    proxies: Mapping[str, SlowProxy]

    def stall(self, *names: str) -> None:
        for name in names:
            self.proxies[name].stall()

    def flow(self) -> None:
        for proxy in self.proxies.values():
            proxy.flow()
            proxy.delay_s = 0.0


@pytest_asyncio.fixture
async def far(telling: Desk) -> AsyncIterator[Far]:
    await _season(telling)
    given = telling.settings
    urls = {
        "graph": given.neo4j_url,
        "postgres": given.postgres_url,
        "durable": given.valkey_durable_url,
        "cache": given.valkey_cache_url,
    }
    async with AsyncExitStack() as stack:
        proxies, changes = {}, {}
        for name, url in urls.items():
            assert url is not None
            plain = url.get_secret_value() if isinstance(url, SecretStr) else url
            proxies[name] = await stack.enter_async_context(slowly(plain))
            field = {"graph": "neo4j_url", "postgres": "postgres_url"}.get(name, f"valkey_{name}_url")
            changed = through(plain, proxies[name])
            changes[field] = SecretStr(changed) if isinstance(url, SecretStr) else changed
        memory = await stack.enter_async_context(Memory.open(given.model_copy(update={**changes, "deadline_ms": 500})))
        yield Far(telling, memory, proxies)


async def kept(far: Far, *subjects: str) -> None:
    """Have everything kept, however busy the machine is; connections stand afterwards."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    assert tiers.shared is not None
    tiers.caches_ms = tiers.shared.budget_ms = 2_000.0
    for subject in subjects or ("T0",):
        for _ in range(20):
            briefing = await far.memory.brief(subject, deadline_ms=2000)
            # The subject's own record, six arms, and what its name means.
            if briefing.mode == "normal" and len(tiers.local) >= 8:
                break
        assert briefing.mode == "normal", briefing
    tiers.caches_ms = tiers.shared.budget_ms = CACHES_MS


def forget(far: Far) -> None:
    """Drop what this process keeps."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    tiers.local.clear()


def labelled(briefing: Briefing) -> None:
    """Assert that whatever is not exact says what it is, and that what is empty does not look as if it were known."""
    for name, arm in briefing.arms.items():
        match arm.quality:
            case Quality.EXACT:
                assert arm.error is None and arm.age_s is None and arm.completeness is None, name  # noqa: PT018
            case Quality.STALE:
                assert arm.age_s is not None, name
                assert arm.reason, name
            case Quality.PARTIAL:
                assert arm.reason, name
            case Quality.UNAVAILABLE:
                assert arm.error in {EXHAUSTED, AWAY}, name
                assert arm.fallback_exhausted is True, name
                assert arm.total == 0, name
    assert (briefing.mode in {Mode.DEGRADED_READ, Mode.READ_ONLY}) == briefing.degraded


class Crawling(Graph):
    """A graph in which one query takes for ever."""

    crawls: str = ""

    async def read(self, name: str, parameters: Mapping[str, Any] | None = None, *, deadline: Deadline) -> list[Record]:
        if name == self.crawls:
            return await self.read_text("runaway", RUNAWAY, deadline=deadline)
        return await super().read(name, parameters, deadline=deadline)


@asynccontextmanager
async def crawling(desk: Desk, name: str, **changes: Any) -> AsyncIterator[Memory]:
    """Open a memory in which one query of the graph takes for ever."""
    async with Memory.open(desk.settings.model_copy(update={"deadline_ms": 500, **changes})) as memory:
        memory._stores.graph.__class__ = Crawling
        memory._stores.graph.crawls = name  # type: ignore[attr-defined]
        yield memory


async def _runaways(desk: Desk) -> bool:
    rows = await desk.world.graph.read_text(
        "show",
        "SHOW TRANSACTIONS YIELD metaData WHERE metaData.statement STARTS WITH 'runaway' RETURN 1 AS one",
        deadline=Deadline.after_ms(20_000),
    )
    return not rows


@pytest.mark.spec("PF-6")
async def test_a_query_that_takes_for_ever_is_answered_in_time_and_ends_on_the_server(telling: Desk) -> None:
    """What stands in says so; the other arms are whole; the transaction is gone within a second of the deadline."""
    await _season(telling)
    async with crawling(telling, "company_history") as memory:
        await memory.brief("T0", deadline_ms=2000)
        begun = time.monotonic()
        briefing = await memory.brief("T0")
        took_s = time.monotonic() - begun
        await until(lambda: _runaways(telling), within_s=max(0.1, 1.5 - took_s))
    assert took_s < 0.5 + LATE_S
    assert briefing.history.quality is Quality.PARTIAL
    assert briefing.history.completeness is Completeness.TOP_N
    assert [item.analysis.key for item in briefing.history.items] == ["a0"]
    labelled(briefing)


@pytest.mark.spec("PF-12")
async def test_one_query_that_fails_leaves_the_others_whole(telling: Desk) -> None:
    await _season(telling)
    async with crawling(telling, "debates_of_subject", role=Role.AGENT, actor="agent0") as memory:
        for _ in range(5):
            briefing = await memory.brief("T0", deadline_ms=2000)
            if sum(arm.quality is not Quality.EXACT for arm in briefing.arms.values()) == 1:
                break
    assert briefing.debates.quality is not Quality.EXACT
    assert briefing.debates.reason
    for name in ("history", "track_records", "contradictions", "patterns", "lessons"):
        assert briefing.arms[name].quality is Quality.EXACT, name
    assert [item.analysis.key for item in briefing.history.items] == ["a0"]


@pytest.mark.spec("PF-7")
async def test_with_everything_stalled_a_hundred_questions_end_in_time_and_say_so(far: Far) -> None:
    """Every set of servers that may be silent, with and without kept answers, for several budgets."""
    await kept(far)
    names = sorted(far.proxies)
    sets = [chosen for size in range(1, 5) for chosen in itertools.combinations(names, size)]
    scenarios = list(itertools.islice(itertools.cycle(itertools.product(sets, (500, 200, 100), (True, False))), 100))
    slowest = 0.0
    for stalled, budget_ms, remembered in scenarios:
        far.flow()
        if not remembered:
            forget(far)
        far.stall(*stalled)
        begun = time.monotonic()
        briefing = await far.memory.brief("company:T0", deadline_ms=budget_ms)
        took_s = time.monotonic() - begun
        slowest = max(slowest, took_s)
        assert took_s < budget_ms / 1000 + 0.5, (stalled, budget_ms)
        labelled(briefing)
    assert slowest < 2.0
    far.flow()


@pytest.mark.spec("RS-1", "RS-4")
async def test_a_stopped_graph_is_answered_from_what_is_kept(far: Far) -> None:
    """Nothing is applied while it is stopped, so that what is kept is what is known; the rest is labelled."""
    await kept(far, "T0")
    await far.desk.know([facts.company("T9", 0)])
    far.stall("graph")
    begun = time.monotonic()
    known, unknown = await far.memory.brief("T0"), await far.memory.brief("T9")
    assert time.monotonic() - begun < 1.0 + 2 * LATE_S
    assert known.history.quality is Quality.EXACT
    assert known.history.items
    assert unknown.history.quality is Quality.PARTIAL, "an empty answer here does not mean that nothing is known"
    assert not unknown.history.items
    labelled(unknown)
    far.flow()
    empty = await _in_peace(far, "T9")
    assert empty.history.quality is Quality.EXACT
    assert not empty.history.items


async def _in_peace(far: Far, subject: str) -> Briefing:
    async with asyncio.timeout(10):
        while True:
            briefing = await far.memory.brief(subject, deadline_ms=2000)
            if briefing.mode == "normal":
                return briefing
            await asyncio.sleep(0.05)


@pytest.mark.spec("RS-1")
async def test_a_stopped_postgres_is_answered_from_what_is_kept_without_patterns(far: Far) -> None:
    """Whether a pattern still has its status nobody can say then."""
    await kept(far)
    far.stall("postgres")
    begun = time.monotonic()
    briefing = await far.memory.brief("T0")
    assert time.monotonic() - begun < 0.5 + LATE_S
    assert briefing.history.items
    assert briefing.patterns.quality is Quality.UNAVAILABLE
    assert not briefing.patterns.items
    assert briefing.lessons.quality is Quality.UNAVAILABLE
    labelled(briefing)


@pytest.mark.spec("RS-1")
@pytest.mark.parametrize("server", ["durable", "cache"])
async def test_without_caches_everything_is_asked_of_l3(far: Far, server: str) -> None:
    await kept(far)
    await far.proxies[server].refuse()
    if server == "cache":
        forget(far)
    briefing = await _in_peace(far, "T0")
    assert briefing.history.quality is Quality.EXACT
    assert briefing.history.items


@pytest.mark.spec("RS-1", "RS-3")
@pytest.mark.parametrize("server", ["graph", "postgres", "durable", "cache"])
async def test_a_store_that_stops_under_load_holds_nobody_up_and_loses_nothing(far: Far, server: str) -> None:
    """Forty questions and writes within a second, in the middle of which it is silent: what was said to stand does."""
    await kept(far)
    refused, acknowledged, slowest = 0, list[UUID](), 0.0

    async def write(nth: int) -> None:
        nonlocal refused
        finding = Finding(
            id=f"load/{nth}", analysis_id="a0", subject_id="company:T0", agent="agent0", domain="up_or_down",
            statement=f"What was found {nth}.", importance=0.5,
        )  # fmt: skip
        try:
            receipt = await far.memory.record_finding(finding, deadline_ms=1_500)
        except (StoreUnavailable, BudgetExceeded, OutcomeUnknown):
            refused += 1
        else:
            assert receipt.event_id is not None
            acknowledged.append(receipt.event_id)

    async def ask(_: int) -> None:
        labelled(await far.memory.brief("T0"))

    async def timed(call: Callable[[int], Awaitable[None]], nth: int) -> None:
        nonlocal slowest
        begun = time.monotonic()
        await call(nth)
        slowest = max(slowest, time.monotonic() - begun)

    async with asyncio.TaskGroup() as load:
        for nth in range(40):
            if nth == 10:
                far.stall(server)
            if nth == 30:
                far.flow()
            load.create_task(timed(ask, nth))
            load.create_task(timed(write, nth))
            await asyncio.sleep(0.025)  # The rate of the load.
    assert slowest < 2.0
    assert far.memory._stores.graph.most_running <= 10
    rows = await far.desk.journal.rows("SELECT event_id FROM event WHERE event_id = ANY (%s::uuid[])", acknowledged)
    assert {row["event_id"] for row in rows} == set(acknowledged)
    assert len(acknowledged) + refused == 40
    assert acknowledged


async def test_an_old_copy_says_how_old_it_is(far: Far) -> None:
    """Past its time, with the graph away: the copy, its age, and why; in the Markdown as well."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    tiers.clock = clock = ManualClock()
    tiers.local._clock = clock
    await kept(far)
    clock.advance(timedelta(hours=3))
    far.stall("graph")
    briefing = await far.memory.brief("T0")
    assert briefing.history.quality is Quality.STALE
    assert briefing.history.age_s == pytest.approx(3 * 3600, abs=60)
    assert briefing.history.items
    assert "[stale: as known 3 h ago" in briefing.to_markdown()
    labelled(briefing)


async def test_a_store_that_refuses_is_told_from_one_that_is_late(far: Far) -> None:
    """Nothing is kept of it: every part says that a store is away."""
    for name in ("postgres", "graph", "durable"):
        await far.proxies[name].refuse()
    briefing = await far.memory.brief("company:T0")
    assert {name: arm.error for name, arm in briefing.arms.items() if arm.error != AWAY} == {}, briefing.arms


async def test_too_many_timeouts_are_told_to_people_once(telling: Desk) -> None:
    """Ten in a minute, or more than a twentieth of them."""
    now = 0.0
    database = telling.memory._stores.database
    watch = Watch(database, now=lambda: now)

    async def alerts() -> list[dict[str, Any]]:
        await watch.told()
        return await telling.journal.rows("SELECT kind, payload FROM workflow.alert WHERE kind = 'QUERY_TIMEOUTS'")

    for _ in range(400):
        watch.observe("history", Outcome.EXACT)
    for _ in range(MOST_TIMEOUTS - 1):
        watch.observe("history", Outcome.LESS, depth=1, late=True)
    assert await alerts() == []
    watch.observe("history", Outcome.NONE, depth=2, late=True)
    assert len(await alerts()) == 1
    watch.observe("history", Outcome.NONE, depth=2, late=True)
    now = 120.0
    for _ in range(MOST_TIMEOUTS):
        watch.observe("history", Outcome.NONE, depth=2, late=True)
    assert len(await alerts()) == 1, "it stands until somebody has acknowledged it"
    for _ in range(38):
        watch.observe("debates", Outcome.KEPT)
    for _ in range(2):
        watch.observe("debates", Outcome.STALE, late=True)
    assert len(await alerts()) == 1, "a twentieth is not more than a twentieth"
    watch.observe("debates", Outcome.STALE, late=True)
    found = await alerts()
    assert len(found) == 2
    assert found[1]["payload"]["query"] == "debates"


async def test_the_budget_of_a_single_question_is_kept_too(telling: Desk) -> None:
    await _season(telling)
    async with crawling(telling, "lessons_of_subject") as memory:
        begun = time.monotonic()
        arm: Arm = await memory.lessons("T0")
        assert time.monotonic() - begun < 0.5 + LATE_S
    assert arm.quality is Quality.PARTIAL
    assert [one.key for one in arm.items] == []  # type: ignore[attr-defined]
