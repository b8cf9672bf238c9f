"""The webhook: a real HTTP server that takes, refuses, redirects, hangs and dies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from imem.alerts import sending
from imem.alerts.notifiers import (
    TOLERANCE_S,
    AlertMessage,
    DeliveryOutcome,
    LogNotifier,
    WebhookNotifier,
    notifiers_of,
    signed,
    signing_key,
    verify,
)
from imem.alerts.sending import send_due
from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, SettingsError
from imem.journal.settings import Settings
from tests.http_server import Answer, Asked, serving
from tests.killed_programs import printed

from .conftest import NEVER, AlertHarness, Collecting, failure
from .killed import SECRET

TOKEN = "t0ken-in-the-path"  # noqa: S105
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTICE = AlertMessage(UUID(int=5), "alert.raised", AT, {"alert_id": "x", "reason": "ü"})
TIMEOUT_MS = 5000


def soon() -> Deadline:
    return Deadline.after_ms(TIMEOUT_MS)


async def test_the_request_is_signed(harness: AlertHarness) -> None:
    """Computed here from the specification alone, over the very bytes that arrived."""
    with serving() as server:
        notifier = WebhookNotifier(f"{server.url}/{TOKEN}", SECRET, ManualClock(AT))
        assert (await notifier.send(NOTICE, deadline=soon())).outcome is DeliveryOutcome.DELIVERED

    (asked,) = server.asked
    assert asked.path == f"/{TOKEN}"
    assert asked.headers["webhook-id"] == str(NOTICE.id)
    assert asked.headers["webhook-timestamp"] == str(int(AT.timestamp()))
    content = f"{NOTICE.id}.{int(AT.timestamp())}.".encode() + asked.body
    expected = base64.b64encode(hmac.new(SECRET.encode(), content, hashlib.sha256).digest()).decode()
    assert asked.headers["webhook-signature"] == f"v1,{expected}"
    assert orjson.loads(asked.body) == {
        "type": "alert.raised", "timestamp": "2026-03-01T12:00:00+00:00", "data": {"alert_id": "x", "reason": "ü"},
    }  # fmt: skip
    assert verify(SECRET, asked.headers, asked.body, clock=ManualClock(AT))
    assert await harness.one("SELECT count(*) FROM workflow.alert_send") == 0


def test_a_secret_as_the_specification_writes_it() -> None:
    """The example of the Standard Webhooks specification: its secret, id, time and body make its signature."""
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_a_receiver_believes() -> None:
    """Its own secret, these bytes, this id, within five minutes; several signatures while a secret is changed."""
    clock = ManualClock(AT)
    headers = dict(signed(signing_key(SECRET), "id", int(AT.timestamp()), b"body"))
    assert verify(SECRET, headers, b"body", clock=clock)
    assert verify(
        SECRET, {**headers, "webhook-signature": f"v1,AAAA {headers['webhook-signature']}"}, b"body", clock=clock
    )
    for wrong in (
        {**headers, "webhook-id": "other"},
        {**headers, "webhook-timestamp": str(int(AT.timestamp()) + 1)},
        {**headers, "webhook-timestamp": "x"},
        {**headers, "webhook-timestamp": "9" * 30},
        {**headers, "webhook-signature": ""},
        {**headers, "webhook-signature": "v1,é"},
        {},
    ):
        assert not verify(SECRET, wrong, b"body", clock=clock)
    assert not verify(SECRET, headers, b"bodY", clock=clock)
    assert not verify("another secret of ours", headers, b"body", clock=clock)
    clock.advance(timedelta(seconds=TOLERANCE_S + 1))
    assert not verify(SECRET, headers, b"body", clock=clock)


@pytest.mark.parametrize("secret", [None, 5, b"secret", "whsec_no Base64"])
def test_a_secret_that_is_none_is_no_forgery(secret: Any) -> None:
    """It is said, and not taken for a request of a stranger."""
    with pytest.raises(BadInput, match=r"^secret: "):
        verify(secret, {}, b"")


@given(st.text(min_size=16, max_size=40), st.text(max_size=30), st.binary(max_size=200))
def test_what_is_signed_is_believed(secret: str, id_: str, body: bytes) -> None:
    if secret.startswith("whsec_"):
        return
    secret = secret.encode("utf-8", "replace").decode()
    id_ = id_.encode("utf-8", "replace").decode()
    assert verify(secret, signed(signing_key(secret), id_, int(AT.timestamp()), body), body, clock=ManualClock(AT))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, DeliveryOutcome.DELIVERED), (204, DeliveryOutcome.DELIVERED), (400, DeliveryOutcome.RETRY), (404,
    DeliveryOutcome.RETRY), (410, DeliveryOutcome.NEVER),
     (429, DeliveryOutcome.RETRY), (500, DeliveryOutcome.RETRY), (503, DeliveryOutcome.RETRY)],
)  # fmt: skip
async def test_what_an_answer_means(status: int, outcome: DeliveryOutcome) -> None:
    with serving(lambda _: Answer(status, b"whatever" if status != 204 else b"")) as server:
        assert (await WebhookNotifier(server.url, SECRET).send(NOTICE, deadline=soon())).outcome is outcome


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """What is signed for one address is not given to another."""
    with serving() as other, serving(lambda _: Answer(status, headers={"location": f"{other.url}/x"})) as server:
        attempt = await WebhookNotifier(server.url, SECRET).send(NOTICE, deadline=soon())
    assert attempt.outcome is DeliveryOutcome.RETRY
    assert "redirects" in attempt.reason
    assert (len(server.asked), other.asked) == (1, [])


@pytest.mark.parametrize("form", ["seconds", "date", "nonsense", "no zone of this world"])
async def test_when_a_busy_receiver_wants_it_again(form: str) -> None:
    header = {
        "seconds": "90", "date": "Sun, 01 Mar 2026 12:01:30 GMT", "nonsense": "soon",
        "no zone of this world": "Sun, 01 Mar 2026 12:01:30 +99999999999999999999",
    }[form]  # fmt: skip
    with serving(lambda _: Answer(429, headers={"retry-after": header})) as server:
        attempt = await WebhookNotifier(server.url, SECRET, ManualClock(AT)).send(NOTICE, deadline=soon())
    assert attempt.after_s == (90 if form in {"seconds", "date"} else 0)


@pytest.mark.parametrize("answer", [Answer(silent=True), Answer(status=200, cut=True), Answer(status=500, drip=True)])
async def test_a_receiver_that_hangs_holds_nobody_up_for_long(answer: Answer) -> None:
    """Silence ends at the deadline; the body of an answer is not waited for at all."""
    with serving(lambda _: answer) as server:
        began = time.monotonic()
        attempt = await WebhookNotifier(server.url, SECRET).send(
            NOTICE, deadline=soon() if answer.cut else Deadline.after_ms(500)
        )
        assert time.monotonic() - began < 5
    assert attempt.outcome is (DeliveryOutcome.DELIVERED if answer.cut else DeliveryOutcome.RETRY)


async def test_nobody_there() -> None:
    attempt = await WebhookNotifier("http://127.0.0.1:1/x", SECRET).send(NOTICE, deadline=soon())
    assert attempt.outcome is DeliveryOutcome.RETRY


async def test_a_silent_receiver_does_not_keep_others_from_being_told(
    harness: AlertHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight messages that nobody takes wait beside each other, not one after the other."""
    monkeypatch.setattr(sending, "SEND_BUDGET_MS", 1000)
    await harness.say(*(failure(f"company:{number}") for number in range(8)))
    collecting = Collecting()
    with serving(lambda _: Answer(silent=True)) as server:
        began = time.monotonic()
        channels: dict[str, Any] = {"webhook": WebhookNotifier(server.url, SECRET), "other": collecting}
        done = await send_due(harness.database, channels, until=NEVER)
        assert time.monotonic() - began < 4
    assert (done.taken, done.put_off) == (8, 8)
    assert len(server.asked) == 8
    assert len(collecting.got) == 8


async def test_it_arrives_in_the_end_and_is_the_same(harness: AlertHarness) -> None:
    """Refused, busy, hung up on, then taken: one id, the same bytes, each attempt with its own time."""
    answers = [Answer(500), Answer(429, headers={"retry-after": "120"}), Answer(cut=True, status=500), Answer(200)]

    def answer(_: Asked) -> Answer:
        return answers.pop(0)

    await harness.say(failure(kind="DAY_3"))
    with serving(answer) as server:
        channels = {"webhook": WebhookNotifier(server.url, SECRET)}
        for minutes in (0.1, 0.2, 0.5, 1.5, 3.0, 6.0, 9.0):
            await harness.send(channels, minutes)

    assert len(server.asked) == 4
    assert len({asked.headers["webhook-id"] for asked in server.asked}) == 1
    assert len({asked.body for asked in server.asked}) == 1
    assert all(verify(SECRET, asked.headers, asked.body) for asked in server.asked)
    assert await harness.one("SELECT state FROM workflow.alert_send") == "sent"


@pytest.mark.parametrize("kills", [26, pytest.param(1000, marks=pytest.mark.chaos)])
async def test_killed_before_it_is_noted_it_is_sent_again_under_the_same_id(harness: AlertHarness, kills: int) -> None:
    """Senders die one after the other, before they send or once the receiver has answered: one message, never lost."""
    await harness.say(failure(kind="DAY_3"))
    with serving() as server:
        given = f"{harness.url}\n{server.url}/{TOKEN}\n"
        assert int(await printed("tests.alerts.killed", "send", given=given, ALERT_KILLS=str(kills))) == kills
        assert len(server.asked) == kills // 2
        channels = {"webhook": WebhookNotifier(server.url, SECRET)}
        assert (await send_due(harness.database, channels, until=NEVER)).taken == 1
        assert (await send_due(harness.database, channels, until=NEVER)).taken == 0

    assert len(server.asked) == kills // 2 + 1
    assert len({asked.headers["webhook-id"] for asked in server.asked}) == 1
    assert len({asked.body for asked in server.asked}) == 1
    assert await harness.one("SELECT attempts FROM workflow.alert_send") == kills + 1


@pytest.mark.parametrize("answer", [Answer(200), Answer(500), Answer(301, headers={"location": "/x"}), Answer(410)])
async def test_neither_secret_nor_address_is_ever_shown(
    harness: AlertHarness, answer: Answer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in logs of any level or library, not in rows, not in representations."""
    await harness.say(failure())
    with (
        caplog.at_level(logging.DEBUG),
        structlog.testing.capture_logs() as events,
        serving(lambda _: answer) as server,
    ):
        notifier = WebhookNotifier(f"{server.url}/{TOKEN}", SECRET)
        await send_due(harness.database, {"webhook": notifier, "log": LogNotifier()}, until=NEVER)
        port = server.url.rpartition(":")[2]
    out = capsys.readouterr()
    rows = await harness.rows("SELECT s::text FROM workflow.alert_send AS s")
    everything = "\n".join([caplog.text, str(events), out.out, out.err, str(rows), repr(notifier)])
    assert "alert.raised" in everything
    assert SECRET not in everything
    assert TOKEN not in everything
    assert f":{port}" not in everything


async def test_the_log_has_what_people_need(harness: AlertHarness) -> None:
    await harness.say(failure())
    with structlog.testing.capture_logs() as events:
        await send_due(harness.database, {"log": LogNotifier()}, until=NEVER)
    (event,) = [one for one in events if one["event"] == "alert.raised"]
    assert event["notice"]["payload"]["pending"] == ["three"]
    assert event["log_level"] == "warning"


def test_settings_name_the_channels() -> None:
    assert set(notifiers_of(Settings.read({}))) == {"log"}
    both = {"IMEM_WEBHOOK_URL": "https://h/x", "IMEM_WEBHOOK_SECRET": SECRET}
    settings = Settings.read(both)
    assert set(notifiers_of(settings)) == {"log", "webhook"}
    assert SECRET not in repr(settings)
    for name, value in both.items():
        with pytest.raises(SettingsError, match="IMEM_WEBHOOK"):
            notifiers_of(Settings.read({name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("IMEM_WEBHOOK_SECRET", "2short"), ("IMEM_WEBHOOK_SECRET", "whsec_not base64 at all"),
     ("IMEM_WEBHOOK_SECRET", "whsec_c2hvcnQ="), ("IMEM_WEBHOOK_URL", "ftp://s3cret/x"),
     ("IMEM_WEBHOOK_URL", "https://"), ("IMEM_WEBHOOK_URL", "https://s3cret:port/x")],
)  # fmt: skip
def test_a_secret_or_address_that_cannot_be_used_is_refused_without_being_shown(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.read({name: value})
    assert name in str(caught.value)
    assert value not in str(caught.value)
    assert "s3cret" not in str(caught.value)
