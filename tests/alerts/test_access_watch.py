"""Many denials within an hour, and statements that nobody scores, each raise one alert until it is over."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from imem.alerts.access_watch import DENIALS, LATE, SKIPS, watch_access
from imem.alerts.store import NewAlert, Severity, close_alerts, raise_once
from imem.jobs.due import SET_ASIDE
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.errors import PermissionDenied
from imem.journal.events.ids import id_of, new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from tests.contents import no_audit
from tests.recall import facts

from .conftest import NEVER, AlertHarness


async def watched(harness: AlertHarness) -> dict[str, Any]:
    return await watch_access(harness.pipelines, deadline=NEVER)


async def deny(harness: AlertHarness, times: int) -> None:
    """Have an agent ask for what it may not read."""
    gateway = Gateway(harness.database, Actor("nosy", Role.AGENT))
    for _ in range(times):
        try:
            await gateway.authorize(Resource(ResourceType.AUDIT), Action.READ, deadline=NEVER)
        except PermissionDenied:
            continue
        raise AssertionError("an agent may read no audit")


async def raised(harness: AlertHarness) -> list[tuple[str, str]]:
    board = await harness.alerts.cards(deadline=NEVER)
    return [(one.kind, one.payload["reason"]) for card in board.cards for one in card.alerts]


async def test_more_than_ten_denials_an_hour_raise_an_alert(harness: AlertHarness) -> None:
    """Ten do not; an hour later it is over."""
    await deny(harness, 10)
    assert (await watched(harness))["denials"] == 10
    assert await raised(harness) == []
    await deny(harness, 1)
    await watched(harness)
    await watched(harness)
    assert await raised(harness) == [(DENIALS, "11 calls were denied within an hour, most of them by nosy.")]
    later = Database(harness.admin_url, size=2, options="-c imem.clock_shift=3660s")
    assert (await watch_access(later, deadline=NEVER))["denials"] == 0
    await later.close()
    assert await raised(harness) == []


async def test_an_audit_that_fails_is_noticed_until_it_works(harness: AlertHarness) -> None:
    """Denials leave no trace then, every write is refused, and so is an alert; what is tried leaves no row."""

    def failing() -> float | None:
        return REGISTRY.get_sample_value("audit_failing_gauge")

    await watched(harness)
    assert failing() == 0
    with no_audit(harness.admin_url):
        await deny(harness, 11)
        with capture_logs() as logs:
            await watched(harness)
        assert failing() == 1
        assert [one["event"] for one in logs] == ["audit.failing"]
    await watched(harness)
    assert failing() == 0
    assert await raised(harness) == []
    with psycopg.connect(harness.admin_url) as conn:
        assert conn.execute("SELECT count(*) FROM memory_access_audit").fetchone() == (0,)


async def test_scores_that_wait_raise_an_alert_until_they_are_there(harness: AlertHarness) -> None:
    assert (await watched(harness))["settled_lag_s"] < 60
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO due_row (queue, kind, key, created_at)"
            " VALUES ('credibility', 'Outcome', 'o', now() - interval '20 minutes')"
        )
        assert (await watched(harness))["settled_lag_s"] >= 1200
        await watched(harness)
        assert await raised(harness) == [
            (LATE, "The event recorded 20 minutes ago is not scored yet: does a worker run?")
        ]
        conn.execute("DELETE FROM due_row")
    await watched(harness)
    assert await raised(harness) == []


async def test_a_status_of_a_pattern_past_a_step_raises_an_alert(harness: AlertHarness) -> None:
    """Its first status raises none, nor do steps of the lifecycle, in whichever order they are recorded."""
    curator = Gateway(harness.pipelines, Actor("librarian", Role.KNOWLEDGE_BASE_AGENT, may_import=True))

    async def say(*lines: facts.Line) -> None:
        entries = [entry_of(parse_line(orjson.dumps(line), needs_known_at=True, writer="patterns")) for line in lines]
        receipts = await curator.append(entries, deadline=NEVER)
        assert not any(one.verdict.refused for one in receipts), receipts

    brought = [facts.pattern("p", 0), facts.pattern("q", 0), facts.pattern_status("q", 0, "active")]
    steps = ["candidate", "statistically_validated", "human_approved", "active", "deprecated"]
    told = [facts.pattern_status("p", nth, status) for nth, status in enumerate(steps)]
    await say(*brought, *reversed(told), facts.pattern_status("p", 9, "rejected_human_override"))
    await watched(harness)
    assert await raised(harness) == []
    await say(facts.pattern_status("q", 1, "candidate"))
    await say(facts.pattern_status("p", 10, "active"))
    await watched(harness)
    reason = (
        "2 statuses of patterns were recorded within a day that no step leads to, last of p: "
        "from rejected_human_override to active."
    )
    assert await raised(harness) == [(SKIPS, reason)]
    async with harness.pipelines.transaction(NEVER) as conn:
        assert await close_alerts(conn, id_of("pattern statuses")) == 1
    await watched(harness)
    assert await raised(harness) == [], "an acknowledged alert is not raised again"
    # A backdated status changes from which one the next follows.
    await say(facts.pattern_status("q", 0.5, "deprecated"))
    await watched(harness)
    reason = reason.replace("p: from rejected_human_override to active", "q: from deprecated to candidate")
    assert await raised(harness) == [(SKIPS, reason)]
    async with harness.after(24 * 60 + 1) as later:
        await watch_access(later, deadline=NEVER)
    assert await raised(harness) == []


@pytest.mark.spec("AC-3")
@pytest.mark.parametrize("kind", [DENIALS, LATE, SET_ASIDE, SKIPS])
async def test_the_application_silences_no_alert_of_a_pipeline(harness: AlertHarness, kind: str) -> None:
    """It raises none of these kinds, and closes none that stands; one of another kind stands for none of them."""
    raised_by = "SELECT workflow.raise_alert_v1(gen_random_uuid(), %s, 'HIGH', NULL, NULL, %s, '{}')"
    about = id_of("a matter", kind)
    with psycopg.connect(harness.url, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"only a pipeline raises {kind}"):
            conn.execute(raised_by, (kind, about))
        conn.execute(raised_by, ("OTHER", about))
    async with harness.pipelines.transaction(NEVER) as conn:
        assert await raise_once(conn, NewAlert(alert_id=new_id(), kind=kind, severity=Severity.HIGH, about=about))
    with psycopg.connect(harness.url, autocommit=True) as conn:
        for closing in (
            "UPDATE workflow.alert SET closed_at = now() WHERE about = %s",
            "SELECT workflow.close_alerts_v1(%s)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"pipeline closes {kind}"):
                conn.execute(closing, (about,))
    async with harness.pipelines.transaction(NEVER) as conn:
        assert await close_alerts(conn, about) == 2


async def test_another_alert_about_denials_does_not_stand_for_theirs(harness: AlertHarness) -> None:
    async with harness.database.transaction(NEVER) as conn:
        about = id_of("denials")
        await raise_once(conn, NewAlert(alert_id=new_id(), kind="OTHER", severity=Severity.HIGH, about=about))
    await deny(harness, 11)
    await watched(harness)
    board = await harness.alerts.cards(deadline=NEVER)
    assert sorted(one.kind for card in board.cards for one in card.alerts) == [DENIALS, "OTHER"]
