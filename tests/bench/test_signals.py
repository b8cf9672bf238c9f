"""Signals: how long ten agents wait for what they concluded before, among a million signals."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import psycopg
import pytest

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.memory import Memory
from tests.bench.table import Figure, Table, percentile
from tests.imem.memory.conftest import MemoryHarness, harness

__all__ = ["harness"]

MARKETS: Final = 10 if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else 1_000
AGENTS: Final = tuple(f"agent{nth}" for nth in range(10))
EACH: Final = 100
"""Signals of each pair."""

READS: Final = 300
MOST_MS: Final = 100.0
"""Bar of a read for ten agents, at p95."""

pytestmark = pytest.mark.bench

SEED: Final = """
INSERT INTO recall.agent_signals (id, market_id, agent_name, agent_type, fair_probability, confidence, direction,
    key_drivers, metadata, created_at, analysis_id, subject_kind, finding_id, exact_probability, exact_confidence)
SELECT gen_random_uuid(), 'm' || m, 'agent' || a, 'macro', 0.5, 0.5, 'YES',
    '["Core inflation fell below its average", "Two governors spoke for a cut", "Payrolls were revised down"]',
    '{"statement": "A cut is likelier than what the market says."}', imem_now() - make_interval(hours => 4 * n + 1),
    'x' || m || '/' || n, 'market', 'f' || m || '/' || n || '/' || a, 0.5, 0.5
FROM generate_series(1, %s) AS n CROSS JOIN generate_series(0, %s) AS m CROSS JOIN generate_series(0, 9) AS a
"""


@pytest.mark.spec("RC-8")
async def test_ten_agents_read_in_one_statement(
    harness: MemoryHarness, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor is the statement alone. The audit rows are written beside the reads, in the time between them."""
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute(SEED, (EACH, MARKETS - 1))
        conn.execute("VACUUM ANALYZE recall.agent_signals")
    statements: list[str] = []
    named = Database.named

    async def counted(self: Database, name: str, parameters: Any = None, *, deadline: Deadline) -> Any:
        statements.append(name)
        return await named(self, name, parameters, deadline=deadline)

    async with Memory.open(harness.of("kate", Role.HUMAN_ADMIN)) as memory:
        taken, floor = [], []
        reader = memory._stores.signals
        for nth in range(READS + 10):
            market = f"m{nth * 37 % MARKETS}"
            with monkeypatch.context() as patched:
                patched.setattr(Database, "named", counted)
                begun = time.perf_counter()
                found = await memory.signal_histories(f"market:{market}", AGENTS, deadline_ms=5_000)
                taken.append((time.perf_counter() - begun) * 1000)
                await reader.audit.close()
            assert all(len(one.signals) == 3 for one in found.values())
            subject = {"kind": "market", "market": market, "subject_id": f"market:{market}"}
            given = {**subject, "agents": list(AGENTS), "limit": 3}
            begun = time.perf_counter()
            await memory._stores.database.named(
                "signals", {**given, "retention": reader.policy.retention}, deadline=Deadline.after_ms(5_000)
            )
            floor.append((time.perf_counter() - begun) * 1000)
    assert statements.count("signals") == READS + 10
    assert set(statements) == {"signals", "audit"}
    data = f"10 agents of {MARKETS * len(AGENTS) * EACH:,}"
    table.add(
        *(
            Figure(
                name=f"signals {name}",
                data=data,
                value=percentile(taken[10:], share),
                unit="ms",
                floor=percentile(floor[10:], share),
                bar=MOST_MS if share == 0.95 else None,
            )
            for name, share in (("p50", 0.5), ("p95", 0.95))
        )
    )
