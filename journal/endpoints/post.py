"""
Calls to servers that are not ours: one POST, with an end in time and in size, that leaks nothing.

Redirects are never followed: what goes out is signed, or carries a key, for one address alone. Nothing here logs, and
no error shows an address, a header or a body; httpx itself, which logs every URL, is told to be quiet.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from typing import Final

import httpx

from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StoreUnavailable

# Both write URLs, in which tokens may stand, to the log.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

LONGEST_S: Final = 60.0
"""Longest wait for an answer where the caller has no deadline, in seconds."""

_LONGEST_RETRY_AFTER_S: Final = 24 * 60 * 60.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """
    What a server answered.

    Attributes:
        status: of HTTP.
        body: empty unless it was asked for.
        retry_after_s: when the server wants to be asked again, in seconds from now; None where it does not say.
    """

    status: int
    body: bytes = b""
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the server took it."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def busy(self) -> bool:
        """Whether the same may well be taken later."""
        return self.status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS} or (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        )


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return whom to trust: read once, since that takes longer than a call, and holds up everybody in the loop."""
    return httpx.create_ssl_context()


async def post(
    url: str, body: bytes, headers: Mapping[str, str], *, most_bytes: int = 0, deadline: Deadline,
    clock: Clock | None = None,
) -> HttpResponse:  # fmt: skip
    """
    POST *body* to *url* once and return the answer, whatever its status.

    Args:
        most_bytes: longest body of an answer that is read; 0 reads none.
        clock: tells how far a date lies ahead that the server names.

    Raises:
        StoreUnavailable: the server cannot be reached, broke off, does not speak HTTP, or answered more than that.
        BudgetExceeded: it did not answer before *deadline*.
    """
    deadline.check("a call to another server")
    left_s = min(deadline.left_s(), LONGEST_S)
    try:
        # The library's own limits are for single reads: a server that sends a byte now and then would never meet them.
        async with (
            asyncio.timeout(left_s),
            httpx.AsyncClient(timeout=left_s, verify=_ssl_context(), follow_redirects=False) as client,
            # Nothing compressed: what unpacks to a thousand times its size cannot be bounded by what arrives.
            client.stream("POST", url, content=body, headers={**headers, "accept-encoding": "identity"}) as response,
        ):
            read = await _body(response, most_bytes) if most_bytes and response.is_success else b""
            return HttpResponse(
                response.status_code, read, _retry_after_s(response.headers.get("retry-after"), clock or SystemClock())
            )
    except (TimeoutError, httpx.TimeoutException) as error:
        raise BudgetExceeded("Another server did not answer in time.") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise StoreUnavailable(f"Another server cannot be reached ({type(error).__name__}).") from error


async def _body(response: httpx.Response, most_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise StoreUnavailable("Another server sent a compressed answer, which was not asked for.")
    parts = bytearray()
    async for part in response.aiter_raw():
        parts += part
        if len(parts) > most_bytes:
            raise StoreUnavailable(f"Another server answered more than {most_bytes:,} bytes.")
    return bytes(parts)


def _retry_after_s(text: str | None, clock: Clock) -> float | None:
    """Return what a Retry-After header says, in seconds from now: it is a number of seconds, or a date."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return min(max(0.0, (at - clock.now()).total_seconds()), _LONGEST_RETRY_AFTER_S)
