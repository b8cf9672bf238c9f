"""What is checked of requests of browsers, and the headers that every response carries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request

from imem.api.guards import BODY_S, App, Message, Receive, Scope, Send, read_body
from imem.journal.errors import BadInput, BudgetExceeded, PermissionDenied

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content security policy: files of this server alone; no inline script or style, and no evaluated text."""

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers send a form of our own with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

MOST_FIELDS: Final = 10_000
"""Most fields of a form."""

_FORM: Final = "application/x-www-form-urlencoded"


class SecurityHeaders:
    """Adds the headers of :data:`HEADERS` to every response."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.headers]
            await send(message)

        await self.app(scope, receive, sending if scope["type"] == "http" else send)


def check_origin(request: Request) -> None:
    """
    Refuse a request that changes something unless a page of this server made it.

    Browsers send at least one of the two headers with every form. Of the origin the host alone is compared: behind a
    proxy that ends TLS this process sees another scheme than the browser.

    Raises:
        PermissionDenied: another site made it, or nothing says who did.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    same_site = site is None or site == "same-origin"
    same_origin = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if (site is None and origin is None) or not (same_site and same_origin):
        raise PermissionDenied("This request did not come from a page of this server.", mend="Open the page again.")


async def read_form(request: Request) -> dict[str, str]:
    """
    Return the fields of a form; of several with one name the last counts.

    Raises:
        BadInput: the body is no form in UTF-8, or ended early.
        TooLarge: it is too long.
        BudgetExceeded: it did not come in time.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise BadInput("body", f"is no form ({_FORM}).")
    try:
        async with asyncio.timeout(BODY_S):
            body = await read_body(request.receive)
    except TimeoutError:
        raise BudgetExceeded("The form did not come in time.") from None
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:  # UnicodeDecodeError is one.
        raise BadInput("body", f"is no form in UTF-8 with at most {MOST_FIELDS:,} fields.") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}
