"""
Calls to models behind an OpenAI-compatible endpoint: address, retries, and errors.

The caller makes the request and reads the response: summaries use ``chat/completions``, vectors ``embeddings``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

import orjson

from imem.journal.deadline import Deadline
from imem.journal.endpoints.chat import ChatReply, chat_reply
from imem.journal.endpoints.http_client import request
from imem.journal.errors import StatementRejected, StoreUnavailable
from imem.journal.retry import retry
from imem.journal.settings import PREFIX

ATTEMPTS: Final = 3
"""Most attempts of one call."""

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 1.0
"""Longest pause before the second attempt and before the third, in seconds. The endpoint may ask for more."""


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

        async def try_to_ask() -> bytes:
            answer = await request("POST", self.address, headers, body=body, most_bytes=most_bytes, deadline=deadline)
            if answer.ok:
                return answer.body
            if answer.busy:
                busy = StoreUnavailable(f"The endpoint for {self.purpose} is busy (status {answer.status}).")
                busy.retry_after_s = answer.retry_after_s or 0.0
                raise busy
            names = ", ".join(f"{PREFIX}{self.settings}_{name}" for name in ("URL", "MODEL"))
            raise StatementRejected(
                f"The endpoint for {self.purpose} refused with status {answer.status}.",
                mend=f"Check {names} and {PREFIX}{self.settings}_KEY.",
            )

        return await retry(
            try_to_ask,
            deadline=deadline,
            errors=StoreUnavailable,
            attempts=ATTEMPTS,
            first_pause_s=_FIRST_PAUSE_S,
            longest_pause_s=_LONGEST_PAUSE_S,
        )

    async def chat(
        self,
        model: str,
        instruction: str,
        content: str,
        *,
        most_bytes: int,
        deadline: Deadline,
        max_tokens: int | None = None,
    ) -> ChatReply:
        """
        Return what *model* replies to *content* under the system message *instruction*.

        Raises:
            StoreUnavailable, StatementRejected, BudgetExceeded: as :meth:`ask`; the first also for an answer that is no
                chat completion, or empty.
        """
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": content}]
        asked = {"model": model, "messages": messages, **({} if max_tokens is None else {"max_tokens": max_tokens})}
        answer = await self.ask(orjson.dumps(asked), most_bytes=most_bytes, deadline=deadline)
        return chat_reply(answer, self.purpose)


class ChatModel:
    """
    A model behind any endpoint with OpenAI's chat completions; a subclass names what it is asked for.

    Args:
        url: the base of ``chat/completions``, such as ``http://localhost:11434/v1``; ``/v1`` is added to a URL without
            a path.
        model: the model's name there.
        key: bearer token, if given; never logged.

    Attributes:
        purpose, settings: of its :class:`ModelEndpoint`.
    """

    purpose: ClassVar[str]
    settings: ClassVar[str]

    def __init__(self, url: str, model: str, key: str | None = None) -> None:
        self._endpoint = ModelEndpoint(url, "chat/completions", self.purpose, self.settings, key)
        self._model = model

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._model!r})"
