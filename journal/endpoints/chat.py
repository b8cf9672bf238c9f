"""Replies of OpenAI's chat completions."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from imem.journal.errors import StoreUnavailable


class ChatReply(NamedTuple):
    """
    A model's reply.

    Attributes:
        text: not blank.
        input_tokens, output_tokens: as the endpoint counts them; None where it does not say.
    """

    text: str
    input_tokens: int | None
    output_tokens: int | None


def chat_reply(body: bytes, purpose: str) -> ChatReply:
    """
    Return the reply in a response's body.

    Raises:
        StoreUnavailable: it is no chat completion, or is empty; names the endpoint for *purpose*.
    """
    try:
        found = orjson.loads(body)
        text = found["choices"][0]["message"]["content"]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        raise StoreUnavailable(f"The endpoint for {purpose} answered what nobody can read.") from None
    if not isinstance(text, str) or not text.strip():
        raise StoreUnavailable(f"The endpoint for {purpose} answered without a text.")
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    return ChatReply(text, _count(counted.get("prompt_tokens")), _count(counted.get("completion_tokens")))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**31 else None
