"""A bar for work that is counted in events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from imem.terminal import output

EVERY_S: Final = 2.0
"""Between two plain lines of progress, in seconds."""


@contextmanager
def events_bar(title: str, *, quiet: bool, what: str = "events") -> Iterator[Callable[[int, int], None]]:
    """
    Show progress on standard error: a bar on a terminal, lines elsewhere; yields the function that reports it.

    Args:
        title: what is being done.
        quiet: show nothing.
        what: what is counted.
    """
    console = output.console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
    )
    task = bar.add_task(title, total=None, rate="")
    begun: list[float | int] = []
    said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if not begun:
            begun.extend((now, done))
        rate = (done - begun[1]) / (now - begun[0]) if now > begun[0] else 0.0
        note = f"{rate:,.0f}/s" if rate else ""
        bar.update(task, completed=done, total=total, rate=note)
        if not quiet and bar.disable and (now - said >= EVERY_S or done == total):
            said = now
            console.print(f"{title}: {done:,} of {total:,} {what}, {note or 'begun'}")

    with bar:
        yield report
