"""What is read of standard input: whole lines in order, bounded, with characters that a parser takes."""

from __future__ import annotations

import asyncio
import os

import pytest
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from imem.mcp import stdio
from imem.mcp.refusals import HEAD_BYTES, TAIL_BYTES, refusal_of


async def read(*written: bytes) -> list[str]:
    source, end = os.pipe()
    try:
        for part in written:
            os.write(end, part)
        os.close(end)
        return [line.decode() async for line, is_whole in stdio._lines(source) if is_whole]
    finally:
        os.close(source)


async def test_lines_are_whole_and_in_order() -> None:
    """However they are cut on their way; what has no end is no message."""
    many = [f"line {number}" for number in range(100)]

    assert await read(b"a\nb", b"c\n\nd", b"\nhalf") == ["a", "bc", "", "d"]
    assert await read("\n".join([*many, ""]).encode()) == many


async def test_a_line_that_is_too_long_keeps_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is, little of it is held, and the lines around it are whole."""
    monkeypatch.setattr(stdio, "MOST_LINE_BYTES", 200_000)
    source, end = os.pipe()
    long = b'{"id":1,' + b"x" * 400_000 + b',"k":"v"}'
    writing = asyncio.create_task(asyncio.to_thread(_write, end, b"a\n" + long + b"\nb\n" + b"y" * 200_000 + b"\n"))

    first, second, *others = [line async for line in stdio._lines(source)]
    await writing
    os.close(source)

    assert (first, others) == ((b"a", True), [(b"b", True), (b"y" * 200_000, True)])
    assert second == (long[:HEAD_BYTES] + long[-TAIL_BYTES:], False)


def _write(end: int, content: bytes) -> None:
    with os.fdopen(end, "wb") as pipe:
        pipe.write(content)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("line", "known", "code"),
    [
        ('{"jsonrpc":"2.0","id":4,"method":', 4, PARSE_ERROR),
        ("no JSON", None, PARSE_ERROR),
        ("[]", None, INVALID_REQUEST),
        ("[" * 100_000, None, INVALID_REQUEST),
        (f'{{"jsonrpc":"2.0","id":"a\\"b","method":"x","params":{{"a":{DEEP}}}}}', 'a"b', INVALID_REQUEST),
        (f'{{"jsonrpc":"2.0","method":"x","params":{{"id":1,"a":{DEEP}}},"id":7, "k":"v"}}', 7, INVALID_REQUEST),
        (f'{{"method":"x","params":{{"a":{DEEP},"id":7}}}}', None, INVALID_REQUEST),
        ('{"id":5,"method":"x"}', 5, INVALID_REQUEST),
        ('{"params":{"id":5}}', None, INVALID_REQUEST),
        ('{"params":{"id":5},"id":6}', 6, INVALID_REQUEST),
        (r'{"params":"{\"id\":5}","id":6}', 6, INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":1.5,"method":"x"}', None, INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":[1],"method":"x"}', None, INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":2,"method":"x","params":[]}', 2, INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":' + "9" * 5_000 + "}}", 2, PARSE_ERROR),
    ],
)
def test_what_is_no_message_is_answered(line: str, known: int | str | None, code: int) -> None:
    """With the id of the request where it is stated, and never with one from inside its parameters."""
    refusal = refusal_of(line)

    assert refusal is not None
    assert (refusal.id, refusal.error.code) == (known, code)


@pytest.mark.parametrize("method", ["x", "notifications/y"])
def test_messages_are_not_refused(method: str) -> None:
    """Requests, notifications, and answers."""
    for line in (f'{{"jsonrpc":"2.0","method":"{method}"}}', '{"jsonrpc":"2.0","id":1,"result":{}}'):
        assert refusal_of(line) is None
    assert refusal_of(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"a":{"[" * 90}{"]" * 90}}}}}') is None


@pytest.mark.parametrize(
    ("sent", "read_as"),
    [
        (b'"\\ud83d\\ude00"', '"\U0001f600"'),
        (b'"half \\ud83d"', '"half \ufffd"'),
        (b'"half \\uDE00 a"', '"half \ufffd a"'),
        (b'"no escape \\\\ud83d"', '"no escape \\\\ud83d"'),
        (b"no JSON \\ud83d", "no JSON \\ud83d"),
        (b'"\xff"', '"\ufffd"'),
    ],
)
def test_halves_of_characters_are_replaced(sent: bytes, read_as: str) -> None:
    """The protocol's parser would drop them, and the client would wait for its answer."""
    assert stdio._whole_characters(sent.decode(errors="replace")) == read_as
