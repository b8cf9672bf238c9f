"""What is checked of every request before a route sees it: the size and the encoding of its body, and its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import orjson
from fastapi.responses import JSONResponse

from imem.journal.errors import BadInput, BudgetExceeded, ImemError, TooLarge
from imem.services.problems import MEDIA_TYPE, problem_of, status_of

MOST_BODY_BYTES: Final = 2**20
"""Longest body of a request, in bytes."""

BODY_S: Final = 30.0
"""How long a client may take to send a body, in seconds."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def problem_response(error: ImemError) -> JSONResponse:
    """Return the response that tells an error."""
    headers = {"Retry-After": f"{max(error.retry_after_s, 1):.0f}"} if error.retryable else {}
    if status_of(error) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem_of(error), status_code=status_of(error), media_type=MEDIA_TYPE, headers=headers)


class BodyGuard:
    """
    Reads each body whole, and refuses one that is too long, too slow, or no JSON in UTF-8.

    Args:
        app: what answers the rest.
        below: only requests whose path begins with one of these have a body of JSON.
    """

    def __init__(self, app: App, below: tuple[str, ...]) -> None:
        self.app = app
        self.below = below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or scope["method"] == "GET" or not scope["path"].startswith(self.below):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(BODY_S):
                body = await read_body(receive)
            _check_json(body)
        except TimeoutError:
            await problem_response(BudgetExceeded("The body of the request did not come in time."))(
                scope, receive, send
            )
            return
        except ImemError as error:
            await problem_response(error)(scope, receive, send)
            return
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return given.pop() if given else await receive()

        await self.app(scope, again, send)


async def read_body(receive: Receive) -> bytes:
    """
    Return the body of a request, whole.

    Raises:
        BadInput: it ended before it was whole.
        TooLarge: it is longer than :data:`MOST_BODY_BYTES`.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadInput("body", "ended before it was whole.")
        body += message.get("body", b"")
        if len(body) > MOST_BODY_BYTES:
            raise TooLarge("body", f"is longer than {MOST_BODY_BYTES:,} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


def _check_json(body: bytes) -> None:
    if not body:
        return
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput("body", f"is no JSON in UTF-8: {str(error).partition(':')[0]}.") from None
