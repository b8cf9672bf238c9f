"""The ledger from end to end: recorded once, gone on with after a restart, dated, read by its owner alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.memory import Memory
from imem.postmortem.trades.ledger import LedgerState, TickStatus
from imem.postmortem.trades.model import (
    Bar,
    ChangeKind,
    CloseKind,
    DecisionSnapshot,
    Position,
    Side,
    TickDecision,
    Trade,
    TradeStatus,
)
from imem.postmortem.trades.reconciliation import Fill
from tests.imem.memory.conftest import MemoryHarness

from .conftest import memory_of, record
from .paths import PATHS, START, UNEVEN, Broker, Move, Tick, canonical, in_memory


def stored(harness: MemoryHarness, deployment: str) -> list[Trade]:
    rows = harness.rows("SELECT * FROM recall.trade_history WHERE deployment_id = %s", deployment)
    return [Trade.from_row(row) for row in rows]


def tick(deployment: str, nth: int, price: str, quantity: str = "0", *, reason: str = "r") -> Tick:
    symbol = "MU"
    signed = Decimal(quantity)
    held = [Position(symbol, Side.SHORT if signed < 0 else Side.LONG, abs(signed))] if signed else []
    decision = TickDecision(deployment, "momentum", "1.2", reason)
    return Tick(START + timedelta(hours=nth), held, {symbol: Bar(Decimal(price))}, decision, {})


@pytest.mark.spec("RC-12", "RC-10")
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # To shrink one takes minutes.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=PATHS)
@example(path=UNEVEN)
def test_simulation_and_live_give_the_same_bytes(harness: MemoryHarness, path: list[dict[str, Move]]) -> None:
    """A simulation in memory, and a runner that is started anew in between and has nothing but Postgres."""
    broker = Broker(f"desk-{uuid4().hex}")
    ticks = broker.ticks(path)

    async def live() -> None:
        for part in (ticks[:3], ticks[3:]):
            async with memory_of(harness) as memory:
                for one in part:
                    assert (await record(memory, one)).status is TickStatus.RECORDED

    asyncio.run(live())

    rows, simulated = stored(harness, broker.deployment), in_memory(ticks)
    assert canonical(rows) == canonical(simulated.values())
    # And not since both are written with as few digits.
    assert {row.id: replace(row, created_at=None, updated_at=None) for row in rows} == simulated
    assert abs(sum((row.realized_pnl_usd for row in rows), Decimal(0)) - broker.cash) <= Decimal("1e-9")


async def test_a_tick_is_recorded_once(harness: MemoryHarness, desk: str) -> None:
    """The same moment again returns what it changed then, whatever is stated now; an earlier one is refused."""
    async with memory_of(harness) as memory:
        first = await record(memory, tick(desk, 1, "10", "3"))
        second = await record(memory, tick(desk, 2, "12"))
        before = stored(harness, desk)

        again = await record(memory, tick(desk, 1, "99", "-7"))
        assert again == replace(first, status=TickStatus.IDENTICAL)
        assert await record(memory, tick(desk, 2, "12")) == replace(second, status=TickStatus.IDENTICAL)
        for nth in (0, 1.5):
            early = replace(tick(desk, 0, "10"), at=START + timedelta(hours=nth))
            with pytest.raises(BadInput, match="lies before 2025-10-01T16:00:00"):
                await record(memory, early)

    assert [entry.kind for entry in first.entries] == [ChangeKind.OPEN]
    assert [(entry.kind, entry.pnl_usd) for entry in second.entries] == [(ChangeKind.CLOSE, Decimal(6))]
    assert stored(harness, desk) == before
    assert before[0].updated_at == second.recorded_at
    assert len(harness.rows("SELECT FROM recall.trade_tick WHERE deployment_id = %s", desk)) == 2


async def test_a_tick_of_the_far_future_is_refused(harness: MemoryHarness, desk: str) -> None:
    """A wrong clock would else end the deployment, as every tick until then would be too late; nor does it own it."""
    one = tick(desk, 0, "10", "3")
    async with memory_of(harness, "bob") as bob:
        with pytest.raises(BadInput, match="more than a day in the future"):
            await record(bob, replace(one, at=datetime.now(UTC) + timedelta(hours=25)))
    async with memory_of(harness) as memory:
        await record(memory, one)
        await record(memory, replace(one, at=datetime.now(UTC) + timedelta(hours=23)))
        assert (await memory.trades.resume(desk)).owner == "ann"


async def test_runners_beside_one_another_keep_one_ledger(harness: MemoryHarness, desk: str) -> None:
    """Ten ticks sent by two runners at once: each is there once, and rows are those of one runner."""
    ticks = [tick(desk, nth, str(10 + nth), str(nth % 4 - 1)) for nth in range(10)]

    async def run(memory: Memory) -> None:
        for one in ticks:
            with suppress(BadInput):  # The other one is further.
                await record(memory, one, deadline_ms=20_000)

    async with memory_of(harness) as one, memory_of(harness) as other:
        await asyncio.gather(run(one), run(other))

    assert canonical(stored(harness, desk)) == canonical(in_memory(ticks).values())


async def test_a_runner_goes_on_from_postgres(harness: MemoryHarness, desk: str) -> None:
    async with memory_of(harness) as memory:
        assert await memory.trades.resume(desk) == LedgerState()
        await record(memory, tick(desk, 0, "10", "3"))
        await record(memory, tick(desk, 1, "11"))
        await record(memory, tick(desk, 2, "12", "-3"))
    async with memory_of(harness) as memory:
        state = await memory.trades.resume(desk)
    assert (state.owner, state.last_tick_at) == ("ann", START + timedelta(hours=2))
    assert [(trade.side, trade.quantity) for trade in state.open] == [(Side.SHORT, Decimal(3))]


async def test_as_of_a_moment_nothing_later_is_seen(harness: MemoryHarness, desk: str) -> None:
    """A trade that was closed later is open, one that grew later is small, one that came later is not there."""
    async with memory_of(harness) as memory:
        told = []
        for nth, (price, quantity) in enumerate([("10", "3"), ("11", "5"), ("12", "2"), ("9", "-2"), ("8", "0")]):
            receipt = await record(memory, tick(desk, nth, price, quantity))
            told.append((receipt.recorded_at, (await memory.trades.recent(deployment=desk)).text))
        before = await memory.trades.recent(deployment=desk, as_of=told[0][0] - timedelta(microseconds=1))
        # The horizon lies before what other writers have not committed; there are none.
        seen = [(await memory.trades.recent(deployment=desk, as_of=at)) for at, _ in told]
        by_skill = [(await memory.trades.recent(skill="momentum", as_of=told[2][0]))]

    assert before.text == ""
    assert before.tokens == 0
    assert [one.text for one in seen] == [text for _, text in told]
    assert [(len(one.open), len(one.closed)) for one in seen] == [(1, 0), (1, 0), (1, 0), (1, 1), (0, 2)]
    assert [one.open[0].entry_size_usd for one in seen[:3]] == [Decimal(30), Decimal(52), Decimal(52)]
    assert [len(one.open[0].partial_exits) for one in seen[:3]] == [0, 0, 1]
    assert seen[2].open[0] in by_skill[0].open


async def test_recent_trades_are_the_newest(harness: MemoryHarness, desk: str) -> None:
    """By entry, k closed ones, and the open ones unless they are not wanted."""
    async with memory_of(harness) as memory:
        for nth in range(12):
            await record(memory, tick(desk, nth, str(10 + nth), str(nth % 2 and 1), reason=f"reason {nth}"))
        few = await memory.trades.recent(deployment=desk, k=2)
        none = await memory.trades.recent(deployment=desk, k=0, include_open=False)
        of_skill = await memory.trades.recent(skill="momentum", skill_version="1.2", k=1)
        other = await memory.trades.recent(skill="momentum", skill_version="1.3")
        for wrong in ({"k": 31}, {"k": -1}, {"skill": "momentum"}, {"skill_version": "1"}):
            with pytest.raises(BadInput):
                await memory.trades.recent(deployment=desk, **wrong)
        with pytest.raises(BadInput, match="either a deployment or a skill"):
            await memory.trades.recent()

    assert [trade.entry_reason for trade in few.closed] == ["reason 9", "reason 7"]
    assert [trade.entry_reason for trade in few.open] == ["reason 11"]
    assert few.text.count("\n- ") == 3
    assert (none.text, none.closed, none.open) == ("", (), ())
    assert len(of_skill.closed) == 1
    assert other.text == ""


async def test_an_owner_reads_its_own_deployments_alone(harness: MemoryHarness, desk: str) -> None:
    """Nobody else's agent reads or writes them; a service records for its owner, and people and pipelines read."""
    mine, theirs = f"{desk}-ann", f"{desk}-bob"
    one = tick(mine, 0, "10", "1")
    async with memory_of(harness) as ann:
        await record(ann, one)
    async with memory_of(harness, "runner", Role.KNOWLEDGE_BASE_AGENT) as service:
        async with service.acting_as("bob") as bob:
            await record(bob, tick(theirs, 0, "10", "1"))
        await record(service, tick(mine, 1, "11", "1"))
        assert (await service.trades.recent(deployment=mine)).open
    async with memory_of(harness, "bob") as bob:
        assert (await bob.trades.recent(deployment=theirs)).open
        seen = await bob.trades.recent(skill="momentum")
        assert {trade.deployment_id for trade in (*seen.open, *seen.closed)} == {theirs}
        for denied in (
            bob.trades.recent(deployment=mine), bob.trades.resume(mine), bob.trades.reconcile(mine, []),
            record(bob, tick(mine, 2, "12", "1")),
        ):  # fmt: skip
            with pytest.raises(PermissionDenied, match="trades of ann"):
                await denied
    for role in (Role.HUMAN_ADMIN, Role.LEARNING_ENGINE):
        async with memory_of(harness, "eva", role) as reader:
            seen = await reader.trades.recent(skill="momentum", k=30)
            assert {trade.deployment_id for trade in seen.open} >= {mine, theirs}
            with pytest.raises(PermissionDenied):
                await record(reader, tick(mine, 2, "12", "1"))
    async with memory_of(harness, "fay", Role.DEBATE_FACILITATOR) as other:
        with pytest.raises(PermissionDenied):
            await other.trades.recent(skill="momentum")
    assert len(stored(harness, mine)) == 1


async def test_snapshots_say_what_a_decision_was_made_of(harness: MemoryHarness, desk: str) -> None:
    broker = Broker(desk)
    move = Move(Decimal(10), None, None, Decimal(1), Decimal(0), liquidated=False)
    ticks = broker.ticks([{"MU": move}, {"MU": replace(move, target=Decimal(0))}], ends=False)
    async with memory_of(harness) as memory:
        for one in ticks:
            await record(memory, one)

    [row] = harness.rows("SELECT * FROM recall.decision_snapshots WHERE deployment_id = %s", desk)
    [trade] = stored(harness, desk)
    bad = replace(ticks[0].decision, snapshot=DecisionSnapshot({"price": float("nan")}))
    async with memory_of(harness) as memory:
        with pytest.raises(BadInput, match="snapshot"):
            await record(memory, replace(ticks[0], decision=bad, at=START + timedelta(days=1)))
    assert (row["context"], row["proposed_action"], row["verdict"]) == ({"tick": 1}, {"buy": "…"}, "ok")
    assert (row["tokens"], row["cost_usd"], row["tick_at"]) == (1, Decimal("0.001"), ticks[1].at)
    assert (trade.entry_snapshot_id, trade.exit_snapshot_id) == (None, row["id"])
    assert trade.close_kind is CloseKind.CLOSE


async def test_the_ledger_is_compared_with_fills(harness: MemoryHarness, desk: str) -> None:
    async with memory_of(harness) as memory:
        await record(memory, tick(desk, 0, "10", "3"))
        await record(memory, tick(desk, 1, "12", "1"))
        fills = [
            Fill("MU", START, Decimal(3), Decimal(10)),
            Fill("MU", START + timedelta(hours=1), Decimal(-2), Decimal(12)),
        ]
        assert await memory.trades.reconcile(desk, fills) == []
        [lacking] = await memory.trades.reconcile(desk, fills[:1])
        assert (lacking.quantity, lacking.cash_usd) == (Decimal(2), Decimal(-24))
        assert await memory.trades.reconcile(desk, fills[1:], since=START) == []


async def test_fees_that_are_billed_late(harness: MemoryHarness, desk: str) -> None:
    """A version of what was closed last, once; as of before, and compared with the broker, the ledger is right."""
    late = replace(tick(desk, 3, "12"), bars={}, fees={"MU": Decimal("0.25")})
    async with memory_of(harness) as memory:
        await record(memory, tick(desk, 0, "10", "3"))
        closed = await record(memory, tick(desk, 1, "12"))
        billed = await record(memory, late)
        assert await record(memory, late) == replace(billed, status=TickStatus.IDENTICAL)
        [trade] = (await memory.trades.recent(deployment=desk)).closed
        assert (trade.fees_usd, trade.realized_pnl_usd) == (Decimal("0.25"), Decimal("5.75"))
        [before] = (await memory.trades.recent(deployment=desk, as_of=closed.recorded_at)).closed
        assert (before.fees_usd, before.realized_pnl_usd) == (Decimal(0), Decimal(6))
        fills = [
            Fill("MU", START, Decimal(3), Decimal(10)),
            Fill("MU", START + timedelta(hours=1), Decimal(-3), Decimal(12)),
            Fill("MU", START + timedelta(hours=3), Decimal(0), Decimal(0), Decimal("0.25")),
        ]
        assert await memory.trades.reconcile(desk, fills) == []
        with pytest.raises(BadInput, match="'AMD' has no trade that they are of, open or closed"):
            await record(memory, replace(late, at=START + timedelta(hours=4), fees={"AMD": Decimal(1)}))


def test_without_await(harness: MemoryHarness, desk: str) -> None:
    one = tick(desk, 0, "10", "3")
    with Memory.sync(harness.of()) as memory:
        receipt = memory.trades.record(one.decision, one.positions, one.bars, at=one.at)
        assert receipt.status is TickStatus.RECORDED
        assert memory.trades.resume(desk).open == memory.trades.recent(deployment=desk).open
        assert memory.trades.reconcile(desk, [Fill("MU", one.at, Decimal(3), Decimal(10))]) == []


def test_the_tables_are_written_by_the_function_alone(harness: MemoryHarness, desk: str) -> None:
    """The application's login may not change a row, and what is closed stays as it is for its owner too."""
    import psycopg

    assert harness.settings.postgres_url is not None
    with psycopg.connect(harness.settings.postgres_url.get_secret_value(), autocommit=True) as conn:
        for table in ("trade_history", "trade_version", "trade_tick", "trade_deployment", "decision_snapshots"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"DELETE FROM recall.{table}")
    assert [
        TradeStatus(row["status"])
        for row in harness.rows("SELECT status FROM recall.trade_history WHERE deployment_id = %s", desk)
    ] == []
