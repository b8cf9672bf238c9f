"""How ``imem load`` shows what it does: bars on a terminal, plain lines elsewhere, one document with ``--json``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from imem.ingest.line_reader import Batch, LoadSource, RefusedLine, UnreadableFile
from imem.ingest.loader import LoadCounts, MissingReferences
from imem.jobs.backlog import Waiting
from imem.journal.events.entry import AppendStatus
from imem.kg.kinds.fields import shown
from imem.terminal import output

SHOWN: Final = 20
"""Refused lines that are printed; a report or ``--json`` has all."""

EVERY_S: Final = 2.0
"""Between two plain lines of progress, in seconds."""


class LoadView:
    """
    Shows one load.

    Args:
        console: standard error.
        document: where the JSON document goes, if one is wanted.
        report: where every refused line goes as a line of JSON, if that is wanted.
        total_bytes: size of all files, where it is known.
        every: whether all refused lines are printed, and not the first alone.
    """

    def __init__(
        self,
        console: Console,
        *,
        document: IO[str] | None,
        report: IO[str] | None,
        total_bytes: int | None,
        every: bool = False,
    ) -> None:
        self._every = every
        self._console = console
        self._document = document
        self._report = report
        self._total_bytes = total_bytes
        self._refused = 0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=document is not None or not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._before: dict[str, dict[int, int]] = {}
        self._to_apply: int | None = None
        self._to_do = 0
        self._said_at = time.monotonic()

    @classmethod
    @contextmanager
    def open(
        cls, sources: Sequence[LoadSource], *, as_json: bool, report: Path | None, every: bool = False
    ) -> Iterator[Self]:
        """
        Open the view, and the report if one is wanted.

        Raises:
            UnreadableFile: the report cannot be written.
        """
        sizes = [source.size_bytes for source in sources]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        with ExitStack() as stack:
            file = None
            if report is not None:
                try:
                    file = stack.enter_context(report.open("w", encoding="utf-8"))
                except OSError as error:
                    raise UnreadableFile(f"The report {report} cannot be written: {error.strerror}.") from error
            document = sys.stdout if as_json else None
            view = cls(output.console(stderr=True), document=document, report=file, total_bytes=total, every=every)
            if document is not None:
                document.write('{"refused": [')
            with view._bars:
                yield view

    def refused(self, line: RefusedLine) -> None:
        """Print a refused line, the first :data:`SHOWN` of them; write each to the document and the report."""
        content = {name: value for name, value in asdict(line).items() if name != "column" or value}
        if self._report is not None:
            self._report.write(json.dumps(content) + "\n")  # Escaped: a path may hold what is no UTF-8.
        if self._document is not None:
            self._document.write(f"{',' if self._refused else ''}\n{json.dumps(content)}")
        elif self._every or self._refused < SHOWN:
            column = f", column {line.column}" if line.column else ""
            self._print(f"Refused: {line.file}, line {line.line:,}{column}: {line.field}: {line.reason}")
        elif self._refused == SHOWN:
            self._print("Refused: more lines, which only --report or --json show.")
        self._refused += 1

    def checked(self, source: LoadSource, batch: Batch) -> None:
        """Show the progress of a strict load's checks."""
        self._advance("Checking", source, batch, f"{self._refused:,} refused")

    def loaded(self, source: LoadSource, batch: Batch, counts: LoadCounts) -> None:
        """Show the progress of committed batches."""
        self._advance(
            "Loading", source, batch, f"{counts.lines:,} lines, {counts.lines / max(counts.seconds, 1e-3):,.0f}/s"
        )

    def waiting(self, counts: LoadCounts) -> None:
        """Show the progress of the graph."""
        if self._to_apply is None:
            self._to_apply = counts.waiting
        if not self._to_apply:
            return
        done = self._to_apply - counts.waiting
        self._show("Applying to the graph", done, self._to_apply, f"{counts.waiting:,} events left")

    def pipelines(self, left: Sequence[Waiting]) -> None:
        """Show how much the pipelines still have to do."""
        waiting = sum(one.waiting for one in left)
        # What was settled makes track records due, so that there may be more than there was.
        self._to_do = max(self._to_do, waiting)
        if self._to_do:
            note = f"{waiting:,} rows left{f': {left[0]}' if left else ''}"
            self._show("Pipelines", self._to_do - waiting, self._to_do, note)

    @property
    def asks(self) -> bool:
        """Whether a person sits before it, who can be asked."""
        return self._document is None and self._console.is_terminal and sys.stdin.isatty()

    def _advance(self, what: str, source: LoadSource, batch: Batch, note: str) -> None:
        # By object: the same file named twice is read twice.
        files = self._before.setdefault(what, {})
        files[id(source)] = batch.upto_byte
        self._show(what, sum(files.values()), self._total_bytes, note)

    def _show(self, what: str, done: int, total: int | None, note: str) -> None:
        if self._document is not None:
            return
        if not self._console.is_terminal:
            if time.monotonic() - self._said_at >= EVERY_S:
                self._said_at = time.monotonic()
                share = f" {done / total:.0%}" if total else ""
                self._print(f"{what}:{share} {note}")
            return
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total, note="")
        self._bars.update(self._tasks[what], completed=done, note=note)

    def _print(self, text: str) -> None:
        # Whole lines, whatever the width: programs read them too.
        self._console.print(text, markup=False, soft_wrap=True)

    def close_dry(
        self, first: Sequence[dict[str, Any]], stored: int, refused: int, *, compared: int | None = None
    ) -> None:
        """
        Show the *first* lines as they would be stored, and how many would be *stored* and *refused*.

        *compared* says of how many records the cores were compared, None for all.
        """
        if self._document is not None:
            counts = {"would_store": stored, "refused_lines": refused, "cores_compared": compared}
            summary = json.dumps({"lines": list(first), **counts})
            self._document.write(f"\n], {summary[1:]}\n")
            return
        for line in first:
            print(json.dumps(line, ensure_ascii=False))  # noqa: T201 - what a program may read, beside what people do
        self._print(f"{stored:,} lines would be stored, {refused:,} refused. Nothing was written: this was a dry run.")
        if compared is not None:
            self._print(f"Cores were compared for the first {compared:,} records; a load with --strict compares all.")

    def close(
        self,
        counts: LoadCounts,
        *,
        visible: bool | None,
        checked: bool = False,
        left: Sequence[Waiting] | None = None,
        error: str | None = None,
    ) -> None:
        """
        Print the result.

        Args:
            counts: counts and rate.
            visible: whether the graph holds it; None: not awaited.
            checked: whether a check ended it.
            left: what the pipelines still have to do; None: it was not looked at.
            error: why it ended early.
        """
        if self._document is not None:
            pipelines = None if left is None else [one.to_dict() for one in left]
            summary = json.dumps({**_summary(counts, visible=visible, error=error), "pipelines": pipelines})
            self._document.write(f"\n], {summary[1:]}\n")
            return
        self._bars.stop()
        for sentence in (*_sentences(counts, visible=visible, checked=checked), *still_to_come(left or ())):
            self._print(sentence)


def _summary(counts: LoadCounts, *, visible: bool | None, error: str | None) -> dict[str, Any]:
    return {
        "new": counts.verdicts[AppendStatus.NEW],
        "identical": counts.verdicts[AppendStatus.IDENTICAL],
        "changed": counts.verdicts[AppendStatus.CHANGED],
        "refused_lines": counts.refused,
        "seconds": round(counts.seconds, 3),
        "events_per_s": round(counts.events_per_s, 1),
        "visible": visible,
        "waiting": counts.waiting,
        "dead": counts.dead,
        "missing_references": None if counts.missing is None else [asdict(one) for one in counts.missing],
        "references_error": counts.unchecked_reason or None,
        "stopped_at": counts.stopped_at,
        "error": error,
    }


def _sentences(counts: LoadCounts, *, visible: bool | None, checked: bool) -> Iterator[str]:
    verdicts = {
        name: f"{counts.verdicts[name]:,} {name}"
        for name in (AppendStatus.NEW, AppendStatus.IDENTICAL, AppendStatus.CHANGED)
    }
    yield (
        f"{', '.join(verdicts.values())},"
        f" {counts.refused:,} refused in {counts.seconds:.1f} s ({counts.events_per_s:,.0f} events/s)."
    )
    if counts.missing:
        named = [f"{one.count:,} {one.kind} ({_examples(one)})" for one in counts.missing]
        yield (
            f"Referred to, and not recorded: {'; '.join(named)}. The references are kept; record what is meant,"
            " or correct a key that is spelled in two ways."
        )
    if counts.unchecked_reason:
        yield (
            f"The check of the lines' references was cut short: {counts.unchecked_reason} The same command again"
            " loads nothing twice, and looks once more."
        )
    if checked:
        yield "Nothing was loaded, because lines are bad."
    elif counts.stopped_at is not None:
        yield (f"Stopped after {counts.stopped_at}. What was acknowledged stands; the same command again continues.")
    elif visible:
        yield "The graph holds all of it."
    elif visible is False and counts.waiting:
        yield (
            f"All of it is durable, but the graph does not hold {counts.waiting:,} events yet; "
            "it catches up by itself. `imem status` shows what is not running."
        )
    if counts.dead:
        yield f"The graph refused {counts.dead:,} events for good; `imem doctor` names them."


def still_to_come(left: Sequence[Waiting]) -> Iterator[str]:
    """Return the lines about what the pipelines still have to do; none if they have done everything."""
    if not left:
        return
    yield "Still to come, by the workers; until then scores, weights, comparisons and searches lack it:"
    for one in left:
        yield f"  {one}"
    yield "`imem status` shows how much is left; `imem load --wait-pipelines SECONDS` waits for it."


def _examples(missing: MissingReferences) -> str:
    more = ["…"] if missing.count > len(missing.examples) else []
    return ", ".join([*map(shown, missing.examples), *more])
