"""
Channels that deliver alerts: the log, and a webhook.

A message reaches a channel at least once, each time under the same id and with the same body, so that the receiver can
drop duplicates.

The webhook is signed by the Standard Webhooks specification 1.0, which ready-made libraries verify. It has three
headers: ``webhook-id`` (stable), ``webhook-timestamp`` (seconds since 1970, of the attempt), and ``webhook-signature``,
which is ``v1,`` and the Base64 of HMAC-SHA256 over id, timestamp and body, joined by full stops.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Any, Final, Protocol
from uuid import UUID

import orjson
import structlog

from imem.journal.arguments import CHECKED_INSIDE, LongText, checks_call
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.endpoints.http_client import request
from imem.journal.errors import BadInput, ImemError, SettingsError
from imem.journal.settings import PREFIX, WEBHOOK_SECRET_PREFIX, Settings

log = structlog.get_logger()

TOLERANCE_S: Final = 5 * 60
"""Greatest difference of a timestamp from the receiver's clock, in seconds: bounds replays of a signed request."""

Now = Annotated[Clock | None, CHECKED_INSIDE]


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """
    One message to one channel.

    Attributes:
        id: stable over all attempts.
        type: ``alert.raised``, ``alert.resent``, ``alert.escalated`` or ``alerts.summary``.
        at: when it became due.
        data: its content, JSON types.
    """

    id: UUID
    type: str
    at: datetime
    data: Mapping[str, Any]

    def body(self) -> bytes:
        """Return the body of a webhook request: the same bytes on each attempt."""
        document = {"type": self.type, "timestamp": self.at.isoformat(), "data": dict(self.data)}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


class DeliveryOutcome(Enum):
    """Outcomes of an attempt."""

    DELIVERED = "taken"
    RETRY = "again"
    """Not delivered; it is retried."""
    NEVER = "never"
    """Refused for good; it is not retried."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    The result of one attempt.

    Attributes:
        outcome: whether it was delivered, or is retried.
        reason: why it was not delivered, one sentence without an address or a secret.
        after_s: the least pause that the channel asks for, in seconds.
    """

    outcome: DeliveryOutcome
    reason: str = ""
    after_s: float = 0.0


class Notifier(Protocol):
    """A channel."""

    async def send(self, notice: AlertMessage, *, deadline: Deadline) -> Attempt:
        """Try once to deliver *notice* before *deadline*; errors are in the returned attempt."""


class LogNotifier:
    """Logs alerts in the process that sends them."""

    async def send(self, notice: AlertMessage, *, deadline: Deadline) -> Attempt:  # noqa: ARG002 - nothing here takes time
        """Log *notice*; always delivered."""
        log.warning(notice.type, delivery_id=str(notice.id), at=notice.at.isoformat(), notice=dict(notice.data))
        return Attempt(DeliveryOutcome.DELIVERED)


class WebhookNotifier:
    """
    Sends alerts to a URL.

    Args:
        url: never shown; it may hold a token.
        secret: key of the signature: ``whsec_`` and Base64, or any text of 16 characters or more.
        clock: for the timestamp.
    """

    def __init__(self, url: str, secret: str, clock: Clock | None = None) -> None:
        self._url = url
        self._key = signing_key(secret)
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return "WebhookNotifier()"

    async def send(self, notice: AlertMessage, *, deadline: Deadline) -> Attempt:
        """
        POST *notice* once.

        2xx is delivered; 410 is final; anything else, a timeout included, is retried. A redirect is not followed, since
        a request is signed for one address.
        """
        body = notice.body()
        headers = {
            "content-type": "application/json",
            "user-agent": "imem",
            **signed(self._key, str(notice.id), int(self._clock.now().timestamp()), body),
        }
        try:
            answer = await request("POST", self._url, headers, body=body, deadline=deadline, clock=self._clock)
        except ImemError as error:
            return Attempt(DeliveryOutcome.RETRY, error.message)
        if answer.ok:
            return Attempt(DeliveryOutcome.DELIVERED)
        if answer.status == HTTPStatus.GONE:
            return Attempt(DeliveryOutcome.NEVER, "The webhook's receiver is gone for good (status 410).")
        return Attempt(DeliveryOutcome.RETRY, _refusal(answer.status), answer.retry_after_s or 0.0)


def _refusal(status: int) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"The webhook's receiver redirects (status {status}), which is not followed."
    return f"The webhook's receiver answered with status {status}."


def signing_key(secret: str) -> bytes:
    """
    Return the key of a secret.

    Raises:
        ValueError: it begins with ``whsec_``, and the rest is no Base64.
    """
    if not secret.startswith(WEBHOOK_SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("is no Base64") from None


def signed(key: bytes, id_: str, timestamp_s: int, body: bytes) -> Mapping[str, str]:
    """Return the three headers that sign *body*."""
    digest = hmac.new(key, b".".join((id_.encode(), str(timestamp_s).encode(), body)), hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


@checks_call
def verify(secret: LongText, headers: Mapping[Any, Any], body: bytes, *, clock: Now = None) -> bool:
    """
    Return whether *body* is signed with *secret* and recent; for receivers.

    Args:
        headers: of the request, with names in small letters.
        body: the bytes as received, not parsed.

    Raises:
        BadInput: an argument is of the wrong type, or *secret* is invalid; names it.
    """
    if not isinstance(secret, str):
        raise BadInput("secret", f"must be text, not {type(secret).__name__}.")
    try:
        key = signing_key(secret)
    except ValueError as error:
        raise BadInput("secret", f"{error} after {WEBHOOK_SECRET_PREFIX}.") from error
    id_, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < len("10000000000000")):
        return False
    if abs((clock or SystemClock()).now().timestamp() - int(stamp)) > TOLERANCE_S:
        return False
    expected = signed(key, id_, int(stamp), body)["webhook-signature"].encode()
    given = headers.get("webhook-signature", "").encode("utf-8", "replace").split()
    return any([hmac.compare_digest(one, expected) for one in given])  # noqa: C419 - every one takes the same time


def notifiers_of(settings: Settings) -> Mapping[str, Notifier]:
    """
    Return the channels that *settings* name: the log, and a webhook where there is a URL.

    Raises:
        SettingsError: a URL is set without a secret, or a secret without a URL.
    """
    found: dict[str, Notifier] = {"log": LogNotifier()}
    url, secret = settings.webhook_url, settings.webhook_secret
    if (url is None) != (secret is None):
        lacking = "WEBHOOK_SECRET" if secret is None else "WEBHOOK_URL"
        raise SettingsError(f"{PREFIX}{lacking} is not set.", mend="A webhook takes both its URL and its secret.")
    if url is not None and secret is not None:
        found["webhook"] = WebhookNotifier(url.get_secret_value(), secret.get_secret_value())
    return MappingProxyType(found)
