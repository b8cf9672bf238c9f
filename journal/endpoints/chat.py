"""Replies of OpenAI's chat completions."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

import orjson

from imem.journal.errors import StoreUnavailable

REASONING: Final = re.compile(
    r"^\s*(?:<(?P<tag>think|thinking|reasoning|thought)>.*?(?:</(?P=tag)>\s*|\Z))+", re.DOTALL | re.IGNORECASE
)
"""What models that reason aloud put before their answer; without its end there is no answer."""


MOST_STARTS: Final = 1_000
"""Braces of a reply with which an object may begin."""


class ChatReply(NamedTuple):
    """
    A model's reply.

    Attributes:
        text: not blank, and without what the model reasoned before.
        input_tokens, output_tokens: as the endpoint counts them; None where it does not say.
        cut: whether the endpoint cut it off, since it was too long.
    """

    text: str
    input_tokens: int | None
    output_tokens: int | None
    cut: bool = False


def chat_reply(body: bytes, purpose: str) -> ChatReply:
    """
    Return the reply in a response's body.

    Raises:
        StoreUnavailable: it is no chat completion, or is empty; names the endpoint for *purpose*.
    """
    try:
        found = orjson.loads(body)
        choice = found["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        raise StoreUnavailable(f"The endpoint for {purpose} answered what nobody can read.") from None
    if isinstance(text, str):
        text = REASONING.sub("", text)
    if not isinstance(text, str) or not text.strip():
        raise StoreUnavailable(f"The endpoint for {purpose} answered without a text.")
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    return ChatReply(
        text, _count(counted.get("prompt_tokens")), _count(counted.get("completion_tokens")), finish == "length"
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def objects_in(text: str) -> list[dict[str, Any]]:
    """
    Return the JSON objects in a reply that may have prose and fences around them; none from within another.

    At most :data:`MOST_STARTS` braces are tried.
    """
    decoder, found, start, tried = json.JSONDecoder(), [], text.find("{"), 0
    while start >= 0 and (tried := tried + 1) <= MOST_STARTS:
        try:
            value, start = decoder.raw_decode(text, start)
            found.append(value)
        except (ValueError, RecursionError):
            start += 1
        start = text.find("{", start)
    return found
