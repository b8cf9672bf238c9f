"""What the gateway costs a call: the check, the audit row beside a bare INSERT, and whose token it is."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import psycopg
import pytest
import pytest_asyncio

from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.identity.tokens import Tokens
from imem.journal.identity.verifier import Verifier
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.bench.table import Figure, Table, percentile
from tests.servers import as_curators, cloned

pytestmark = pytest.mark.bench

CHECKS: Final = {"full": 10_000, "tiny": 400}
CHECK_BARS_MS: Final = {0.50: 1.0, 0.95: 5.0, 0.99: 10.0}
AUDIT_BAR_MS: Final = 4.0
TOTAL_BAR_MS: Final = 5.0

DENIAL: Final = (Actor("ann", Role.AGENT), Resource(ResourceType.AUDIT), Action.READ)
FLOOR: Final = (
    "INSERT INTO bench_audit (actor, role, resource, action, context, outcome)"
    " VALUES ('ann', 'agent', 'audit', 'read', '{}', 'denied')"
)
"""What the audit's row holds, into a table without partitions, triggers and functions."""


@pytest_asyncio.fixture
async def databases(light_stack: Any, light_template: str) -> AsyncIterator[tuple[Database, Database, str]]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        opened = Database(url), Database(as_curators(light_stack.settings, url))
        yield *opened, admin_url
        for one in opened:
            await one.close()


async def timed(times: int, call: Callable[[int], Awaitable[Any]]) -> list[float]:
    """Return how long each of so many calls took, one after the other, in milliseconds."""
    taken = []
    for number in range(times):
        begun = time.perf_counter()
        await call(number)
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def bare(admin_url: str, times: int) -> list[float]:
    """Return how long so many bare INSERTs took, each committed."""
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as conn:
        await conn.execute(
            "CREATE TABLE bench_audit (id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),"
            " actor text, role text, resource text, action text, context jsonb, outcome text)"
        )
        return await timed(times, lambda _: conn.execute(FLOOR))


@pytest.mark.spec("AC-8")
async def test_ten_thousand_checks(databases: tuple[Database, Database, str], table: Table) -> None:
    """Of every cell of the table that grants without an audit row, then as many denials, each with its row."""
    application, _, admin_url = databases
    times = CHECKS[table.scale]
    gateway, soon = Gateway(application, DENIAL[0]), Deadline.never()
    granted = [
        (Actor("ann", role, may_import=True), Resource(resource, "x", "ann"), action)
        for role, resource, action in AUTHORIZATION
        if resource is not ResourceType.PATTERNS and action is not Action.DELETE
    ]
    cells = list(itertools.islice(itertools.cycle(granted), times))

    async def check(number: int) -> None:
        actor, resource, action = cells[number]
        await gateway.authorize(resource, action, deadline=soon, actor=actor)

    async def audit(_: int) -> None:
        actor, resource, action = DENIAL
        await gateway.audit_denial(resource, action, deadline=soon, actor=actor)

    async def total(_: int) -> None:
        actor = Actor("ann", Role.AGENT)
        await gateway.authorize(Resource(ResourceType.PATTERNS), Action.READ, deadline=soon, actor=actor)

    checks = await timed(times, check)
    await audit(0)
    audits = await timed(times, audit)
    totals = await timed(times, total)
    floors = await bare(admin_url, times)
    [rows] = await application.rows("SELECT count(*) AS n FROM memory_access_audit", deadline=Deadline.never())
    assert rows["n"] == 2 * times + 1
    data = f"{times:,} calls"
    table.add(
        *(
            Figure(
                name=f"gateway check p{share * 100:.0f}", data=data, value=percentile(checks, share), unit="ms", bar=bar
            )
            for share, bar in CHECK_BARS_MS.items()
        ),
        *(
            Figure(
                name=f"gateway {name} p{share * 100:.0f}", data=data, value=percentile(taken, share), unit="ms",
                floor=percentile(floors, share), bar=bar if share == 0.95 else None, note=note,
            )
            for name, taken, bar, note in (
                ("audit row", audits, AUDIT_BAR_MS, "committed to disk; floor: a bare INSERT of the same columns"),
                ("check with audit row", totals, TOTAL_BAR_MS, "a granted read of patterns"),
            )
            for share in (0.50, 0.95)
        ),
    )  # fmt: skip


async def test_whose_a_token_is(databases: tuple[Database, Database, str], table: Table) -> None:
    """Looked up in Postgres, as the first call within half a minute is, and kept in the process."""
    application, curators, admin_url = databases
    times = CHECKS[table.scale] // 10
    admin = Actor("kate", Role.HUMAN_ADMIN)
    soon = Deadline.never()
    made = await Tokens(Gateway(curators, admin)).create("ann", Role.AGENT, deadline=soon)
    verifier = Verifier(application)

    async def looked_up(_: int) -> None:
        verifier.forget(made.token.token_id)
        await verifier.actor(made.secret, deadline=soon)

    async def kept(_: int) -> None:
        await verifier.actor(made.secret, deadline=soon)

    first, later = await timed(times, looked_up), await timed(times, kept)
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as conn:
        floors = await timed(times, lambda _: conn.execute("SELECT * FROM access_token WHERE hash = %s", (b"x" * 32,)))
    table.add(
        *(
            Figure(
                name=f"token {name} p{share * 100:.0f}", data=f"{times:,} calls", value=percentile(taken, share),
                unit="ms", floor=percentile(floors, share) if taken is first else None,
                note="floor: a bare SELECT by the index" if taken is first else "",
            )
            for name, taken in (("looked up", first), ("kept", later))
            for share in (0.50, 0.95)
        )
    )  # fmt: skip
