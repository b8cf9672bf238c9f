"""What is read of standard input: whole lines in order, bounded, with characters that a parser takes."""

from __future__ import annotations

import asyncio
import os

import pytest
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCError

from imem.mcp import stdio
from imem.mcp.refusals import HEAD_BYTES, TAIL_BYTES, refusal_of


async def read(*written: bytes) -> list[str]:
    source, end = os.pipe()
    try:
        for part in written:
            os.write(end, part)
        os.close(end)
        return [line.decode() async for line, tail in stdio._lines(source) if tail is None]
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

    assert (first, others) == ((b"a", None), [(b"b", None), (b"y" * 200_000, None)])
    assert second == (long[:HEAD_BYTES], long[-TAIL_BYTES:])


INSIDE = '"b":{"c":{"d":"' + "x" * 400_000 + '"},"id":9}'
"""Members of which the head of a message knows nothing, and whose ends are in its tail."""


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (f'{{"jsonrpc":"2.0","method":"x","params":{{"a":"{"é" * 70_000}",{INSIDE}}},"id":3}}', 3),
        (f'{{"jsonrpc":"2.0","method":"x","params":{{"a":"{"é" * 20_000}",{INSIDE}}},"id":"3"}}', "3"),
        (f'{{"jsonrpc":"2.0","method":"x","params":{{"a":"{"𝄞" * 16_000}",{INSIDE}}},"id":3}}', 3),
        (f'{{"jsonrpc":"2.0","method":"x","params":{{"a":"{"é" * 20_000}",{INSIDE}}}}}', None),
        (f'{{"id":4,"params":{{"a":"{"é" * 70_000}",{INSIDE}}}}}', 4),
        (f'{{"params":{{"a":"a",{INSIDE}}},"id":3}}', 3),
    ],
    ids=["cut in the text", "cut behind it", "four bytes", "none", "in front", "ASCII"],
)
async def test_the_id_of_a_line_that_is_too_long(
    line: str, known: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the message's own, whatever its beginning is written in."""
    monkeypatch.setattr(stdio, "MOST_LINE_BYTES", 200_000)
    source, end = os.pipe()
    answers: list[JSONRPCError] = []

    async def answer(error: JSONRPCError) -> None:
        answers.append(error)

    writing = asyncio.create_task(asyncio.to_thread(_write, end, line.encode() + b"\n"))
    assert [message async for message in stdio._messages(source, answer)] == []
    await writing
    os.close(source)

    assert [one.id for one in answers] == [known]


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
