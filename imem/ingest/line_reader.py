"""
Reads lines from files, folders and standard input, in batches, with constant memory.

It does not use the journal: a batch holds parsed lines, and those that the parser refused.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from imem.ingest.recorder import PreparedLine, prepare
from imem.ingest.table_map import TableMap
from imem.journal.errors import BadInput, ImemError
from imem.kg.load_format.lines import LINE_BYTES, parse_line

STDIN: Final = "-"
SUFFIXES: Final = (".jsonl", ".jsonl.gz")
TABLE_SUFFIXES: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")

BATCH_LINES: Final = 500
BATCH_BYTES: Final = 4 << 20
"""A batch ends at either bound."""

BLANK_BYTES: Final = 1 << 20
"""Most bytes of consecutive blank lines; a file with more is refused, however small it is compressed."""

ENDLESS_BYTES: Final = 64 << 20
"""Most bytes skipped of a line that is too long; beyond, the file is refused."""

SOURCE_CHARS: Final = 150
_SKIP_BYTES: Final = 1 << 16
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"


class UnreadableFile(ImemError):
    """A file cannot be read, or is damaged; batches committed before stay."""


@dataclass(frozen=True, slots=True)
class LoadSource:
    """
    One file to load.

    Attributes:
        path: its path; None for standard input.
        name: name of the source; the ordering actor is ``import:<name>``.
        mapping: the map from rows to lines, for a table.
    """

    path: Path | None
    name: str
    mapping: TableMap | None = None

    @property
    def label(self) -> str:
        """Its name in messages."""
        return str(self.path) if self.path is not None else "standard input"

    @property
    def size_bytes(self) -> int | None:
        """Its size in bytes; None of a pipe, which can be read once."""
        return self.path.stat().st_size if self.path is not None and self.path.is_file() else None


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """
    A line that was refused.

    Attributes:
        file: its file.
        line: its number, from 1.
        field: dotted path of the offending field, ``line`` for the whole.
        reason: what is wrong, and how to mend it.
        column: the table's column from which the field is made.
    """

    file: str
    line: int
    field: str
    reason: str
    column: str = ""

    @classmethod
    def by(cls, error: BadInput, file: str, line: int, column: str = "") -> RefusedLine:
        """Return the refusal for *error*."""
        return cls(file, line, error.field, f"{error.reason} {error.mend}".strip(), column)


@dataclass(slots=True)
class Batch:
    """
    Consecutive lines of one file.

    Attributes:
        lines: those that can be stored.
        numbers: their line numbers.
        refused: those that cannot.
        upto_line: number of the last line read.
        upto_byte: offset in the file after it, compressed if the file is; 0 if unknown.
    """

    lines: list[PreparedLine] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    refused: list[RefusedLine] = field(default_factory=list)
    upto_line: int = 0
    upto_byte: int = 0


def sources_of(paths: Sequence[str], name: str | None = None, mapping: TableMap | None = None) -> list[LoadSource]:
    """
    Return the files that *paths* name: files, pipes, ``-``, and of a folder those with a suffix of ours, sorted.

    Args:
        name: of the source, for all; by default each file's name without its suffix.
        mapping: what makes lines of rows, where the files are tables.

    Raises:
        BadInput: a path does not exist or is a device or socket, standard input is a device or closed, a folder holds
            no such file, or a name cannot be one of a source.
    """
    found: list[LoadSource] = []
    for text in paths:
        if text == STDIN:
            _check_standard_input()
            found.append(LoadSource(None, name or "stdin", mapping=mapping))
            continue
        path = Path(text)
        try:
            if not path.exists():
                raise BadInput(text, "does not exist.")
            suffixes = SUFFIXES if mapping is None else TABLE_SUFFIXES
            files = _files_in(path, suffixes) if path.is_dir() else [path]
        except (OSError, ValueError) as error:  # Longer than a name may be, or in a folder that may not be read.
            raise BadInput(text[:SOURCE_CHARS], f"cannot be looked at: {error}."[:SOURCE_CHARS]) from None
        if files == [path] and not _is_readable(path.stat().st_mode):
            raise BadInput(text, _NO_FILE)
        if not files:
            raise BadInput(text, f"holds no file that ends in {' or '.join(suffixes)}.")
        found += [LoadSource(file, name or _stem(file), mapping=mapping) for file in files]
    for source in found:
        _check_name(source.name)
    return found


_ENDS: Final = (".jsonl", ".csv", ".tsv", ".parquet")
_NO_FILE: Final = "is a device or a socket: only files, folders, pipes and - for standard input are read."


def _is_readable(mode: int) -> bool:
    """Return whether *mode* is that of a regular file or a pipe, which have an end."""
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _check_standard_input() -> None:
    """Refuse standard input that may never end, such as a device; a socket is accepted like a pipe."""
    if sys.stdin is None:
        raise BadInput(STDIN, "cannot be read: standard input is closed.")
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return  # A stream without a file descriptor, as when a program calls main() with its own.
    if not _is_readable(mode) and not stat.S_ISSOCK(mode):
        raise BadInput(STDIN, "is a terminal or another device: standard input is read from a file or a pipe alone.")


def _files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name.endswith(suffixes) and file.is_file())


def _stem(file: Path) -> str:
    plain = file.name.removesuffix(".gz")
    return next((plain.removesuffix(one) for one in _ENDS if plain.endswith(one)), plain) or file.name


def _check_name(name: str) -> None:
    # The name is part of the order key, whose separator is |.
    if not name.isprintable() or not 0 < len(name) <= SOURCE_CHARS or "|" in name:
        raise BadInput(
            "--source",
            f"{name[:SOURCE_CHARS]!r} cannot name a source: printable, without |, at most {SOURCE_CHARS} characters.",
        )


class LineReader:
    """
    The lines of one open source, compressed or not.

    Attributes:
        source: what is read.
        number: of the last line read, from 1.
        is_parquet: whether it holds a Parquet table, and so no lines.
    """

    def __init__(self, source: LoadSource, raw: io.BufferedReader) -> None:
        self.source = source
        self.number = 0
        self._raw = raw
        start = raw.peek(4)
        self.is_parquet = start[:4] == _PARQUET
        self._text: Any = gzip.GzipFile(fileobj=raw) if start[:2] == _GZIP else raw
        self._seekable = source.path is not None and raw.seekable()
        self._blank_bytes = 0

    @property
    def position(self) -> int:
        """Offset in the file, compressed if the file is; 0 if unknown."""
        return self._raw.tell() if self._seekable else 0

    def read_line(self) -> bytes | None:
        """
        Return the next line, None at the end; a line that is too long is cut at LINE_BYTES + 1.

        Raises:
            UnreadableFile: the file is damaged or holds no lines for too long, or a disk or network drive fails.
        """
        try:
            raw: bytes = self._text.readline(LINE_BYTES + 1)
            # The parser accepts up to LINE_BYTES including the line end, so it refuses what is cut here.
            if len(raw) > LINE_BYTES and not raw.endswith(b"\n"):
                self._pass_over_rest(len(raw))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableFile(f"{self.source.label} is damaged after line {self.number}: {error}.") from error
        except OSError as error:
            raise UnreadableFile(
                f"{self.source.label} cannot be read after line {self.number}: {error.strerror}."
            ) from error
        if not raw:
            return None
        self.number += 1
        self._blank_bytes = 0 if raw.strip() else self._blank_bytes + len(raw)
        if self._blank_bytes > BLANK_BYTES:
            raise UnreadableFile(
                f"{self.source.label} holds more than {BLANK_BYTES:,} bytes of blank lines up to line"
                f" {self.number:,}: it is no file of lines."
            )
        return raw

    def _pass_over_rest(self, size: int) -> None:
        """Read on to the end of a line of which *size* bytes are read."""
        rest = b"."
        while rest and not rest.endswith(b"\n"):
            rest = self._text.readline(_SKIP_BYTES)
            size += len(rest)
            if size > ENDLESS_BYTES:
                raise UnreadableFile(
                    f"{self.source.label} has no end of line within {ENDLESS_BYTES:,} bytes after line"
                    f" {self.number:,}: it is no file of lines."
                )


class BatchReader(Protocol):
    """Source of batches."""

    def next_batch(self) -> Batch | None:
        """
        Return the next batch, None at the end.

        Raises:
            UnreadableFile: the rest cannot be read.
        """


class LineBatches:
    """
    The batches of one open file of lines.

    Args:
        reader: the file's lines.
    """

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader

    def next_batch(self) -> Batch | None:
        """
        Return the next batch, None at the end.

        Raises:
            UnreadableFile: as :meth:`LineReader.read_line`.
        """
        batch = Batch()
        size = 0
        while len(batch.lines) + len(batch.refused) < BATCH_LINES and size < BATCH_BYTES:
            raw = self._reader.read_line()
            if raw is None:
                break
            size += len(raw)
            if raw.strip():
                self._take(raw, batch)
        if size == 0:
            return None
        batch.upto_line = self._reader.number
        batch.upto_byte = self._reader.position
        return batch

    def _take(self, raw: bytes, batch: Batch) -> None:
        number = self._reader.number
        try:
            prepared = prepare(parse_line(raw))
        except BadInput as error:
            batch.refused.append(RefusedLine.by(error, self._reader.source.label, number))
        else:
            batch.lines.append(prepared)
            batch.numbers.append(number)


@contextmanager
def opened(source: LoadSource) -> Iterator[BatchReader]:
    """
    Open *source* for reading.

    Raises:
        UnreadableFile: it cannot be opened, or is no table where a map makes lines of its rows.
        BadInput: the map names a column that the table has not.
    """
    with _open(source) as raw:
        yield _batches_of(LineReader(source, raw))


@contextmanager
def _open(source: LoadSource) -> Iterator[io.BufferedReader]:
    if source.path is None:
        yield _buffered(sys.stdin.buffer)
        return
    try:
        raw = source.path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise UnreadableFile(f"{source.label} cannot be opened: {error.strerror}.") from error
    with raw:
        # Checked again on the open file: a link may have changed since the first check.
        if not _is_readable(os.fstat(raw.fileno()).st_mode):
            raise UnreadableFile(f"{source.label} {_NO_FILE}")
        yield _buffered(raw)


def _batches_of(reader: LineReader) -> BatchReader:
    if reader.source.mapping is None:
        return LineBatches(reader)
    from imem.ingest.table_reader import MappedLines  # noqa: PLC0415 - it builds on this module

    return MappedLines(reader, reader.source.mapping)


def _buffered(stream: IO[bytes]) -> io.BufferedReader:
    return cast("io.BufferedReader", stream) if hasattr(stream, "peek") else io.BufferedReader(cast("Any", stream))
