"""What is read of standard input: whole lines in order, bounded, with characters that a parser takes."""

from __future__ import annotations

import os

import pytest

from imem.mcp import stdio


async def read(*written: bytes) -> list[str]:
    source, end = os.pipe()
    try:
        for part in written:
            os.write(end, part)
        os.close(end)
        return [line async for line in stdio._lines(source)]
    finally:
        os.close(source)


async def test_lines_are_whole_and_in_order() -> None:
    """However they are cut on their way; what has no end is no message."""
    many = [f"line {number}" for number in range(100)]

    assert await read(b"a\nb", b"c\n\nd", b"\nhalf") == ["a", "bc", "", "d"]
    assert await read("\n".join([*many, ""]).encode()) == many


async def test_a_message_that_is_too_long_ends_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before it is answered."""
    monkeypatch.setattr(stdio, "MOST_LINE_BYTES", 1_000)

    assert await read(b"a\n", b"x" * 1_001) == ["a"]


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
async def test_halves_of_characters_are_replaced(sent: bytes, read_as: str) -> None:
    """The protocol's parser would drop them, and the client would wait for its answer."""
    assert await read(sent + b"\n") == [read_as]
