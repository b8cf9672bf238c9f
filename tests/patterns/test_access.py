"""Who may do what to patterns that are no answers, and what the audit keeps of it; on real servers."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest

from imem.jobs.lifecycle import advance_due
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, PermissionDenied, TransitionRefused
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.memory import Memory
from imem.patterns.life import BY_PEOPLE
from imem.patterns.states import PATTERN_STATES, PatternFacts
from tests.kg.projection.conftest import empty, journal, world
from tests.patterns.parts import definition
from tests.recall.conftest import RecallHarness, harness
from tests.recall.test_who_may_ask import asking, audited

__all__ = ["empty", "harness", "journal", "world"]

DEFINITION = definition().model_dump(mode="json")

ROW = """
    INSERT INTO lifecycle (kind, key, about, state, data)
    VALUES ('pattern', %s::text, %s::text, %s::text, jsonb_build_object(
        'definition', %s::jsonb, 'proposed_by', 'miner', 'search_space_size', NULL, 'attempt', 1, 'stage', 'blind',
        'look_at', '2026-01-01T00:00:00+00:00', 'baseline', '{"successes": 8, "cases": 10}'::jsonb))"""


def have(harness: RecallHarness, key: str, status: PatternStatus) -> None:
    """Have a pattern in a status."""
    import orjson

    harness.journal.owner(ROW, key, key, status.value, orjson.dumps(DEFINITION).decode())


def allowed(before: PatternStatus, after: PatternStatus) -> bool:
    """Return whether a person may ask for it."""
    try:
        PATTERN_STATES.check(before, after, PatternFacts(role=Role.HUMAN_ADMIN))
    except TransitionRefused:
        return False
    return after in BY_PEOPLE


@pytest.mark.spec("PV-1", "AC-4", "PV-24")
async def test_only_what_follows_may_be_asked_for_and_the_rest_leaves_a_denial(harness: RecallHarness) -> None:
    for status in PatternStatus:
        have(harness, f"p-{status}", status)
    denied = granted = 0
    async with asking(harness, Role.HUMAN_ADMIN, "kate") as memory:
        for before in PatternStatus:
            # Once asked for, another request waits: what follows is asked for last.
            for after in sorted(PatternStatus, key=partial(allowed, before)):
                if allowed(before, after) and after is not PatternStatus.REJECTED_HUMAN_OVERRIDE:
                    continue
                if allowed(before, after):
                    await memory.set_pattern_status(f"p-{before}", after, reason="A slip.")
                    granted += 1
                else:
                    with pytest.raises(TransitionRefused):
                        await memory.set_pattern_status(f"p-{before}", after, reason="A slip.")
                    denied += 1
    rows = [row for row in await audited(harness, "patterns") if row[1] == "deprecate"]
    assert sum(not row[3] for row in rows) == denied
    assert sum(row[3] for row in rows) == denied + granted
    found = await harness.journal.rows(
        "SELECT key, state, request ->> 'state' AS wanted FROM lifecycle WHERE kind = 'pattern'"
    )
    assert {row["key"]: row["state"] for row in found} == {f"p-{status}": status.value for status in PatternStatus}
    assert {row["wanted"] for row in found} <= {None, "rejected_human_override"}


@pytest.mark.spec("PV-1", "AC-4")
async def test_agents_change_no_status_and_leave_a_denial(harness: RecallHarness) -> None:
    have(harness, "p", PatternStatus.ACTIVE)
    async with asking(harness, Role.AGENT) as memory:
        for status in PatternStatus:
            with pytest.raises(PermissionDenied):
                await memory.set_pattern_status("p", status, reason="A slip.")
    rows = [row for row in await audited(harness, "patterns") if row[1] == "deprecate"]
    assert rows == [("agent0", "deprecate", "p", False)] * len(PatternStatus)


@pytest.mark.spec("PV-1", "AC-4")
async def test_a_request_past_the_checks_has_no_effect_and_is_audited(harness: RecallHarness) -> None:
    """Whoever has the application's login may store a row; the pipeline looks at it again."""
    from types import SimpleNamespace

    from imem.patterns.monitoring import LIFE

    have(harness, "p", PatternStatus.STATISTICALLY_VALIDATED)
    harness.journal.owner(
        "UPDATE lifecycle SET requested_at = now(), request = jsonb_build_object('state', 'human_approved', 'actor',"
        " 'mallory', 'role', 'human_admin', 'reason', 'Quickly.') WHERE kind = 'pattern'"
    )
    database = harness.journal.database
    runtime = SimpleNamespace(database=database, gateway=Gateway(database, harness.memory._stores.gateway.actor))
    report = await advance_due(runtime, {LIFE.kind: LIFE}, until=Deadline.never())
    assert report.refused == 1
    [row] = await harness.journal.rows("SELECT state, request FROM lifecycle WHERE kind = 'pattern'")
    assert row == {"state": "statistically_validated", "request": None}
    found = await harness.journal.rows("SELECT action FROM memory_access_audit WHERE actor_id = 'mallory'")
    assert [one["action"] for one in found] == ["refuse"]


async def every_call(memory: Memory) -> None:
    """Make one call of each way to look at patterns, or to change them."""
    await memory.propose_pattern(DEFINITION)
    await memory.plan_pattern_test(DEFINITION)
    await memory.all_patterns()
    await memory.pattern_tests("p")
    await memory.text("Pattern", "p")
    await memory.query("active_patterns", {"sector": None})
    await memory.set_pattern_status("p", PatternStatus.REJECTED_HUMAN_OVERRIDE, reason="A slip.")


@pytest.mark.spec("PV-22")
async def test_every_attempt_leaves_one_row_for_good(harness: RecallHarness) -> None:
    have(harness, "p", PatternStatus.CANDIDATE)
    async with asking(harness, Role.HUMAN_ADMIN, "kate") as memory:
        await every_call(memory)
    rows = [row for row in await audited(harness, "patterns") if row[0] == "kate"]
    assert [(row[1], row[3]) for row in rows] == [
        ("propose", True), ("propose", True), ("validate", True), ("validate", True), ("read", True), ("read", True),
        ("deprecate", True),
    ]  # fmt: skip
    for statement in ("DELETE FROM memory_access_audit", "UPDATE memory_access_audit SET authorized = true"):
        with pytest.raises(psycopg.Error, match="append-only"):
            harness.journal.owner(statement)


@pytest.mark.spec("PV-23")
async def test_without_the_audit_nobody_reads_or_changes_what_is_not_active(harness: RecallHarness) -> None:
    have(harness, "p", PatternStatus.CANDIDATE)
    async with asking(harness, Role.HUMAN_ADMIN, "kate") as memory:
        await memory.all_patterns()
        harness.journal.owner("ALTER FUNCTION imem_audit_v1 RENAME TO away")
        for ask in (
            memory.all_patterns, lambda: memory.pattern_tests("p"), lambda: memory.text("Pattern", "p"),
            lambda: memory.propose_pattern(DEFINITION),
            lambda: memory.set_pattern_status("p", PatternStatus.REJECTED_HUMAN_OVERRIDE, reason="A slip."),
        ):  # fmt: skip
            with pytest.raises(ImemError) as refused:
                await ask()
            assert not isinstance(refused.value, BadInput)
    [row] = await harness.journal.rows("SELECT state, request FROM lifecycle WHERE kind = 'pattern'")
    assert row == {"state": "candidate", "request": None}
