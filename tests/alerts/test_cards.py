"""What people see of alerts, and what acknowledging one does."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from imem.alerts.store import Severity, close_alerts
from imem.cli import app
from imem.journal.actors import Action, Actor, Resource, ResourceType, allowed
from imem.journal.settings import Role, Settings
from tests.servers import in_database

from .conftest import NEVER, PERSON, AlertHarness, Collecting, failure


async def test_one_card_for_each_subject(harness: AlertHarness) -> None:
    """Three alerts about one, one about another; the worst of a subject colours its card."""
    await harness.say(
        failure("company:A"),
        failure("company:A", kind="DAY_3", severity=Severity.MEDIUM),
        failure("company:B"),
        failure("company:A", severity=Severity.CRITICAL),
    )
    board = await harness.alerts.cards(deadline=NEVER)

    assert [(card.subject, card.severity, len(card.alerts)) for card in board.cards] == [
        ("company:A", Severity.CRITICAL, 3), ("company:B", Severity.HIGH, 1),
    ]  # fmt: skip
    assert [alert.severity for alert in board.cards[0].alerts] == ["CRITICAL", "HIGH", "MEDIUM"]
    assert board.cards[0].analyses == ("company:A/1",)
    assert (board.total, board.banner) == (4, None)


async def test_an_alert_about_no_subject_has_a_card_of_its_analysis_or_its_own(harness: AlertHarness) -> None:
    alone = failure(subject="x", analysis_id=None)
    await harness.say(
        failure("x", analysis_id="a1"),
        *(type(alone)(**{**_values(one), "subject": None}) for one in (alone, failure("y"))),
    )
    subjects = {card.subject for card in (await harness.alerts.cards(deadline=NEVER)).cards}
    assert subjects == {"x", str(alone.alert_id), "y/1"}


def _values(alert: Any) -> dict[str, Any]:
    return {name: getattr(alert, name) for name in alert.__slots__}


async def test_above_three_cards_there_is_a_banner(harness: AlertHarness) -> None:
    for number in range(3):
        await harness.say(failure(f"company:{number}"))
    assert (await harness.alerts.cards(deadline=NEVER)).banner is None
    await harness.say(failure("company:3"))
    banner = (await harness.alerts.cards(deadline=NEVER)).banner
    assert banner is not None
    assert (banner.action, len(banner.analyses)) == ("Resume All", 4)


async def test_a_card_stands_until_what_it_is_about_is_over(harness: AlertHarness) -> None:
    """Acknowledging does not end it: only what it is about does, or nobody where it asks for nothing."""
    failed, reminder, lonely = (
        failure("a"),
        failure("b", kind="DAY_3", severity=Severity.MEDIUM),
        failure("c", about=None),
    )
    await harness.say(failed, reminder, lonely)
    for alert in (failed, reminder, lonely):
        found, first = await harness.alerts.acknowledge(alert.alert_id, PERSON, deadline=NEVER)
        assert first
        assert found.acknowledged_by == "ann"

    (card,) = (await harness.alerts.cards(deadline=NEVER)).cards
    assert (card.subject, card.acknowledged) == ("a", True)
    assert failed.about is not None
    async with harness.database.transaction(NEVER) as conn:
        await close_alerts(conn, failed.about)
    assert (await harness.alerts.cards(deadline=NEVER)).cards == ()


async def test_an_alert_of_a_failure_after_the_end_stays_until_it_is_acknowledged(harness: AlertHarness) -> None:
    """That all went well needs no card; that it did not has one, which acknowledging takes away."""
    about = uuid4()
    await harness.say(failure("a", about=about))
    async with harness.database.transaction(NEVER) as conn:
        await close_alerts(conn, about)
    bad = failure("a", kind="ANALYSIS_FAILED", severity=Severity.CRITICAL, about=about)
    await harness.say(failure("a", kind="ANALYSIS_RESUMED", severity=Severity.NORMAL, about=about), bad)

    (card,) = (await harness.alerts.cards(deadline=NEVER)).cards
    assert [alert.kind for alert in card.alerts] == ["ANALYSIS_FAILED"]
    channel = Collecting()
    await harness.send({"one": channel}, 0.1)
    told = sorted(notice.data["kind"] for notice in channel.got)
    assert told == ["AGENT_FAILURE", "ANALYSIS_FAILED", "ANALYSIS_RESUMED"]
    await harness.alerts.acknowledge(bad.alert_id, PERSON, deadline=NEVER)
    assert (await harness.alerts.cards(deadline=NEVER)).cards == ()


async def test_acknowledging_is_a_write_with_an_actor_and_nothing_else(harness: AlertHarness) -> None:
    """One audit row, however often; who was first stays; no other row of anything changes."""
    alert = failure()
    await harness.say(alert)
    before = await harness.rows("SELECT * FROM event")
    ended = await asyncio.gather(
        *(harness.alerts.acknowledge(alert.alert_id, Actor(name, Role.HUMAN_ADMIN), deadline=NEVER) for name in "abcd")
    )
    assert sorted(first for _, first in ended) == [False] * 3 + [True]
    (winner,) = [found.acknowledged_by for found, first in ended if first]
    assert {found.acknowledged_by for found, _ in ended} == {winner}
    audit = await harness.rows("SELECT * FROM memory_access_audit WHERE action = 'acknowledge'")
    assert [(row["actor_id"], row["resource_id"]) for row in audit] == [(winner, f"alert {alert.alert_id}")]
    assert await harness.rows("SELECT * FROM event") == before


def test_people_acknowledge() -> None:
    resource = Resource(ResourceType.WORKFLOW, "alert x", owner="me")
    assert [role for role in Role if allowed(Actor("me", role), resource, Action.ACKNOWLEDGE)] == [Role.HUMAN_ADMIN]


async def test_unacknowledged_alerts_come_first(harness: AlertHarness) -> None:
    seen, escalated, new = failure("a"), failure("b"), failure("c")
    await harness.say(seen, escalated)
    await harness.alerts.acknowledge(seen.alert_id, PERSON, deadline=NEVER)
    for minutes in (0.1, 91):
        await harness.send({"one": Collecting()}, minutes)
    await harness.say(new)
    board = await harness.alerts.cards(deadline=NEVER)
    assert [(card.subject, card.acknowledged, card.escalated) for card in board.cards] == [
        ("b", False, True), ("c", False, False), ("a", True, False),
    ]  # fmt: skip


# The command


def run(
    harness: AlertHarness, stack: Any, monkeypatch: pytest.MonkeyPatch, *words: str, role: str = "human_admin"
) -> Any:
    """Run the command as a person would, against the test's database."""
    settings: Settings = stack.settings
    changed = settings.model_copy(
        update={
            **in_database(settings, harness.url),
            "neo4j_url": "bolt://127.0.0.1:1",
            "role": Role(role),
            "actor": "ann",
        }
    )
    monkeypatch.setattr(Settings, "read", lambda: changed)
    return CliRunner().invoke(app, ["alerts", *words])


async def _in_a_thread(*args: Any, **named: Any) -> Any:
    return await asyncio.to_thread(run, *args, **named)


async def test_the_command_shows_cards(
    harness: AlertHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = await _in_a_thread(harness, light_stack, monkeypatch)
    assert (empty.exit_code, empty.output) == (0, "Nothing needs attention.\n")
    alert = failure("company:NW")
    await harness.say(alert, *(failure(f"company:{number}") for number in range(3)))

    shown = await _in_a_thread(harness, light_stack, monkeypatch)
    as_json = await _in_a_thread(harness, light_stack, monkeypatch, "--json")

    assert shown.exit_code == 0
    assert "4 subjects need attention. Resume All: 4 analyses." in shown.output
    assert "company:NW  HIGH  new" in shown.output
    assert f"id {alert.alert_id}" in shown.output
    assert "40.0 % done, phase valuation, day 0, checkpoint 00000000-0000-0000-0000-000000000007" in shown.output
    assert "to do: three" in shown.output
    document = json.loads(as_json.output)
    assert document["banner"]["action"] == "Resume All"
    assert len(document["cards"]) == 4
    assert document["cards"][0]["alerts"][0]["payload"]["completed"] == ["one", "two"]


async def test_the_command_acknowledges(
    harness: AlertHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert = failure()
    await harness.say(alert)

    first = await _in_a_thread(harness, light_stack, monkeypatch, "ack", str(alert.alert_id))
    second = await _in_a_thread(harness, light_stack, monkeypatch, "ack", str(alert.alert_id), "--json")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.output.startswith("Acknowledged: AGENT_FAILURE of company:NW/1.")
    assert json.loads(second.output)["acknowledged_now"] is False
    assert await harness.one("SELECT acknowledged_by FROM workflow.alert") == "ann"


@pytest.mark.parametrize("word", ["no-id", "6f1c9a52-58f3-4f0c-9c1f-2f4f4e4cb0a1"])
async def test_the_command_knows_a_wrong_id(
    harness: AlertHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    ended = await _in_a_thread(harness, light_stack, monkeypatch, "ack", word)
    assert ended.exit_code == 2


async def test_an_agent_may_not_acknowledge(
    harness: AlertHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor read everybody's: denied, and the denial is recorded."""
    alert = failure()
    await harness.say(alert)
    for words in ((), ("ack", str(alert.alert_id))):
        ended = await _in_a_thread(harness, light_stack, monkeypatch, *words, role="agent")
        assert ended.exit_code == 1
    assert await harness.one("SELECT acknowledged_by FROM workflow.alert") is None
    assert await harness.one("SELECT count(*) FROM memory_access_audit WHERE outcome = 'denied'") == 2


async def test_what_was_stored_does_not_steer_a_terminal(
    harness: AlertHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.say(failure("evil\x1b[2J", payload={"reason": "\x1b]0;x\x07", "pending": ["\x1b[31m"]}))
    shown = await _in_a_thread(harness, light_stack, monkeypatch)
    assert "\x1b" not in shown.output
