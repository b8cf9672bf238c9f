"""
Rows of CSV whose bad rows are refused one by one: an unclosed quote, a bad byte or a long line concerns no other row.

A quoted cell may hold line ends, so that an unclosed quote would make one row of all lines up to the next quote. A row
of several lines is therefore doubted if its quote is never closed, closes in the middle of a cell, or if its cells do
not fit the header, and lines inside it look like rows. Such a row is refused, and the lines after its first one are
read again.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from imem.ingest.line_reader import LineReader, UnreadableFile
from imem.ingest.table_map import Row
from imem.journal.errors import BadInput
from imem.kg.kinds.fields import shown
from imem.kg.load_format.lines import LINE_BYTES

COLUMNS: Final = 1000
"""Most columns of a table."""

_CLOSED: Final = re.compile(r'(?:[^"]++|"")*+"(?!")')
"""The rest of a quoted cell, up to the quote that closes it."""

_FOREIGN: Final = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as they are decoded here."""


class _TooLong(Exception):
    """A line, or a row of several lines, is longer than a line may be."""


@dataclass(frozen=True, slots=True)
class _CsvLine:
    """A line of the file; *text* is None where it is too long."""

    number: int
    text: str | None


class _RowLines:
    """
    The lines that the parser takes for the current row, which may be given back.

    Attributes:
        taken: the lines of the current row.
        ended: whether the parser wanted more lines than the file has.
    """

    def __init__(self, reader: LineReader) -> None:
        self.taken: list[_CsvLine] = []
        self.ended = False
        self._reader = reader
        self._again: deque[_CsvLine] = deque()
        self._size = 0

    def begin(self) -> None:
        """Begin a row."""
        self.taken, self._size = [], 0

    def give_back(self) -> None:
        """Let the lines after the first one of the current row be read again."""
        self._again.extendleft(reversed(self.taken[1:]))
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._read()
        if line is None:
            self.ended = True
            raise StopIteration
        self.taken.append(line)
        self._size += len(line.text or "")
        if line.text is None or self._size > LINE_BYTES:
            raise _TooLong
        return line.text

    def _read(self) -> _CsvLine | None:
        raw = self._reader.read_line()
        if raw is None:
            return None
        number = self._reader.number
        if len(raw) > LINE_BYTES:
            return _CsvLine(number, None)
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        return _CsvLine(number, text.decode(errors="surrogateescape"))


class CsvRows:
    """
    The rows of a CSV file, each with the number of the line that it begins at.

    Args:
        reader: its lines.
        delimiter: what separates the cells.

    Raises:
        UnreadableFile: the first line names no columns.
    """

    def __init__(self, reader: LineReader, delimiter: str) -> None:
        # The parser's own limit holds for the whole process, and is below the length of a line here.
        csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
        self._lines = _RowLines(reader)
        self._delimiter = delimiter
        self._cells = csv.reader(self._lines, delimiter=delimiter)
        self._ends = re.compile(rf"[ \t]*(?:{re.escape(delimiter)}|\r|\n?\Z)")
        self.columns = self._header(reader.source.label)

    def _header(self, label: str) -> tuple[str, ...]:
        _, cells = next(self._numbered(), (0, []))
        if isinstance(cells, BadInput):
            raise UnreadableFile(f"{label}: the first line {cells.reason}")
        columns = tuple(cell.strip() for cell in cells)
        twice = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
        if not columns or len(columns) > COLUMNS or twice is not None:
            said = f"names {shown(twice)} twice" if twice is not None else f"must name 1 to {COLUMNS} columns"
            raise UnreadableFile(f"{label}: the first line {said}.")
        return columns

    def __iter__(self) -> Iterator[tuple[int, Row | BadInput]]:
        """
        Yield number and row, or the refusal of a row.

        Raises:
            UnreadableFile: the file is damaged, or no file of lines.
        """
        for number, cells in self._numbered(self.columns):
            yield number, cells if isinstance(cells, BadInput) else dict(zip(self.columns, cells, strict=True))

    def _numbered(self, columns: tuple[str, ...] = ()) -> Iterator[tuple[int, list[str] | BadInput]]:
        """Yield number and cells, which fit *columns* if there are any, or the refusal; rows without text are none."""
        while True:
            self._lines.begin()
            try:
                cells = next(self._cells)
                refusal = self._judged(cells, columns)
            except StopIteration:
                return
            except _TooLong:
                cells, refusal = [], self._too_long()
            except csv.Error:
                cells, refusal = [], self._stray_return(columns)
            if refusal is not None or any(cell.strip() for cell in cells):
                yield self._lines.taken[0].number, refusal or cells

    def _judged(self, cells: list[str], columns: tuple[str, ...]) -> BadInput | None:
        """Return why a row is refused; the lines that an unclosed quote has swallowed are given back."""
        fits = not columns or len(cells) == len(columns)
        if self._lines.ended or (not (fits and self._closes()) and self._holds_rows(columns)):
            self._lines.give_back()
            return _unclosed()
        if not fits and any(cell.strip() for cell in cells):
            return BadInput("row", f"has {len(cells)} cells, and the header {len(columns)} columns.")
        foreign = next((place for place, cell in enumerate(cells) if _FOREIGN.search(cell)), None)
        if foreign is not None:
            where = f" in the column {shown(columns[foreign])}" if columns else ""
            return BadInput("row", f"holds bytes that are not UTF-8{where}.")
        return None

    def _stray_return(self, columns: tuple[str, ...]) -> BadInput:
        """Refuse a row that ends at a carriage return, with its lines unless an unclosed quote has swallowed them."""
        if not self._closes() and self._holds_rows(columns):
            self._lines.give_back()
            return _unclosed()
        return BadInput("row", "holds a carriage return in the middle of a line.")

    def _too_long(self) -> BadInput:
        several = len(self._lines.taken) > 1
        self._lines.give_back()
        return _unclosed() if several else BadInput("row", f"is longer than {LINE_BYTES:,} bytes.")

    def _closes(self) -> bool:
        """Return whether each quoted cell that a later line of the row closes ends there."""
        for line in self._lines.taken[1:]:
            closed = _CLOSED.match(line.text or "")
            if closed is not None and not self._ends.match(line.text or "", closed.end()):
                return False
        return True

    def _holds_rows(self, columns: tuple[str, ...]) -> bool:
        """Return whether a later line of the row is a whole row by itself, or the beginning of one."""
        for line in self._lines.taken[1:]:
            assert line.text is not None  # noqa: S101 - a row with a line that is too long has no cells
            alone = csv.reader([line.text, '"'], delimiter=self._delimiter)
            with suppress(csv.Error):
                count = len(next(alone))
                # A line that leaves a quote open takes the next one, too.
                is_begun = alone.line_num > 1 and count <= len(columns) and (count > 1 or line.text.startswith('"'))
                if count == len(columns) or is_begun:
                    return True
        return False


def _unclosed() -> BadInput:
    return BadInput(
        "row",
        "begins a quoted cell that is not closed; the lines after it are read as rows of their own.",
        mend='A quote inside a quoted cell is written twice ("").',
    )
