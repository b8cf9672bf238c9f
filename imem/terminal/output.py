r"""
Escaping of everything that reaches the terminal.

Bodies, names, paths and errors are untrusted text, and a terminal executes escape sequences: titles, colours, the
cursor, the clipboard, the order of letters. So a command's standard output and error are streams that pass printable
characters, line feeds and tabs, and show everything else as ``\u001b``. That is also how JSON writes it: a document
stays exact.

Only our own bars and tables may move the cursor and colour: :func:`console` cleans what they show, piece by piece,
and hands it to the stream underneath. ``imem --raw`` lets standard output through as it is, into files and pipes alone.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from typing import IO, Any, Final, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer import rich_utils

_UNPRINTABLE: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, and with them every escape sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # another order of letters
    "\u2028\u2029\U000e0000-\U000e007f"  # other ends of lines, and letters that nobody sees
    "\ud800-\udfff"  # no characters: what stands for a byte of a path that is no UTF-8
    "]"
)


def clean(text: str) -> str:
    """Return *text* with control and invisible characters as JSON escapes."""
    return _UNPRINTABLE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


class CleanStream:
    """
    A text stream that cleans what is written to it.

    It says that it is no terminal, so that nothing decorates what would then be taken apart.

    Attributes:
        beneath: the stream that it writes to.
        raw: whether it lets everything through.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        self.raw = False

    def write(self, text: str) -> int:
        """Write *text*, clean; return its length."""
        self.beneath.write(text if self.raw else clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write *lines*, clean."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """Tell that this is no terminal."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # A way past this.
            raise AttributeError(name)
        return getattr(self.beneath, name)


def guard() -> None:
    """Put clean streams in the place of standard output and error, for as long as the process lives."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # What its encoding lacks is no reason to fail.
    rich_utils.COLOR_SYSTEM = None  # The colours of usage and help would be taken apart.
    sys.stdout = cast("TextIO", CleanStream(sys.stdout))
    sys.stderr = cast("TextIO", CleanStream(sys.stderr))


def unguard() -> bool:
    """Let standard output through as it is, and return whether that was done: to a terminal it never is."""
    stream = sys.stdout
    if not isinstance(stream, CleanStream):
        return not stream.isatty()
    stream.raw = not stream.beneath.isatty()
    return stream.raw


class _CleanConsole(Console):
    """A console that cleans what it shows, and whose own colours and movements pass."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces of *renderable*, clean."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else clean(text), style, control)


def console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    stream = sys.stderr if stderr else sys.stdout
    beneath = stream.beneath if isinstance(stream, CleanStream) else stream
    return _CleanConsole(file=cast("IO[str]", beneath), highlight=False, soft_wrap=soft_wrap)
