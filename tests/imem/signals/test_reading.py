"""Reads of stored signals, whoever wrote them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from imem.journal.errors import BadInput
from imem.memory import Memory
from imem.recall.signals import format_memory
from tests.imem.memory.conftest import MemoryHarness
from tests.imem.signals.conftest import applied, memory_of, signal

NOW = datetime.now(UTC)
AGENTS = ("ann", "bob", "cy")
MARKETS = ("a", "b")

INSERT = (
    "INSERT INTO recall.agent_signals (id, market_id, recommendation_id, agent_name, agent_type, fair_probability, "
    "confidence, direction, key_drivers, metadata, created_at, analysis_id, subject_kind, exact_probability, "
    "exact_confidence) "
    "VALUES (%(id)s, %(market)s, %(recommendation)s, %(agent)s, %(type)s, %(fair)s, %(confidence)s, %(direction)s, "
    "%(drivers)s, %(metadata)s, %(at)s, %(analysis)s, %(kind)s, %(exact_fair)s, %(exact_confidence)s)"
)

NUMBERS = st.one_of(st.none(), st.integers(-50, 150).map(lambda n: n / 100), st.just(float("nan")))


@st.composite
def stored(draw: st.DrawFn) -> dict[str, Any]:
    """Rows of the design's shape, and of ours, of which about half are no signals."""
    good = draw(st.booleans())
    shares = st.integers(0, 100).map(lambda n: n / 100)
    fair = draw(shares if good else NUMBERS)
    confidence = draw(shares if good else NUMBERS)
    return {
        "id": UUID(int=draw(st.integers(0, 2**64))),
        "market": draw(st.sampled_from(MARKETS)),
        "agent": draw(st.sampled_from(AGENTS)),
        "kind": draw(st.sampled_from([None, "market", "company"])),
        "direction": draw(st.sampled_from(["YES", "NO", "NEUTRAL"] if good else ["YES", "yes", "", None])),
        "fair": fair,
        "confidence": confidence,
        "exact_fair": draw(st.sampled_from([None, fair])),
        "exact_confidence": draw(st.sampled_from([None, confidence])),
        "drivers": Jsonb(
            draw(st.one_of(st.lists(st.text("abc", max_size=5), max_size=4), st.none(), st.just({"x": 1})))
        ),
        "metadata": Jsonb(
            draw(st.one_of(st.dictionaries(st.text("ab", max_size=3), st.integers()), st.none(), st.just(3)))
        ),
        # Few moments, so that several rows share one.
        "at": NOW - timedelta(days=draw(st.sampled_from([0.1, 1, 2, 3, 100, 179, 181]))),
        "analysis": None,
        "recommendation": draw(st.sampled_from([None, "r1"])),
        "type": draw(st.sampled_from([None, "macro"])),
    }


def _valid(row: dict[str, Any], kind: str) -> bool:
    def share(value: float | None) -> bool:
        return value is not None and 0 <= value <= 1

    fair = (row["fair"] is None and kind == "company") or share(row["fair"])
    return row["direction"] in {"YES", "NO", "NEUTRAL"} and fair and share(row["confidence"])


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    drivers, metadata = row["drivers"].obj, row["metadata"].obj
    return {
        "id": row["id"], "agent_name": row["agent"], "market_id": row["market"], "direction": row["direction"],
        "fair_probability": row["fair"], "confidence": row["confidence"], "created_at": row["at"],
        "key_drivers": tuple(drivers) if isinstance(drivers, list) else (),
        "metadata": metadata if isinstance(metadata, dict) else {}, "subject_kind": row["kind"] or "market",
        "recommendation_id": row["recommendation"], "agent_type": row["type"], "analysis_id": None,
    }  # fmt: skip


@pytest.mark.spec("RC-1")
# The event loop goes on in its thread, and whatever chooses a pause there at random looks as if a strategy had.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
async def test_the_newest_valid_rows_of_a_pair_are_read_with_all_their_fields(shared: MemoryHarness) -> None:
    """For any stored rows, against a plain list."""
    loop = asyncio.get_running_loop()
    async with memory_of(shared) as memory:

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            rows=st.lists(stored(), max_size=25, unique_by=lambda row: row["id"]),
            limit=st.integers(1, 5),
            kind=st.sampled_from(["market", "company"]),
            market=st.sampled_from(MARKETS),
        )
        def holds(rows: list[dict[str, Any]], limit: int, kind: str, market: str) -> None:
            conn.execute("TRUNCATE recall.agent_signals")
            conn.cursor().executemany(INSERT, rows)
            asked = memory.signal_histories(f"{kind}:{market}", AGENTS, limit=limit)
            found = asyncio.run_coroutine_threadsafe(asked, loop).result()
            for agent in AGENTS:
                ours = [
                    row for row in rows
                    if (row["agent"], row["market"], row["kind"] or "market") == (agent, market, kind)
                    and row["at"] > NOW - timedelta(days=180)
                ]  # fmt: skip
                ours.sort(key=lambda row: (row["at"], row["id"]), reverse=True)
                valid = [row for row in ours if _valid(row, kind)]
                shown = [one.model_dump(mode="python") for one in found[agent].signals]
                assert shown == [_fields(row) for row in valid[:limit]]
                since = valid[limit - 1]["at"] if len(valid) >= limit else NOW - timedelta(days=180)
                assert found[agent].skipped == sum(not _valid(row, kind) and row["at"] >= since for row in ours)
                assert found[agent].error is None

        with psycopg.connect(shared.admin_url, autocommit=True) as conn:
            await asyncio.to_thread(holds)


@pytest.mark.spec("RC-3")
async def test_corrupt_rows_cost_no_place(shared: MemoryHarness) -> None:
    def row(nth: int, **changes: Any) -> dict[str, Any]:
        given = {
            "id": uuid4(), "market": "rc3", "agent": "ann", "kind": None, "direction": "YES", "fair": 0.5,
            "confidence": 0.5, "exact_fair": None, "exact_confidence": None, "drivers": Jsonb(["a"]),
            "metadata": Jsonb({}), "at": NOW - timedelta(hours=nth), "analysis": None,
            "recommendation": None, "type": None,
        }  # fmt: skip
        return {**given, **changes}

    rows = [row(1, direction="UP"), row(2, fair=1.2), row(3), row(4), row(5), row(6), row(7, direction=None)]
    with psycopg.connect(shared.admin_url, autocommit=True) as conn:
        conn.cursor().executemany(INSERT, rows)
    async with memory_of(shared) as memory:
        found = await memory.signals("market:rc3")
        assert [one.id for one in found.signals] == [one["id"] for one in rows[2:5]]
        assert found.skipped == 2
        applied(shared)
        await memory.record_signal(signal("market:other"))
        applied(shared)
        # Of a day, rows that others wrote count from when they were made.
        then = await memory.signals("market:rc3", as_of=NOW - timedelta(hours=4))
        assert [one.id for one in then.signals] == [one["id"] for one in rows[3:6]]


ROOT = Path(__file__).resolve().parents[3]

EXISTING = """
CREATE TABLE agent_signals (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(), market_id VARCHAR(255) NOT NULL, recommendation_id UUID,
    agent_name VARCHAR(100) NOT NULL, agent_type VARCHAR(50), fair_probability DECIMAL(5, 4), confidence DECIMAL(3, 2),
    direction VARCHAR(10), key_drivers JSONB, metadata JSONB, created_at TIMESTAMPTZ DEFAULT now())
"""


async def test_a_table_that_another_program_keeps_is_read_as_it_is(shared: MemoryHarness) -> None:
    """Copied by the statement that the page about signals shows, as often as one likes."""
    page = (ROOT / "docs/how-to/signals.md").read_text()
    [copy] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    rows = [
        (uuid4(), uuid4(), "YES", "0.6200", "0.95", NOW - timedelta(hours=3)),
        (uuid4(), None, "NO", "0.4000", "0.50", NOW - timedelta(hours=2)),
        (uuid4(), None, "SIDEWAYS", "0.4000", "0.50", NOW - timedelta(hours=1)),
    ]
    with psycopg.connect(shared.admin_url, autocommit=True) as conn:
        conn.execute(EXISTING)
        conn.cursor().executemany(
            "INSERT INTO agent_signals (id, recommendation_id, direction, fair_probability, confidence, created_at, "
            "market_id, agent_name, agent_type, key_drivers, metadata) VALUES (%s, %s, %s, %s, %s, %s, "
            "'theirs', 'ann', 'macro', '[\"Jobs\"]', '{\"model\": \"m\"}')",
            rows,
        )
        assert [conn.execute(copy.encode()).rowcount for _ in range(2)] == [3, 0]
        conn.execute("DROP TABLE agent_signals")
    async with memory_of(shared) as memory:
        found = await memory.signals("market:theirs")
        assert ([one.id for one in found.signals], found.skipped) == ([rows[1][0], rows[0][0]], 1)
        oldest = found.signals[-1]
        assert (oldest.recommendation_id, oldest.fair_probability, oldest.confidence) == (str(rows[0][1]), 0.62, 0.95)
        assert (oldest.agent_type, oldest.key_drivers, oldest.metadata) == ("macro", ("Jobs",), {"model": "m"})
        done = await memory.record_signal(signal("market:theirs", direction="YES"), history=found)
        assert [event.type for event in done.events][:1] == ["direction_change"]


@pytest.mark.spec("RC-5")
async def test_ten_agents_at_once_read_their_own_alone(shared: MemoryHarness) -> None:
    agents = [f"agent{nth}" for nth in range(10)]

    async def live(agent: str) -> None:
        async with memory_of(shared, agent, signals_per_agent=5) as mine:
            for nth in range(4):
                await mine.record_signal(signal("market:rc5", agent, analysis_id=f"rc5/{nth}", key_drivers=[agent]))
                found = await mine.signals("market:rc5")
                assert [one.analysis_id for one in found.signals] == [f"rc5/{n}" for n in range(nth, -1, -1)]
                _own(found, agent)

    await asyncio.gather(*map(live, agents))
    async with memory_of(shared, "somebody") as memory:
        for found in await asyncio.gather(*(memory.signal_histories("market:rc5", agents) for _ in range(10))):
            assert list(found) == agents
            for agent, one in found.items():
                assert len(one.signals) == 3
                _own(one, agent)


def _own(found: Any, agent: str) -> None:
    assert found.agent_name == agent
    assert {one.agent_name for one in found.signals} <= {agent}
    text = format_memory(found).text
    assert {f"agent{nth}" for nth in range(10) if f'"agent{nth}"' in text} <= {agent}


@pytest.mark.spec("RC-8")
async def test_many_agents_are_one_statement(shared: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_of(shared) as memory:
        database, names = memory._stores.database, list[str]()
        plain = database.named

        async def named(name: str, *given: Any, **more: Any) -> Any:
            names.append(name)
            return await plain(name, *given, **more)

        monkeypatch.setattr(database, "named", named)
        await memory.signal_histories("market:rc5", [f"agent{nth}" for nth in range(10)])
        await memory._stores.signals.close()
        assert names == ["signals", "audit"]


async def test_every_read_is_audited(shared: MemoryHarness) -> None:
    async with memory_of(shared, "dora") as memory:
        await memory.record_signal(signal("market:audited", "dora"))
        await memory.signal_histories("market:audited", ["dora", "ed"])
    [row] = shared.rows("SELECT * FROM memory_access_audit WHERE actor_id = 'dora' AND action = 'signals_read'")
    assert (row["resource_id"], row["authorized"], row["outcome"]) == ("market:audited", True, "granted")
    context = row["request_context"]
    assert (context["agents"], context["with_history"], context["signals"]) == (["dora", "ed"], ["dora"], 1)
    assert (context["success"], context["attempt"], context["error_kind"]) == (True, 1, None)
    assert context["took_ms"] > 0


async def test_switches(shared: MemoryHarness) -> None:
    for off in ({"signals_enabled": False}, {"signals_rollout_percent": 0}):
        async with memory_of(shared, **off) as memory:
            await memory.record_signal(signal("market:off", analysis_id="off/1"))
            found = await memory.signals("market:off")
            assert not found.signals
            assert "switched off" in (found.reason or "")
            assert found.error is None
    async with memory_of(shared, signals_per_agent=1, signals_retention_days=1) as memory:
        await memory.record_signal(signal("market:off", analysis_id="off/2"))
        assert len((await memory.signals("market:off")).signals) == 1
        assert len((await memory.signals("market:off", limit=5)).signals) == 2
        for wrong in (0, 6):
            with pytest.raises(BadInput):
                await memory.signals("market:off", limit=wrong)
        with pytest.raises(BadInput):
            await memory.signals("market:off", deadline_ms=5_001)


def test_the_blocking_twin(shared: MemoryHarness) -> None:
    with Memory.sync(shared.of("syd")) as memory:
        memory.record_signal(signal("company:SYNC", "syd"))
        assert memory.signals("company:SYNC").has_history
        assert memory.signal_histories("company:SYNC", ["syd"])["syd"].has_history
