"""Failures: what each does, when gates make it wait, and when several are one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.checkpoints.model import AgentLease
from imem.journal.errors import BadInput, PostgresUnavailable

from .world import PERSON, World, soon

CRASH = AgentFailure(kind=FailureKind.CRASH, message="ZeroDivisionError: 17")
QUOTA = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)


async def fails(world: World, analysis_id: str, failure: AgentFailure = CRASH, **named: Any) -> AgentLease:
    """Have an agent that fails: it reports, gives its lease up, and ends."""
    lease = await world.begin(analysis_id, stock_id=f"company:{analysis_id}", **named)
    await world.incidents.report(analysis_id, lease.agent_type, failure, deadline=soon())
    await world.release(lease)
    return lease


@pytest.mark.spec("CK-41")
async def test_a_failure_pauses_and_its_alert_says_all(world: World) -> None:
    await fails(world, "a-1")
    await world.round()

    row = await world.pause_row("a-1")
    assert (row["status"], row["pause_trigger"], row["failed_agent"]) == ("PAUSED", "AUTO_TIER2", "business_research")
    (alert,) = await world.rows("SELECT * FROM workflow.alert")
    names = world.definitions.of_type("business_research").names
    assert (alert["kind"], alert["about"], alert["subject"]) == ("AGENT_FAILURE", row["id"], "company:a-1")
    payload = alert["payload"]
    assert (payload["progress_pct"], payload["completed"], payload["pending"], payload["phase"], payload["day"]) == (
        40.0, list(names[:2]), list(names[2:]), names[2], 0,
    )  # fmt: skip
    assert payload["checkpoint_id"] is not None
    assert payload["message"] == CRASH.message
    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert resumed.plan.to_dict()["restart"] == {"business_research": "checkpoint"}


@pytest.mark.spec("CK-41")
async def test_no_pause_without_its_alert_and_no_alert_without_its_pause(world: World) -> None:
    """The alert cannot be raised: there is no pause either, and the other way round."""
    lease = await world.begin("a-1")
    await world.release(lease)
    world.owner("ALTER TABLE workflow.alert ADD CONSTRAINT never CHECK (false) NOT VALID")
    with pytest.raises(Exception, match="Postgres refused a statement"):
        await world.pauses.pause_analysis("a-1", "Now.", by=PERSON, deadline=soon())
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert await world.rows("SELECT FROM memory_access_audit WHERE action = 'pause'") == []
    world.owner("ALTER TABLE workflow.alert DROP CONSTRAINT never")

    world.owner("ALTER TABLE memory_access_audit_default ADD CONSTRAINT never CHECK (false) NOT VALID")
    for row in await world.rows(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'memory_access_audit'::regclass AND c.relname <> 'memory_access_audit_default'"
    ):
        world.owner(f"ALTER TABLE {row['relname']} ADD CONSTRAINT never CHECK (false) NOT VALID")
    with pytest.raises(Exception, match="Postgres refused a statement"):
        await world.pauses.pause_analysis("a-1", "Now.", by=PERSON, deadline=soon())
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert await world.alerts() == []


async def test_the_same_failure_reported_twice_is_one(world: World) -> None:
    lease = await world.begin("a-1")
    failure_id = uuid4()
    await asyncio.gather(
        *(
            world.incidents.report("a-1", lease.agent_type, CRASH, failure_id=failure_id, deadline=soon())
            for _ in range(4)
        )
    )

    assert (await world.failure())["pause_id"] == (await world.pause_row("a-1"))["id"]
    assert await world.alerts() == ["AGENT_FAILURE"]


async def test_further_failures_join_the_pause(world: World) -> None:
    """One pause, one alert, both agents among its reasons, both restart."""
    leases = [await world.begin("a-1", name) for name in ("business_research", "financial_analyst")]
    for lease in leases:
        await world.incidents.report("a-1", lease.agent_type, CRASH, deadline=soon())
        await world.release(lease)
    await world.round()

    assert len(await world.rows("SELECT FROM workflow.paused_analyses")) == 1
    assert await world.alerts() == ["AGENT_FAILURE"]
    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert sorted(resumed.plan.to_dict()["restart"]) == ["business_research", "financial_analyst"]


async def test_a_retry_does_nothing_but_say_when(world: World) -> None:
    lease = await world.begin("a-1")

    await world.incidents.report(
        "a-1", lease.agent_type, AgentFailure(kind=FailureKind.QUOTA, message="429", attempt=2), deadline=soon()
    )

    found = await world.failure()
    assert (found["class"], found["pause_id"]) == ("retry", None)
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert await world.alerts() == []


async def test_a_failure_of_the_third_class_ends_the_analysis(world: World) -> None:
    lease = await world.begin("a-1")

    await world.incidents.report(
        "a-1", lease.agent_type, AgentFailure(kind=FailureKind.DELISTED, message="Delisted."), deadline=soon()
    )

    assert (await world.failure())["class"] == "fail"
    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert (state.status, state.outcome) == (None, "failed")
    assert await world.alerts() == ["ANALYSIS_FAILED"]
    assert await world.leases.stop_reason("a-1", deadline=soon()) == "failed"


async def test_a_failure_waits_for_a_gate_and_is_announced_at_once(world: World) -> None:
    """The person at the gate is not disturbed; when it is answered, the analysis is paused, under the same alert."""
    lease = await world.begin("a-1")
    world.gate()
    await world.incidents.report("a-1", lease.agent_type, CRASH, deadline=soon())
    await world.release(lease)
    await world.round()
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert await world.alerts() == ["AGENT_FAILURE"]

    world.gate(state="VALIDATED")
    await world.round()
    await world.round()

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    assert await world.alerts() == ["AGENT_FAILURE"]


# Failures with one cause


@pytest.mark.spec("CK-42")
async def test_the_third_failure_of_one_cause_makes_a_batch_of_what_is_paused(world: World) -> None:
    """Three pauses, one batch, one checkpoint an agent; a late one joins; the pattern stands beside its hash."""
    for number in range(3):
        await fails(world, f"a-{number}", QUOTA)
        await world.round()
    await world.round()

    (batch,) = await world.rows("SELECT * FROM workflow.batch_pause_operations")
    pauses = await world.rows("SELECT * FROM workflow.paused_analyses")
    assert len(pauses) == 3
    assert {row["batch_id"] for row in pauses} == {batch["id"]}
    assert {row["status"] for row in pauses} == {"PAUSED"}
    assert len(await world.rows("SELECT FROM workflow.agent_checkpoints WHERE kind = 'pause'")) == 3
    (correlation,) = await world.rows("SELECT * FROM workflow.failure_correlations")
    assert correlation["pattern"] == "quota | api.example"
    assert correlation["external"]
    assert sorted(await world.alerts()) == ["AGENT_FAILURE"] * 3 + ["FAILURES_CORRELATED"]
    await fails(world, "a-late", QUOTA, agent_type="valuation")
    await world.round()
    await world.round()
    assert (await world.pause_row("a-late"))["batch_id"] == batch["id"]
    status = await world.batches.get_batch_status(batch["id"], deadline=soon())
    assert (status.total, status.paused, status.failed, status.status) == (4, 4, 0, "COMPLETED")
    assert len(await world.rows("SELECT FROM workflow.failure_correlations")) == 1


@pytest.mark.spec("CK-42")
async def test_failures_of_one_cause_at_the_same_moment_make_one_batch(world: World) -> None:
    leases = [await world.begin(f"a-{number}", stock_id=f"company:{number}") for number in range(5)]

    await asyncio.gather(
        *(world.incidents.report(lease.analysis_id, lease.agent_type, QUOTA, deadline=soon()) for lease in leases)
    )
    for lease in leases:
        await world.release(lease)
    await asyncio.gather(*(world.round() for _ in range(3)))
    await world.round()

    assert len(await world.rows("SELECT FROM workflow.batch_pause_operations")) == 1
    assert len(await world.rows("SELECT FROM workflow.failure_correlations")) == 1
    pauses = await world.rows("SELECT status, batch_id FROM workflow.paused_analyses")
    assert len(pauses) == 5
    assert {row["status"] for row in pauses} == {"PAUSED"}
    assert None not in {row["batch_id"] for row in pauses}


async def test_failures_far_apart_or_of_several_causes_are_not_one(world: World) -> None:
    for number in range(3):
        await world.later(timedelta(minutes=6 * number))
        await fails(world, f"a-{number}", QUOTA)
    for number in range(3):
        await fails(
            world,
            f"b-{number}",
            AgentFailure(kind=FailureKind.UPSTREAM, message="500", endpoint=f"api-{number}.example"),
        )
    await world.round()

    assert await world.rows("SELECT FROM workflow.failure_correlations") == []


async def test_one_that_fails_again_and_again_is_no_correlation(world: World) -> None:
    lease = await world.begin("a-1")
    for _ in range(4):
        await world.incidents.report("a-1", lease.agent_type, QUOTA, deadline=soon())

    assert await world.rows("SELECT FROM workflow.failure_correlations") == []


# Causes that are over


async def test_what_waited_for_a_cause_outside_resumes_when_it_is_over(world: World) -> None:
    """Without a person, and people are told; what failed for another reason as well stays paused."""
    for number in range(3):
        await fails(world, f"a-{number}", QUOTA)
    await world.incidents.report("a-2", "business_research", CRASH, deadline=soon())
    await world.round()
    (row,) = await world.rows("SELECT DISTINCT signature FROM workflow.agent_failures WHERE kind = 'quota'")

    pattern = await world.incidents.cause_resolved(row["signature"][:12], by=PERSON, deadline=soon())
    for _ in range(4):
        await world.round()

    assert pattern == "quota | api.example"
    states = {row["analysis_id"]: row for row in await world.rows("SELECT * FROM workflow.paused_analyses")}
    assert {name: row["status"] for name, row in states.items()} == {
        "a-0": "RESUMED", "a-1": "RESUMED", "a-2": "PAUSED",
    }  # fmt: skip
    assert states["a-0"]["auto_resume_attempts"] == 1
    assert (await world.alerts("a-0")).count("ANALYSIS_RESUMED") == 1
    (alert,) = await world.rows(
        "SELECT severity FROM workflow.alert WHERE kind = 'ANALYSIS_RESUMED' AND analysis_id = 'a-0'"
    )
    assert alert["severity"] == "NORMAL"


async def test_after_three_attempts_without_a_person_a_person_is_asked(world: World) -> None:
    """Each failure of such an attempt is critical; the fourth time nobody tries, and one alert says so."""
    await fails(world, "a-1", QUOTA)
    await world.round()
    (row,) = await world.rows("SELECT signature FROM workflow.agent_failures")

    class Away:
        async def recover(self, *_: Any, **__: Any) -> Any:
            raise PostgresUnavailable("away")

    kept = world.stores.recovery
    object.__setattr__(world.stores, "recovery", Away())
    for attempt in range(1, 4):
        for found in await world.rows("SELECT DISTINCT signature FROM workflow.agent_failures"):
            await world.incidents.cause_resolved(found["signature"], by=PERSON, deadline=soon())
        for _ in range(6):
            world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")
            await world.round()
        now = await world.pause_row("a-1")
        assert (now["status"], now["auto_resume_attempts"]) == ("PAUSED", attempt)
    object.__setattr__(world.stores, "recovery", kept)
    for found in await world.rows("SELECT DISTINCT signature FROM workflow.agent_failures"):
        await world.incidents.cause_resolved(found["signature"], by=PERSON, deadline=soon())
    for _ in range(3):
        await world.round()

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    failed = await world.rows("SELECT severity FROM workflow.alert WHERE kind = 'RESUME_FAILED'")
    assert [one["severity"] for one in failed] == ["CRITICAL"] * 3
    assert (await world.alerts()).count("RESUME_NEEDS_PERSON") == 1
    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    assert row["signature"]


@pytest.mark.parametrize("signature", ["", "0123456789abcdef", "short"])
async def test_a_cause_that_nothing_failed_with_is_refused(world: World, signature: str) -> None:
    await fails(world, "a-1", QUOTA)
    with pytest.raises(BadInput) as refused:
        await world.incidents.cause_resolved(signature, by=PERSON, deadline=soon())
    assert refused.value.field == "signature"


async def test_a_cause_within_is_for_a_person(world: World) -> None:
    await fails(world, "a-1", CRASH)
    (row,) = await world.rows("SELECT signature FROM workflow.agent_failures")
    with pytest.raises(BadInput, match="no cause from outside"):
        await world.incidents.cause_resolved(row["signature"], by=PERSON, deadline=soon())


@pytest.mark.parametrize("message", ["", " ", "nul \x00", "half \ud800 a pair", "x" * 100_000, "\x1b[2J"])
async def test_whatever_a_failure_says_it_pauses(world: World, message: str) -> None:
    """A text that no store can hold, or none at all, must not keep an analysis running."""
    lease = await world.begin("a-1")

    await world.incidents.report(
        "a-1",
        lease.agent_type,
        AgentFailure(kind=FailureKind.CRASH, message=message, endpoint=message),
        deadline=soon(),
    )

    assert (await world.failure())["pause_id"] is not None
    assert await world.alerts() == ["AGENT_FAILURE"]


@pytest.mark.parametrize("ends", ["TIMED_OUT", "HARD_REJECTED"])
async def test_no_card_outlives_what_it_is_about(world: World, ends: str) -> None:
    """A failure was announced while a gate waited; then the gate itself paused, or ended, the analysis."""
    lease = await world.begin("a-1")
    world.gate()
    await world.incidents.report("a-1", lease.agent_type, CRASH, deadline=soon())
    await world.release(lease)
    world.gate(state=ends)
    for _ in range(3):
        await world.round()
    if ends == "TIMED_OUT":
        await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    (alert,) = await world.rows("SELECT closed_at FROM workflow.alert WHERE kind = 'AGENT_FAILURE'")
    assert alert["closed_at"] is not None
