"""
Requests to external servers, bounded in time and size, that leak nothing.

Redirects are never followed, since a request is signed, or carries a key, for one address alone. No address, header or
body is logged or shown in an error; the logger of httpx, which logs every URL, is raised to WARNING.
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

# Both log URLs, which may hold tokens.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

LONGEST_S: Final = 60.0
"""Timeout of a call without a deadline, in seconds."""

_LONGEST_RETRY_AFTER_S: Final = 24 * 60 * 60.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """
    A server's response.

    Attributes:
        status: of HTTP.
        body: empty unless requested.
        retry_after_s: from its Retry-After header, in seconds from now; None without one.
    """

    status: int
    body: bytes = b""
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def busy(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS} or (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        )


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return the trusted certificates; cached, since loading them blocks the event loop for longer than a call."""
    return httpx.create_ssl_context()


async def request(
    method: str, url: str, headers: Mapping[str, str], *, body: bytes | None = None, most_bytes: int = 0,
    deadline: Deadline, clock: Clock | None = None,
) -> HttpResponse:  # fmt: skip
    """
    Send a request to *url* once and return the response, whatever its status.

    Args:
        method: GET or POST.
        most_bytes: longest response body that is read; 0 reads none.
        clock: converts a date in Retry-After to seconds.

    Raises:
        StoreUnavailable: the server cannot be reached, broke off, does not speak HTTP, or answered more than that.
        BudgetExceeded: it did not answer before *deadline*.
    """
    deadline.check("a call to another server")
    left_s = min(deadline.left_s(), LONGEST_S)
    try:
        # The library's timeouts are for single reads: a server that sends a byte now and then would never exceed them.
        async with (
            asyncio.timeout(left_s),
            httpx.AsyncClient(timeout=left_s, verify=_ssl_context(), follow_redirects=False) as client,
            # No compression, since the bound on the bytes received would not bound the unpacked size.
            client.stream(method, url, content=body, headers={**headers, "accept-encoding": "identity"}) as response,
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
    """Return a Retry-After header, a number of seconds or a date, in seconds from now."""
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
