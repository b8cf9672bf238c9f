"""
Reading lines: files, folders and standard input, in batches, with flat memory whatever their size.

Nothing here knows the journal; a batch that comes out is parsed, and says which of its lines were refused.
"""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, cast

from imem.recording import Prepared, prepare
from journal.errors import BadInput, ImemError
from kg.lines import LINE_BYTES, parse_line

STDIN: Final = "-"
SUFFIXES: Final = (".jsonl", ".jsonl.gz")

BATCH_LINES: Final = 500
BATCH_BYTES: Final = 4 << 20
"""A batch ends at either, so that long lines do not add up."""

SOURCE_CHARS: Final = 150
_SKIP_BYTES: Final = 1 << 16
_GZIP: Final = b"\x1f\x8b"


class UnreadableFile(ImemError):
    """A file cannot be read, or is damaged; what came before it in the same load stands."""


@dataclass(frozen=True, slots=True)
class Source:
    """
    One file on its way in.

    Attributes:
        path: where it is; None for standard input.
        name: of the source: the ordering actor is ``import:<name>``.
        shown: how messages call it, where that is not its path.
    """

    path: Path | None
    name: str
    shown: str = ""

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.shown or (str(self.path) if self.path is not None else "standard input")

    @property
    def size_bytes(self) -> int | None:
        """Its size, where that is known."""
        return self.path.stat().st_size if self.path is not None and self.path.is_file() else None


@dataclass(frozen=True, slots=True)
class Refused:
    """
    A line that was refused.

    Attributes:
        file: where it stands.
        line: its number, from 1.
        field: dotted path of the offending field, ``line`` for the whole.
        reason: what is wrong with it, and the mend if there is one.
    """

    file: str
    line: int
    field: str
    reason: str

    @classmethod
    def by(cls, error: BadInput, file: str, line: int) -> Refused:
        """Return the refusal that *error* speaks of."""
        return cls(file, line, error.field, f"{error.reason} {error.mend}".strip())


@dataclass(slots=True)
class Batch:
    """
    Consecutive lines of one file.

    Attributes:
        lines: those that can be stored.
        numbers: their line numbers.
        refused: those that cannot.
        upto_line: number of the last line read.
        upto_byte: how far into the file that is, compressed if the file is; 0 where nobody can say.
    """

    lines: list[Prepared] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    upto_line: int = 0
    upto_byte: int = 0


def sources_of(paths: Sequence[str], name: str | None = None) -> list[Source]:
    """
    Return the files that *paths* name: files, ``-``, and of a folder those that end in :data:`SUFFIXES`, sorted.

    Args:
        name: of the source, for all; by default each file's name without its suffix.

    Raises:
        BadInput: a path does not exist, a folder holds no such file, or a name cannot be one of a source.
    """
    found: list[Source] = []
    for text in paths:
        if text == STDIN:
            found.append(Source(None, name or "stdin"))
            continue
        path = Path(text)
        if not path.exists():
            raise BadInput(text, "does not exist.")
        files = _files_in(path) if path.is_dir() else [path]
        if not files:
            raise BadInput(text, f"holds no file that ends in {' or '.join(SUFFIXES)}.")
        found += [Source(file, name or _stem(file)) for file in files]
    for source in found:
        _check_name(source.name)
    return found


def _files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".jsonl") or file.name


def _check_name(name: str) -> None:
    # The name becomes part of the order of writes, in which | separates.
    if not name.isprintable() or not 0 < len(name) <= SOURCE_CHARS or "|" in name:
        raise BadInput(
            "--source",
            f"{name[:SOURCE_CHARS]!r} cannot name a source: printable, without |, at most {SOURCE_CHARS} characters.",
        )


class Lines:
    """
    The batches of one open source.

    Args:
        source: what is read.
        raw: its bytes as they lie in the file.
    """

    def __init__(self, source: Source, raw: io.BufferedReader) -> None:
        self._source = source
        self._raw = raw
        compressed = raw.peek(2)[:2] == _GZIP
        self._text: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
        self._seekable = source.path is not None and raw.seekable()
        self._number = 0

    def next_batch(self) -> Batch | None:
        """
        Return the next batch, None at the end.

        Raises:
            UnreadableFile: the file is damaged, or a disk or network drive fails.
        """
        batch = Batch()
        size = 0
        while len(batch.lines) + len(batch.refused) < BATCH_LINES and size < BATCH_BYTES:
            raw = self._read()
            if raw is None:
                break
            self._number += 1
            size += len(raw)
            if raw.strip():
                self._take(raw, batch)
        if size == 0:
            return None
        batch.upto_line = self._number
        batch.upto_byte = self._raw.tell() if self._seekable else 0
        return batch

    def _take(self, raw: bytes, batch: Batch) -> None:
        try:
            prepared = prepare(parse_line(raw))
        except BadInput as error:
            batch.refused.append(Refused.by(error, self._source.label, self._number))
        else:
            batch.lines.append(prepared)
            batch.numbers.append(self._number)

    def _read(self) -> bytes | None:
        """Return the next line, None at the end; of one that is too long, no more than shows that it is."""
        try:
            raw: bytes = self._text.readline(LINE_BYTES + 1)
            # The parser allows a line of LINE_BYTES with its end; what is cut here is longer.
            rest = raw
            while len(rest) and not rest.endswith(b"\n") and len(raw) > LINE_BYTES:
                rest = self._text.readline(_SKIP_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableFile(f"{self._source.label} is damaged after line {self._number}: {error}.") from error
        except OSError as error:
            raise UnreadableFile(
                f"{self._source.label} cannot be read after line {self._number}: {error.strerror}."
            ) from error
        return raw or None


@contextmanager
def opened(source: Source) -> Iterator[Lines]:
    """
    Open *source* for reading.

    Raises:
        UnreadableFile: it cannot be opened.
    """
    if source.path is None:
        yield Lines(source, _buffered(sys.stdin.buffer))
        return
    try:
        raw = source.path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise UnreadableFile(f"{source.label} cannot be opened: {error.strerror}.") from error
    with raw:
        yield Lines(source, _buffered(raw))


@contextmanager
def twice_readable(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """
    Copy what is no regular file to a temporary one, so that it can be read twice; files stay as they are.

    A pipe gives what it has once: the second reading would find nothing and call that a success.

    Raises:
        UnreadableFile: one cannot be read, or its copy not be written.
    """
    with tempfile.TemporaryDirectory(prefix="imem-load-") as folder:
        found = []
        for number, source in enumerate(sources):
            if source.path is not None and source.path.is_file():
                found.append(source)
                continue
            copy = Path(folder) / str(number)
            try:
                with ExitStack() as stack:
                    file = stack.enter_context(copy.open("wb"))
                    once = stack.enter_context(source.path.open("rb")) if source.path is not None else sys.stdin.buffer
                    shutil.copyfileobj(once, file)
            except OSError as error:
                raise UnreadableFile(f"{source.label} cannot be copied to be read twice: {error.strerror}.") from error
            found.append(replace(source, path=copy, shown=source.label))
        yield found


def _buffered(stream: IO[bytes]) -> io.BufferedReader:
    return cast("io.BufferedReader", stream) if hasattr(stream, "peek") else io.BufferedReader(cast("Any", stream))
