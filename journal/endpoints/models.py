"""
Calls to models behind an OpenAI-compatible endpoint: address, retries, and errors.

The caller makes the request and reads the response: summaries use ``chat/completions``, vectors ``embeddings``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.endpoints.post import post
from imem.journal.errors import StatementRejected, StoreUnavailable
from imem.journal.settings import PREFIX

ATTEMPTS: Final = 3
"""Most attempts of one call."""

_FIRST_PAUSE_S: Final = 0.5
"""Pause before the second attempt, in seconds; doubled before the third. The endpoint may ask for more."""


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """
    One resource of an endpoint.

    Attributes:
        url: the base of *resource*, such as ``http://localhost:11434/v1``; a URL without a path gets ``/v1``; or the
            whole address.
        resource: path of the resource, such as ``chat/completions``.
        purpose: what it is for, in errors: the endpoint for *purpose*.
        settings: prefix of the settings that name it, in errors, such as ``SUMMARY``.
        key: sent as a bearer token, if given; never shown.
    """

    url: str = field(repr=False)
    resource: str
    purpose: str
    settings: str
    key: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The URL of the resource."""
        base = self.url.rstrip("/")
        if base.endswith(f"/{self.resource}"):
            return base
        return f"{base if '/' in base.partition('://')[2] else f'{base}/v1'}/{self.resource}"

    async def ask(self, body: bytes, *, most_bytes: int, deadline: Deadline) -> bytes:
        """
        POST *body*, JSON, and return the response's body.

        A busy endpoint is retried after the time that it asks for, while *deadline* allows.

        Raises:
            StoreUnavailable: it cannot be reached, is busy, or answers more than *most_bytes*; retryable.
            StatementRejected: it refuses: the URL, the model or the key is wrong.
            BudgetExceeded: it did not answer before *deadline*.
        """
        headers = {"content-type": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = await post(self.address, body, headers, most_bytes=most_bytes, deadline=deadline)
            except StoreUnavailable:
                if attempt == ATTEMPTS or pause_s >= deadline.left_s():
                    raise
                await asyncio.sleep(pause_s)
            else:
                if answer.ok:
                    return answer.body
                if not answer.busy:
                    names = ", ".join(f"{PREFIX}{self.settings}_{name}" for name in ("URL", "MODEL"))
                    raise StatementRejected(
                        f"The endpoint for {self.purpose} refused with status {answer.status}.",
                        mend=f"Check {names} and {PREFIX}{self.settings}_KEY.",
                    )
                wait_s = max(pause_s, answer.retry_after_s or 0.0)
                if attempt == ATTEMPTS or wait_s >= deadline.left_s():
                    raise StoreUnavailable(f"The endpoint for {self.purpose} is busy (status {answer.status}).")
                await asyncio.sleep(wait_s)
            pause_s *= 2
        raise AssertionError  # The last attempt has returned or raised.
