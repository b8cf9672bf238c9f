"""Replies of OpenAI's chat completions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from imem.journal.errors import StoreUnavailable

_TAG: Final = r"(?:think|thinking|thought|reasoning|reflection)\s*"
"""Names of the tags around what models reason."""

_CLOSED: Final = re.compile(rf"(?<![`\"'])(?:</{_TAG}>|\[/{_TAG}\])|(?:</{_TAG}>|\[/{_TAG}\])(?![`\"'])", re.IGNORECASE)
"""The end of reasoning; in quotation marks it is spoken about."""

_BEGUN: Final = re.compile(rf"^[ \t]*+(?:<{_TAG}>|\[{_TAG}\])", re.IGNORECASE | re.MULTILINE)
"""Its beginning, which stands first in a line."""

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
        raise StoreUnavailable(f"The endpoint for {purpose} gave an answer that cannot be read.") from None
    if isinstance(text, str):
        text = _answer_in(text)
    if not isinstance(text, str) or not text.strip():
        raise StoreUnavailable(f"The endpoint for {purpose} answered without a text.")
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    return ChatReply(
        text, _count(counted.get("prompt_tokens")), _count(counted.get("completion_tokens")), finish == "length"
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def _answer_in(text: str) -> str:
    """
    Return what follows the reasoning in a reply; nothing where that has no end.

    Its opening tag may be missing, since the templates of some models put it before the reply. What an object of JSON
    holds is part of the answer.
    """
    if _CLOSED.search(text):
        edges = [0, *(edge for _, start, end in _objects(text) for edge in (start, end)), len(text)]
        around = zip(edges[::2], edges[1::2], strict=True)
        ends = [tag.end() for start, end in around for tag in _CLOSED.finditer(text, start, end)]
        text = text[ends[-1] if ends else 0 :]
    return "" if _BEGUN.search(text) else text


def objects_in(text: str) -> list[dict[str, Any]]:
    """
    Return the JSON objects in a reply that may have prose and fences around them; none from within another.

    At most :data:`MOST_STARTS` braces are tried.
    """
    return [value for value, _, _ in _objects(text)]


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield each of those objects with its beginning and its end."""
    decoder, start, tried = json.JSONDecoder(), text.find("{"), 0
    while start >= 0 and (tried := tried + 1) <= MOST_STARTS:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value, start, end
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
