"""Rows stay as they are, and nobody goes around the lease."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from imem.journal.errors import StatementRejected

from .conftest import World, soon

FENCED = (
    "analysis", "agent_instance", "agent_leases", "agent_checkpoints", "agent_checkpoints_archive", "agent_deliverable",
)  # fmt: skip
PLAIN = ("workflow_thread", "workflow_checkpoints", "workflow_pending_writes")


@pytest.mark.parametrize("table", FENCED)
async def test_the_application_reads_what_is_fenced_and_writes_it_by_functions_alone(world: World, table: str) -> None:
    rights = await world.rows(
        "SELECT privilege FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS privilege "
        "WHERE has_table_privilege(current_user, %s, privilege)",
        f"workflow.{table}",
    )

    assert [row["privilege"] for row in rights] == ["SELECT"]
    with pytest.raises(StatementRejected):
        await world.database.rows(f"DELETE FROM workflow.{table}", deadline=soon())


async def test_the_application_changes_the_plain_tables_of_both_schemas(world: World) -> None:
    rows = await world.rows(
        "SELECT c.oid::regclass::text AS name, array_agg(p ORDER BY p) AS rights FROM pg_class AS c, "
        "unnest(ARRAY['DELETE', 'INSERT', 'SELECT', 'UPDATE']) AS p "
        "WHERE c.relnamespace IN ('workflow'::regnamespace, 'langgraph'::regnamespace) AND c.relkind = 'r' "
        "AND has_table_privilege(current_user, c.oid, p) GROUP BY c.oid"
    )

    rights = {row["name"]: row["rights"] for row in rows}
    assert all(rights[f"workflow.{table}"] == ["DELETE", "INSERT", "SELECT", "UPDATE"] for table in PLAIN)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE workflow.agent_checkpoints SET agent_version = 'forged'",
        "UPDATE workflow.agent_checkpoints SET preserve = true, progress_pct = 1",
        "DELETE FROM workflow.agent_checkpoints",
        "TRUNCATE workflow.agent_checkpoints CASCADE",
    ],
)
async def test_rows_are_append_only_for_the_owner_too(world: World, statement: str) -> None:
    await world.save(await world.acquire(), "fetch")

    with psycopg.connect(world.admin_url) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement)

    assert len(await world.rows("SELECT FROM workflow.agent_checkpoints")) == 2


async def test_the_setting_of_the_clean_up_opens_nothing_to_the_application(world: World) -> None:
    await world.acquire()

    async def go_around() -> None:
        async with world.database.transaction(soon()) as conn:
            await conn.execute("SELECT set_config('imem.purging', 'on', true)")
            await conn.execute("DELETE FROM workflow.agent_checkpoints")

    with pytest.raises(StatementRejected):
        await go_around()

    (row,) = await world.rows("SELECT current_setting('imem.purging', true) AS value")
    assert row["value"] in {None, ""}


async def test_only_the_mark_of_preservation_may_change(world: World) -> None:
    saved = await world.save(await world.acquire(), "fetch")

    assert await world.checkpoints.preserve(saved.id, deadline=soon())
    assert await world.checkpoints.preserve(saved.id, deadline=soon())
    assert (await world.load()).preserve, "also where the copy was made before"
    assert await world.checkpoints.preserve(saved.id, preserve=False, deadline=soon())
    assert await world.load() == saved
    assert not await world.checkpoints.preserve(UUID(int=1), deadline=soon())
