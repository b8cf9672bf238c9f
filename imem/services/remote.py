"""A memory in another process, over REST: what ``Memory.connect`` calls in place of stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import orjson

from imem.journal.errors import BadInput, BudgetExceeded, ImemError, OutcomeUnknown, StackError, StoreUnavailable
from imem.services.operations import Operation
from imem.services.problems import error_of
from imem.services.wire import wire_of

PREFIX: Final = "/v1"
LONGEST_S: Final = 120.0
"""How long a call without a deadline may take, in seconds."""

SPARE_S: Final = 1.0
"""What the network may add to the deadline of a call, in seconds."""

MOST_ANSWER_BYTES: Final = 64 * 2**20
"""Longest answer that is read, in bytes."""


_REPEAT: Final = "Repeat the call: the same content is stored once."


def path_of(operation: Operation) -> str:
    """Return the path of an operation: below the prefix its facet and its method."""
    return "/".join((PREFIX, *operation.name.split(".")))


class NoStores:
    """Stands for the stores that a remote memory does not have."""

    def __getattr__(self, name: str) -> Any:
        raise StackError(
            "This needs the stores: sessions, working memories and conversations belong to a process that has them.",
            mend="Open the memory by Memory.open() where the stores can be reached.",
        )


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """
    Calls operations over REST, as the identity of a token.

    Attributes:
        client: with the server's address and the token.
    """

    client: httpx2.AsyncClient

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, token: str, **options: Any) -> AsyncIterator[RemoteMemory]:
        """
        Open connections to the server at *url*; each is made when first used.

        Raises:
            BadInput: *url* is none of ``http`` or ``https``.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadInput("url", "is no address such as https://memory.example.com.")
        if not token.isascii() or not token.isprintable():
            raise BadInput("token", "is no token.")
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, follow_redirects=False, **options) as client:
            yield cls(client)

    async def call(self, operation: Operation, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """
        Call *operation* there, and return its result.

        Raises:
            ImemError: as the operation.
            StoreUnavailable: the server cannot be reached, or is none; retryable.
            BudgetExceeded: a read was not answered in time; retryable.
            OutcomeUnknown: the connection broke while a write was under way; repeating the call is safe.
        """
        wire, writes = wire_of(operation), operation.right.writes
        bound = operation.signature.bind(*given, **named).arguments
        deadline_ms = bound.get("deadline_ms")
        timeout_s = LONGEST_S if deadline_ms is None else deadline_ms / 1000.0 + SPARE_S
        if wire.in_query:
            request = self.client.build_request("GET", path_of(operation), params=tuple(wire.queried(given, named)))
        else:
            headers = {"Content-Type": "application/json", "Idempotency-Key": uuid4().hex}
            body = orjson.dumps(wire.written(given, named))
            request = self.client.build_request("POST", path_of(operation), content=body, headers=headers)
        request.extensions["timeout"] = httpx2.Timeout(timeout_s).as_dict()
        try:
            response = await self.client.send(request)
        except httpx2.ConnectError as error:
            raise StoreUnavailable(f"The server cannot be reached ({type(error).__name__}).") from error
        except httpx2.TimeoutException as error:
            raise _late(writes=writes) from error
        except httpx2.HTTPError as error:
            raise _broken(error, writes=writes) from error
        if response.status_code == 200:
            return wire.result.validate_json(response.content)
        raise _refused(response)


def _late(*, writes: bool) -> ImemError:
    if writes:
        return OutcomeUnknown(
            "The server did not answer in time.", mend="Repeat the call: the same content is stored once."
        )
    return BudgetExceeded("The server did not answer in time.")


def _broken(error: Exception, *, writes: bool) -> ImemError:
    if writes:
        return OutcomeUnknown(
            f"The connection to the server broke ({type(error).__name__}).",
            mend=_REPEAT,
        )
    return StoreUnavailable(f"The connection to the server broke ({type(error).__name__}).")


def _refused(response: httpx2.Response) -> ImemError:
    try:
        document = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or "type" not in document:
        return StoreUnavailable(f"The server answered {response.status_code}, as no memory does.")
    return error_of(document)
