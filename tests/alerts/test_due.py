"""What is sent when: at once, again every half hour, as an escalation, and as a summary where it would be too much."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from imem.alerts.notifiers import Attempt, DeliveryOutcome
from imem.alerts.sending import LONGEST_BACKOFF_S, LONGEST_RETRY_AFTER_S, SUMMARY_ALERTS, backoff_s, send_due
from imem.alerts.store import Severity, close_alerts

from .conftest import NEVER, PERSON, AlertHarness, Collecting, failure

MESSAGES = "SELECT reason, number, state FROM workflow.alert_send ORDER BY created_at, reason DESC"


async def test_a_failure_leaves_at_once_with_what_people_need(harness: AlertHarness) -> None:
    """The first pass sends it, once, to every channel."""
    alert = failure()
    await harness.say(alert)
    one, other = Collecting(), Collecting()

    done = await harness.send({"one": one, "other": other})
    again = await harness.send({"one": one, "other": other})

    assert (done.planned, done.taken, again.planned, again.taken) == (1, 2, 0, 0)
    assert one.types == other.types == ["alert.raised"]
    (notice,) = one.got
    assert notice.id != other.got[0].id
    assert notice.data["alert_id"] == str(alert.alert_id)
    assert (notice.data["subject"], notice.data["analysis_id"]) == (alert.subject, alert.analysis_id)
    payload = notice.data["payload"]
    assert payload["progress_pct"] == 40.0
    assert payload["completed"] == ["one", "two"]
    assert payload["pending"] == ["three"]
    assert (payload["phase"], payload["day"], payload["checkpoint_id"]) == (
        "valuation", 0, "00000000-0000-0000-0000-000000000007",
    )  # fmt: skip


async def test_again_every_half_hour_and_escalated_after_ninety_minutes(harness: AlertHarness) -> None:
    """Looked at every five minutes for three hours: three repetitions, at 30, 60 and 90, and one escalation at 90."""
    await harness.say(failure())
    channel = Collecting()
    seen: list[tuple[int, str, int]] = []
    for minutes in range(0, 181, 5):
        before = len(channel.got)
        # A pass comes a moment after the full minute, as the alert came a moment before it.
        await harness.send({"one": channel}, minutes + 0.1)
        seen += [(minutes, notice.type, notice.data["resend"]) for notice in channel.got[before:]]

    assert [one for one in seen if one[1] != "alert.escalated"] == [
        (0, "alert.raised", 0), (30, "alert.resent", 1), (60, "alert.resent", 2), (90, "alert.resent", 3),
    ]  # fmt: skip
    assert [one for one in seen if one[1] == "alert.escalated"] == [(90, "alert.escalated", 3)]
    (row,) = await harness.rows(
        "SELECT resends, escalated_at IS NOT NULL AS escalated, next_due_at FROM workflow.alert"
    )
    assert row == {"resends": 3, "escalated": True, "next_due_at": None}


async def test_repetitions_that_were_missed_are_not_made_up_for(harness: AlertHarness) -> None:
    """Nobody looked for two hours: one repetition and the escalation, and then silence."""
    await harness.say(failure())
    channel = Collecting()
    for minutes in (0.1, 120, 120.2, 151, 300):
        await harness.send({"one": channel}, minutes)
    assert sorted(channel.types) == ["alert.escalated", "alert.raised", "alert.resent"]


async def test_half_hours_count_from_the_first_time_anybody_was_told(harness: AlertHarness) -> None:
    """Nothing ran for two hours: it is told then, and again half an hour later, not at once."""
    await harness.say(failure())
    channel = Collecting()
    for minutes in (120, 120.2, 149, 150.1):
        await harness.send({"one": channel}, minutes)
    assert channel.types == ["alert.raised", "alert.resent"]


@pytest.mark.parametrize("kind", ["DAY_3", "DAY_7", "AUTO_RESUMED"])
async def test_a_reminder_is_told_once(harness: AlertHarness, kind: str) -> None:
    await harness.say(failure(kind=kind, severity=Severity.HIGH))
    channel = Collecting()
    for minutes in (0.1, 31, 61, 91, 121):
        await harness.send({"one": channel}, minutes)
    assert channel.types == ["alert.raised"]


async def test_what_was_acknowledged_is_not_sent_again(harness: AlertHarness) -> None:
    """Nor is a repetition that was planned and not yet begun."""
    first, second = failure("a"), failure("b")
    await harness.say(first, second)
    channel = Collecting()
    await harness.send({"one": channel}, 0.1)
    await harness.alerts.acknowledge(first.alert_id, PERSON, deadline=NEVER)
    async with harness.after(31) as later, later.transaction(NEVER) as conn:
        await conn.execute("SELECT workflow.plan_alerts_v1('{one}')")
    await harness.alerts.acknowledge(second.alert_id, PERSON, deadline=NEVER)
    for minutes in (32, 61, 91):
        await harness.send({"one": channel}, minutes)

    assert channel.types == ["alert.raised", "alert.raised"]
    states = [(row["reason"], row["state"]) for row in await harness.rows(MESSAGES)]
    assert sorted(states) == [("raised", "sent"), ("raised", "sent"), ("resent", "dropped")]


async def test_what_is_over_is_told_once_and_no_more(harness: AlertHarness) -> None:
    """A pause that ended within the same breath was one all the same."""
    alert = failure()
    await harness.say(alert)
    assert alert.about is not None
    async with harness.database.transaction(NEVER) as conn:
        await close_alerts(conn, alert.about)
    channel = Collecting()
    for minutes in (0.1, 31, 91):
        await harness.send({"one": channel}, minutes)
    assert channel.types == ["alert.raised"]


async def test_what_was_acknowledged_before_anybody_was_told_is_told_once(harness: AlertHarness) -> None:
    alert = failure()
    await harness.say(alert)
    await harness.alerts.acknowledge(alert.alert_id, PERSON, deadline=NEVER)
    channel = Collecting()
    for minutes in (0.1, 31):
        await harness.send({"one": channel}, minutes)
    assert channel.types == ["alert.raised"]


async def test_beyond_ten_in_five_minutes_come_summaries(harness: AlertHarness) -> None:
    """Thirty alerts: ten messages, one summary of twenty, and thirty cards; the next five minutes begin anew."""
    await harness.say(*(failure(f"company:{number:02}") for number in range(30)))
    channel = Collecting()

    await harness.send({"one": channel}, 0.1)

    assert sorted(channel.types) == ["alert.raised"] * 10 + ["alerts.summary"]
    (summary,) = [notice for notice in channel.got if notice.type == "alerts.summary"]
    assert (summary.data["count"], summary.data["by_kind"]) == (20, {"AGENT_FAILURE": 20})
    assert summary.data["by_severity"] == {"HIGH": 20}
    told = {notice.data["subject"] for notice in channel.got if notice.type == "alert.raised"}
    assert told | set(summary.data["subjects"]) == {f"company:{number:02}" for number in range(30)}
    assert len((await harness.alerts.cards(deadline=NEVER)).cards) == 30

    async with harness.after(6) as later, later.transaction(NEVER) as conn:
        from imem.alerts.store import raise_alert

        await raise_alert(conn, failure("company:later"))
    await harness.send({"one": channel}, 6.1)
    assert channel.types[-1] == "alert.raised"


async def test_summaries_come_at_most_every_ten_seconds(harness: AlertHarness) -> None:
    """A storm that goes on: what comes after a summary is gathered for the next."""
    await harness.say(*(failure(f"a{number}") for number in range(12)))
    channel = Collecting()
    await harness.send({"one": channel}, 0.1)
    for number in range(5):
        await harness.say(failure(f"b{number}"))
        await harness.send({"one": channel}, 0.1)
    assert channel.types.count("alerts.summary") == 1
    await harness.send({"one": channel}, 0.1 + 11 / 60)
    (_, second) = [notice for notice in channel.got if notice.type == "alerts.summary"]
    assert second.data["subjects"] == [f"b{number}" for number in range(5)]


async def test_a_summary_names_so_many_and_counts_all(harness: AlertHarness) -> None:
    """A thousand alerts at once: ten messages, and summaries of at most five hundred each."""
    async with harness.database.transaction(NEVER) as conn:
        from imem.alerts.store import raise_alert

        for number in range(1000):
            await raise_alert(conn, failure(f"company:{number}"))
    channel = Collecting()
    for minutes in (0.1, 0.4, 0.7, 1.0):
        await harness.send({"one": channel}, minutes)
    summaries = [notice for notice in channel.got if notice.type == "alerts.summary"]
    assert sum(notice.data["count"] for notice in summaries) == 990
    assert all(
        len(notice.data["alerts"]) <= SUMMARY_ALERTS and len(notice.data["subjects"]) <= SUMMARY_ALERTS
        for notice in summaries
    )
    assert channel.types.count("alert.raised") == 10


async def test_many_passes_at_once_send_once(harness: AlertHarness) -> None:
    """Eight processes plan and send together: each message leaves once."""
    await harness.say(*(failure(f"a{number}") for number in range(9)))
    channel = Collecting()
    await asyncio.gather(*(send_due(harness.database, {"one": channel}, until=NEVER) for _ in range(8)))
    await send_due(harness.database, {"one": channel}, until=NEVER)
    assert sorted(notice.data["subject"] for notice in channel.got) == [f"a{number}" for number in range(9)]


async def test_what_a_channel_does_not_take_is_tried_again_later_each_time(harness: AlertHarness) -> None:
    """Under the same id and with the same bytes, and given up after a day; the other channel has it already."""
    await harness.say(failure())
    away, fine = Collecting(Attempt(DeliveryOutcome.RETRY, "It is away.")), Collecting()
    channels = {"away": away, "fine": fine}
    await harness.send(channels, 0.1)
    await harness.send(channels, 0.2)
    assert len(away.got) == 1
    await harness.send(channels, 0.3)
    assert len(away.got) == 2
    await harness.alerts.acknowledge(away.got[0].data["alert_id"], PERSON, deadline=NEVER)
    await harness.send(channels, 60)

    assert len(fine.got) == 1
    assert len({notice.id for notice in away.got}) == 1
    assert len({notice.body() for notice in away.got}) == 1
    board = await harness.alerts.cards(deadline=NEVER)
    assert [(one.channel, one.waiting, one.error) for one in board.undelivered] == [("away", 1, "It is away.")]

    await harness.send(channels, 25 * 60)
    await harness.send(channels, 27 * 60)
    assert await harness.one("SELECT state FROM workflow.alert_send WHERE channel = 'away'") == "failed"
    assert len(away.got) == 4


async def test_a_sender_whose_claim_has_run_out_does_not_disturb_the_next(harness: AlertHarness) -> None:
    """It was slow, and another has the message by now: what it says about its failure counts no more; success does."""
    await harness.say(failure(kind="DAY_3"))
    async with harness.database.transaction(NEVER) as conn:
        await conn.execute("SELECT workflow.plan_alerts_v1('{one}')")
    claim = {"channels": ["one"], "seconds": -1.0, "limit": 5}
    (slow,) = await harness.database.named("claim_sends", claim, deadline=NEVER)
    (second,) = await harness.database.named("claim_sends", {**claim, "seconds": 60.0}, deadline=NEVER)
    assert (slow["attempts"], second["attempts"]) == (1, 2)
    given = {"send_id": slow["send_id"], "attempts": 1, "never": True, "error": "slow", "after_s": 0.0}

    assert await harness.database.named("settle_unsent", given, deadline=NEVER) == []

    assert await harness.database.named("claim_sends", claim, deadline=NEVER) == []
    assert await harness.one("SELECT state FROM workflow.alert_send") == "due"
    assert await harness.database.execute("settle_sent", {"send_id": slow["send_id"]}, deadline=NEVER) == 1


async def test_a_channel_that_wants_no_more_is_not_asked_again(harness: AlertHarness) -> None:
    await harness.say(failure(kind="DAY_3", severity=Severity.MEDIUM))
    gone = Collecting(Attempt(DeliveryOutcome.NEVER, "Gone."))
    for minutes in (0.1, 5, 60):
        await harness.send({"gone": gone}, minutes)
    assert len(gone.got) == 1
    assert await harness.one("SELECT state FROM workflow.alert_send") == "failed"


async def test_a_channel_without_a_program_keeps_what_it_has_to_get(harness: AlertHarness) -> None:
    """A webhook that is configured again gets what was planned for it; another process sends only its own."""
    await harness.say(failure())
    async with harness.database.transaction(NEVER) as conn:
        await conn.execute("SELECT workflow.plan_alerts_v1('{one,other}')")
    one, other = Collecting(), Collecting()
    await harness.send({"one": one}, 0.1)
    assert (len(one.got), len(other.got)) == (1, 0)
    await harness.send({"other": other}, 0.2)
    assert (len(one.got), len(other.got)) == (1, 1)


def test_waits_grow_and_are_bounded() -> None:
    assert [backoff_s(attempts) for attempts in (1, 2, 3, 7, 500)] == [10, 20, 40, LONGEST_BACKOFF_S, LONGEST_BACKOFF_S]
    assert backoff_s(1, asked_s=120) == 120
    assert backoff_s(1, asked_s=10**9) == LONGEST_RETRY_AFTER_S


async def test_an_unknown_alert_is_named(harness: AlertHarness) -> None:
    from imem.journal.errors import BadInput

    with pytest.raises(BadInput) as caught:
        await harness.alerts.acknowledge(uuid4(), PERSON, deadline=NEVER)
    assert caught.value.field == "alert"
