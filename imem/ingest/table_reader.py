"""
Reads tables: rows of CSV or Parquet, mapped to lines, in batches, with constant memory.

The batches are those of :mod:`imem.ingest.line_reader`, so a table is loaded like a file of lines.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import chain
from numbers import Real
from typing import Any, Final

from imem.ingest.csv_rows import CsvRows
from imem.ingest.line_reader import BATCH_BYTES, BATCH_LINES, Batch, LineReader, LoadSource, RefusedLine, UnreadableFile
from imem.ingest.recorder import prepare
from imem.ingest.table_map import Row, Rule, TableMap
from imem.journal.errors import BadInput
from imem.journal.events.canonical import content_hash
from imem.kg.kinds.fields import shown
from imem.kg.load_format.entries import object_of
from imem.kg.load_format.lines import Line, RecordLine, parse_line

_EXACT: Final = 2.0**53
"""Up to this, a float holds every whole number."""

REMEMBERED: Final = 20_000
"""Recent statements that are remembered, so that content repeated in every row is emitted once."""


class ParquetRows:
    """
    The rows of a Parquet file, as the texts that CSV would hold; a list is the tuple of its items.

    Args:
        source: the file.

    Raises:
        UnreadableFile: it is none, is no regular file, or the package that reads it is not installed.
    """

    def __init__(self, source: LoadSource) -> None:
        try:
            from pyarrow import ArrowException  # noqa: PLC0415 - an extra, and heavy
            from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - likewise
        except ImportError:
            raise UnreadableFile(
                f"{source.label} is Parquet, and pyarrow is not installed.",
                mend="Install the extra: pip install 'institutional-memory[parquet]'.",
            ) from None
        self._label, self._errors = source.label, (ArrowException, OSError)
        if source.path is None or not source.path.is_file():
            raise UnreadableFile(
                f"{source.label} is Parquet, whose index stands at the end: it cannot be read from a pipe.",
                mend="Write it to a file, and load that.",
            )
        try:
            self._file = ParquetFile(source.path)
        except self._errors as error:
            raise UnreadableFile(f"{source.label} is no Parquet file: {str(error).rstrip('.')}.") from error
        self.columns = tuple(self._file.schema_arrow.names)
        twice = next((name for place, name in enumerate(self.columns) if name in self.columns[:place]), None)
        if twice is not None:
            raise UnreadableFile(f"{source.label} has two columns {shown(twice)}.")

    def __iter__(self) -> Iterator[tuple[int, Row | BadInput]]:
        """
        Yield number, from 1, and row, or the refusal of a row.

        Raises:
            UnreadableFile: the file is damaged.
        """
        try:
            rows = chain.from_iterable(map(self._rows_of, self._file.iter_batches(BATCH_LINES)))
            for number, row in enumerate(rows, 1):
                if isinstance(row, BadInput):
                    yield number, row
                    continue
                try:
                    yield number, {name: _cell(value) for name, value in row.items()}
                except UnicodeDecodeError:
                    yield number, BadInput("row", "holds bytes that are not UTF-8.")
        except self._errors as error:
            raise UnreadableFile(f"{self._label} is damaged: {str(error).rstrip('.')}.") from error

    def _rows_of(self, batch: Any) -> list[dict[str, Any] | BadInput]:
        """Return the rows of a batch; times in nanoseconds are truncated to Python's microseconds."""
        import pyarrow as pa  # noqa: PLC0415 - an extra, and heavy

        fields = [_field_in_microseconds(field, pa) for field in batch.schema]
        cast = batch.cast(pa.schema(fields), safe=False)
        try:
            return list(cast.to_pylist())
        except (ValueError, OverflowError):
            return [self._row_of(cast.slice(place, 1)) for place in range(cast.num_rows)]

    def _row_of(self, batch: Any) -> dict[str, Any] | BadInput:
        """Return the only row of *batch*, or its refusal."""
        try:
            return dict(batch.to_pylist()[0])
        except UnicodeDecodeError:
            return BadInput("row", "holds bytes that are not UTF-8.")
        except (ValueError, OverflowError):
            return BadInput("row", "holds a day or a time outside the years 1 to 9999.")


def _in_microseconds(kind: Any, pa: Any) -> Any:
    """Return the type *kind* of pyarrow's with microseconds in the place of nanoseconds, however deep they stand."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([_field_in_microseconds(field, pa) for field in kind])
    if types.is_map(kind):
        return pa.map_(_field_in_microseconds(kind.key_field, pa), _field_in_microseconds(kind.item_field, pa))
    if types.is_fixed_size_list(kind):
        return pa.list_(_field_in_microseconds(kind.value_field, pa), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_field_in_microseconds(kind.value_field, pa))
    if types.is_large_list(kind):
        return pa.large_list(_field_in_microseconds(kind.value_field, pa))
    if getattr(kind, "unit", None) != "ns":
        return kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if types.is_duration(kind) else pa.time64("us")


def _field_in_microseconds(field: Any, pa: Any) -> Any:
    return field.with_type(_in_microseconds(field.type, pa))


def _cell(value: Any) -> str | tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    """
    Return *value* as the text of a CSV cell; an object as JSON.

    Raises:
        UnicodeDecodeError: it is bytes that are not UTF-8; some writers store text as bytes.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return ";".join(map(_text, value))
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Real):  # Some versions of pyarrow give half floats as numpy's.
        return _number(float(value))
    if isinstance(value, dict | tuple):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(value: float) -> str:
    """Return a float as text; a whole number as an integer, since some writers make floats of integers with gaps."""
    if math.isnan(value):
        return ""
    return str(int(value) if value.is_integer() and abs(value) <= _EXACT else value)


class MappedLines:
    """
    The batches of one open table.

    Args:
        reader: the file's lines; of Parquet nothing of it is read.
        mapping: what makes lines of rows.

    Raises:
        BadInput: the map names a column that the table has not.
        UnreadableFile: the table has no header.
    """

    def __init__(self, reader: LineReader, mapping: TableMap) -> None:
        self._reader = reader
        self._mapping = mapping
        rows = ParquetRows(reader.source) if reader.is_parquet else CsvRows(reader, mapping.delimiter)
        mapping.check_columns(rows.columns, reader.source.label)
        self._rows = iter(rows)
        self._stated: OrderedDict[tuple[str, str, datetime | None], tuple[bytes, datetime]] = OrderedDict()

    def next_batch(self) -> Batch | None:
        """
        Return the next batch, None at the end.

        Raises:
            UnreadableFile: the rest of the table cannot be read.
        """
        batch = Batch()
        size = 0
        while len(batch.lines) + len(batch.refused) < BATCH_LINES and size < BATCH_BYTES:
            number, row = next(self._rows, (0, None))
            if row is None:
                break
            batch.upto_line = number
            if isinstance(row, BadInput):
                batch.refused.append(RefusedLine.by(row, self._reader.source.label, number))
                continue
            size += sum(len(cell) if isinstance(cell, str) else sum(map(len, cell)) for cell in row.values())
            for rule in self._mapping.rules:
                self._take(rule, {**self._mapping.constants, **row}, number, batch)
        if not batch.upto_line:
            return None
        batch.upto_byte = self._reader.position
        return batch

    def _take(self, rule: Rule, row: Row, number: int, batch: Batch) -> None:
        try:
            members = rule.members(row)
            if members is None:
                return
            line = parse_line(json.dumps(members).encode())  # Which writes NaN, for the parser to refuse by name.
        except BadInput as error:
            columns = ", ".join(rule.columns_of(error.field))
            named = BadInput(f"{rule.name}: {error.field}", error.reason, mend=error.mend)
            batch.refused.append(RefusedLine.by(named, self._reader.source.label, number, columns))
            return
        if self._is_news(line):
            batch.lines.append(prepare(line))
            batch.numbers.append(number)

    def _is_news(self, line: Line) -> bool:
        """
        Return whether *line* has to be emitted: whether no earlier row makes it redundant.

        A record's core never changes, so the same core known at the same moment or later is redundant. Groups and texts
        change, and rows may be in any order of time, so only the same statement of the same moment is redundant.
        """
        if not isinstance(line, RecordLine):
            return True
        assert line.known_at is not None  # noqa: S101 - every line of an import states it
        changes = line.core is None or bool(line.groups or line.body)
        said = {name: value for name, value in object_of(line).items() if name != "known_at"}
        statement = (line.kind, line.key, line.known_at if changes else None)
        content = content_hash(said)
        last = self._stated.pop(statement, None)
        news = last is None or last[0] != content or line.known_at < last[1]
        self._stated[statement] = last if last is not None and not news else (content, line.known_at)
        if len(self._stated) > REMEMBERED:
            self._stated.popitem(last=False)
        return news
