"""The pages that show: subject, agents, knowledge, operations and audit, with something to show and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from imem.alerts.store import NewAlert, Severity, raise_alert
from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.memory import Memory
from imem.web.audit import SHOWN
from tests.credibility.conftest import World, finding, opened, outcome
from tests.imem.api.conftest import ADMIN
from tests.imem.ingest.test_memory import analysis
from tests.imem.ingest.test_memory import finding as found_by
from tests.imem.web.conftest import Office
from tests.patterns.parts import Lab, definition
from tests.postmortem.lessons.parts import go_on, lesson, record

LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
EVIL = "<script>alert(1)</script>\u202e"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e"


@pytest_asyncio.fixture
async def world(office: Office) -> AsyncIterator[World]:
    harness = office.face.harness
    async with opened(harness.settings, harness.url, harness.admin_url) as world:
        yield world


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/inbox", "No task waits."),
        ("/subject", "As this agent"),
        ("/agents", "No agent has a score"),
        ("/knowledge", "There is no pattern."),
        ("/operations", "Nothing needs attention."),
        ("/audit?actor=nobody", "There is no such entry."),
        ("/task/next", "No task waits."),
    ],
)
async def test_pages_without_anything_say_so(office: Office, path: str, says: str) -> None:
    browser = await office.signed_in("root", Role.HUMAN_ADMIN)
    page = await browser.get(path, follow_redirects=True)
    assert page.status_code == 200, page.text
    assert says in page.text
    assert "<h1>" in page.text


async def test_the_briefing_is_that_of_an_agent_on_any_day(office: Office) -> None:
    memory = office.face.server.memory_of(ADMIN)
    await memory.record_analysis(analysis(summary=EVIL), findings=[found_by("ann")])
    browser = await office.signed_in()
    page = await browser.get("/subject", params={"name": "MU"})
    assert page.status_code == 200, page.text
    assert "company:MU" in page.text
    assert "The briefing, as an agent gets it" in page.text
    assert "It rises." in page.text
    assert ESCAPED in page.text
    assert "<script>alert" not in page.text
    before = await browser.get("/subject", params={"name": "MU", "day": "2020-01-01"})
    assert "It rises." not in before.text
    wrong = await browser.get("/subject", params={"name": "MU", "day": "yesterday"})
    assert (wrong.status_code, "is no day" in wrong.text) == (422, True)
    unknown = await browser.get("/subject", params={"name": EVIL})
    assert unknown.status_code in {404, 422}
    assert "<script>alert" not in unknown.text


async def test_agents_have_records_with_intervals_and_reasons(office: Office, world: World) -> None:
    for week in range(1, 5):
        at = LONG_AGO + week * 7 * DAY
        await world.say(finding(f"f{week}", at - DAY, at, direction="positive", probability=0.7))
        await world.say(outcome(f"o{week}", at + DAY, at, 1.0))
    await world.settle()
    browser = await office.signed_in()
    page = await browser.get("/agents")
    assert page.status_code == 200, page.text
    assert "<bdi>ann</bdi>" in page.text
    assert 'role="img" aria-label="' in page.text
    one = await browser.get("/agent", params={"name": "ann", "domain": "flu"})
    assert one.status_code == 200, one.text
    assert "How the score follows" in one.text
    assert "<bdi>f4</bdi>" in one.text
    assert (await browser.get("/agents", params={"domain": "nothing"})).status_code == 200


async def test_patterns_are_withdrawn_with_a_reason_and_lessons_have_an_effect(office: Office, world: World) -> None:
    lab = Lab(world)
    await lab.history()
    await lab.propose(definition(name=EVIL))
    await lab.test()
    await record(world, lesson("alpha"))
    await go_on(world)
    key = definition(name=EVIL).key
    browser = await office.signed_in("root", Role.HUMAN_ADMIN)
    page = await browser.get("/knowledge")
    assert page.status_code == 200, page.text
    assert ESCAPED in page.text
    assert "<h3>Candidate (1)</h3>" in page.text
    assert "What alpha teaches" in page.text
    effect = await browser.get("/lesson", params={"id": "alpha"})
    assert effect.status_code == 200, effect.text
    assert "It was not applied." in effect.text

    [row] = await world.rows("SELECT key FROM lifecycle WHERE kind = 'pattern'")
    assert row["key"].startswith(key)
    blank = await browser.post("/pattern/withdraw", data={"id": row["key"], "reason": " "})
    assert blank.status_code == 422
    done = await browser.post("/pattern/withdraw", data={"id": row["key"], "reason": "It leaked."})
    assert (done.status_code, done.headers["location"]) == (303, "/knowledge")
    [row] = await world.rows("SELECT request FROM lifecycle WHERE kind = 'pattern'")
    assert (row["request"]["actor"], row["request"]["reason"]) == ("root", "It leaked.")


async def test_who_may_not_read_a_part_is_told_so_beside_the_others(office: Office) -> None:
    browser = await office.signed_in("dana", Role.REVIEWER)
    page = await browser.get("/knowledge")
    assert page.status_code == 200
    assert "dana (reviewer) may not validate patterns" in page.text
    assert "There is no lesson." in page.text
    assert (await browser.get("/audit")).status_code == 403
    assert 'href="/audit"' not in page.text
    refused = await browser.post("/pattern/withdraw", data={"id": "p", "reason": "Why not."})
    assert refused.status_code == 403


async def test_operations_show_alerts_and_pauses_and_end_them(office: Office, world: World) -> None:
    alert = NewAlert(
        alert_id=uuid4(), kind="DISK_FULL", severity=Severity.CRITICAL, subject=EVIL, payload={"reason": "No room."}
    )
    async with world.pipelines.transaction(Deadline.never()) as conn:
        await raise_alert(conn, alert)
    settings = office.face.harness.settings.model_copy(update={"actor": "ann", "role": Role.AGENT})
    async with (
        Memory.open(settings) as memory,
        memory.session("mu-1", analysis_id="mu-1", agent_type="screening", subject_id="company:MU") as session,
    ):
        await session.memory.set("plan", "read the filing")
    await office.face.server.memory_of(ADMIN).pauses.pause("mu-1", "Odd figures.")

    browser = await office.signed_in("root", Role.HUMAN_ADMIN)
    page = await browser.get("/operations")
    assert page.status_code == 200, page.text
    assert "The mode is <strong>" in page.text
    assert "No room." in page.text
    assert ESCAPED in page.text
    assert "Odd figures." in page.text

    done = await browser.post("/alert/acknowledge", data={"id": str(alert.alert_id)})
    assert done.status_code == 303, done.text
    assert (await browser.post("/pause/resume", data={"id": "mu-1"})).status_code == 303
    page = await browser.get("/operations")
    assert "No room." not in page.text
    assert "Odd figures." not in page.text
    assert await world.rows("SELECT acknowledged_by FROM workflow.alert WHERE kind = 'DISK_FULL'") == [
        {"acknowledged_by": "root"}
    ]
    assert (await browser.post("/pause/resume", data={"id": "mu-1"})).status_code == 409
    assert (await browser.post("/alert/acknowledge", data={"id": "x"})).status_code == 422


async def test_the_audit_goes_on_after_a_cursor_and_is_exported_whole(office: Office, world: World) -> None:
    world.owner(
        "INSERT INTO memory_access_audit"
        " (actor_id, actor_role, resource_type, resource_id, action, authorized, outcome)"
        " SELECT 'evil', 'agent', 'journal', 'r' || n, 'append', mod(n, 2) = 0, 'done' FROM generate_series(1, 250) n"
    )
    browser = await office.signed_in("root", Role.HUMAN_ADMIN)
    path, seen = "/audit?actor=evil", []
    while path:
        page = (await browser.get(path)).text
        rows = [part.partition("</bdi>")[0] for part in page.split("<bdi>journal: ")[1:]]
        assert len(rows) <= SHOWN
        seen += rows
        path = page.partition('href="/audit?')[2].partition('"')[0].replace("&amp;", "&")
        path = f"/audit?{path}" if "after=" in path else ""
    assert len(seen) == len(set(seen)) == 250
    exported = await browser.get("/audit.jsonl", params={"actor": "evil"})
    assert [json.loads(line)["resource_id"] for line in exported.text.splitlines()] == seen
    assert (await browser.get("/audit.jsonl", params={"actor": "root"})).text
    none = await browser.get("/audit", params={"actor": "evil", "until": "2020-01-01"})
    assert "There is no such entry." in none.text
    assert (await browser.get("/audit", params={"after": "x"})).status_code == 422
    assert (await browser.get("/audit", params={"since": "x"})).status_code == 422
