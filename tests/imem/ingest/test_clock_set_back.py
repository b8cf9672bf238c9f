"""The server's clock may run backwards; the journal's does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql as composed
from pydantic import SecretStr

from imem.journal.clock import SystemClock
from imem.journal.settings import Role
from imem.kg.model import Company
from imem.local.doctor import servers
from imem.memory import Memory
from tests.imem.ingest.conftest import LoadHarness

HOUR = timedelta(hours=1)


@contextmanager
def fast(harness: LoadHarness, by: str) -> Iterator[LoadHarness]:
    """Lend the harness of the same actor, as the owner, while the server's clock is ahead *by* an interval."""
    alter = composed.SQL("ALTER DATABASE {} ").format(composed.Identifier(harness.url.rpartition("/")[2]))
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute(alter + composed.SQL("SET imem.clock_shift = {}").format(by))
        try:
            yield harness.having(postgres_url=SecretStr(harness.admin_url), postgres_curator_url=None)
        finally:
            conn.execute(alter + composed.SQL("RESET imem.clock_shift"))


async def named(harness: LoadHarness, name: str) -> datetime:
    """Record the company's name as it is now; return when that was recorded."""
    async with Memory.open(harness.settings) as memory:
        receipt = await memory.record_company(Company(ticker="NWT", profile=Company.Profile(name=name)))
    assert receipt.recorded_at is not None
    return receipt.recorded_at


async def test_of_two_acknowledged_values_the_later_wins_though_the_clock_was_set_back(harness: LoadHarness) -> None:
    """What an actor recorded before the clock went back gives way to what another one records after that."""
    person = harness.as_role(Role.HUMAN_ADMIN, "z-person")
    with fast(person, "1h") as ahead:
        before = await named(ahead, "Northwind")
    after = await named(person.as_role(Role.HUMAN_ADMIN, "a-person"), "Northwind Traders")

    assert before > datetime.now(UTC) + HOUR / 2
    assert after > before
    async with Memory.open(person.settings) as memory:
        briefing = await memory.brief("company:NWT", deadline_ms=30_000)
    assert briefing.subject.record is not None
    assert briefing.subject.record.groups["profile"]["name"] == "Northwind Traders"
    assert briefing.as_of >= after
    winners = "SELECT e.payload->'groups'->'profile'->>'name' FROM record_head AS h JOIN event AS e USING (position)"
    assert harness.rows(f"{winners} WHERE h.kind = 'Company' AND h.grp = 'profile'") == [("Northwind Traders",)]


async def test_doctor_says_that_the_clock_is_behind_the_journal(harness: LoadHarness) -> None:
    """It is a warning that names by how much, and there is none while the clock is right."""
    person = harness.as_role(Role.HUMAN_ADMIN, "z-person")
    await named(person, "Northwind")
    assert not [one for one in servers.postgres(harness.settings, SystemClock()) if "newest event" in one.text]
    with fast(person, "1h") as ahead:
        await named(ahead, "Northwind Traders")
    (finding,) = [one for one in servers.postgres(harness.settings, SystemClock()) if "newest event" in one.text]
    assert "Its clock is 3,6" in finding.text or "Its clock is 3,5" in finding.text


@pytest.mark.parametrize("actors", [("a", "b"), ("b", "a"), ("a", "a")])
async def test_times_of_recording_never_run_backwards(harness: LoadHarness, actors: tuple[str, str]) -> None:
    """Whoever writes, and however far the clock was ahead."""
    first, second = (harness.as_role(Role.HUMAN_ADMIN, actor) for actor in actors)
    with fast(first, "20d") as ahead:
        await named(ahead, "One")
    await named(second, "Two")
    await named(first, "Three")
    times = [at for (at,) in harness.rows("SELECT recorded_at FROM event ORDER BY position")]
    assert times == sorted(times)
    assert len(set(times)) == 3


HORIZON = "SELECT imem_safe_horizon()"


def _applied(harness: LoadHarness) -> None:
    """Have everything recorded be in the graph, as the horizon sees it."""
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute("UPDATE delivery SET state = 'applied'")


async def test_an_open_writer_does_not_put_the_horizon_back_with_the_clock(harness: LoadHarness) -> None:
    """What it will record comes after what is recorded, whatever the clock said when its transaction began."""
    person = harness.as_role(Role.HUMAN_ADMIN, "z-person")
    with fast(person, "1h") as ahead:
        before = await named(ahead, "Northwind")
    _applied(harness)
    with psycopg.connect(harness.admin_url) as writer:
        # Writes, and has not read the journal's time: then a checkpoint, or an append that has just begun.
        writer.execute("SELECT pg_current_xact_id()")
        assert harness.rows(HORIZON)[0][0] >= before
        claimed = writer.execute("SELECT imem_claim_recorded_at()").fetchone()
        assert claimed is not None
        horizon = harness.rows(HORIZON)[0][0]
        assert claimed[0] > before > horizon >= before - timedelta(seconds=1)
    assert harness.rows(HORIZON)[0][0] >= before


async def test_what_an_open_writer_records_lies_behind_the_horizon(harness: LoadHarness) -> None:
    """Whether the clock is right or behind: of what is before the horizon, nothing is added later."""
    person = harness.as_role(Role.HUMAN_ADMIN, "z-person")
    for by in ("0s", "1h"):
        with fast(person, by) as ahead:
            await named(ahead, f"Northwind {by}")
        _applied(harness)
        with psycopg.connect(harness.admin_url) as writer:
            writer.execute("SELECT pg_current_xact_id()")
            claimed = writer.execute("SELECT imem_claim_recorded_at()").fetchone()
            assert claimed is not None
            horizon = harness.rows(HORIZON)[0][0]
            assert horizon < claimed[0]
