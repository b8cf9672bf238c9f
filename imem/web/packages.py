"""What a reviewer sees of a task, laid out by its shape alone, so that a new kind of task needs no template. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from imem.web.rendering import text_of, words

BESIDE: Final = 3
"""Records up to which each is a column, so that they are compared; more are rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """
    A part of what is seen.

    Attributes:
        kind: ``line`` (a label with a text), ``list`` (a label with texts), ``table``, or ``group`` of further blocks.
        label: its name.
        text: of a line.
        texts: of a list.
        columns, rows: of a table; a row begins with its own heading.
        blocks: of a group.
    """

    kind: Literal["line", "list", "table", "group"]
    label: str
    text: str = ""
    texts: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    blocks: tuple[Block, ...] = ()


def blocks_of(values: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> tuple[Block, ...]:
    """
    Return the blocks of a mapping of names to values.

    Lists of records are tables; neighbours that are records of one shape, such as the two sides of a debate, stand side
    by side in one. What is empty is left out.
    """
    shown = [(name, value) for name, value in values.items() if name not in without and value not in (None, "", (), [])]
    return tuple(block for _, run in groupby(shown, _shape) for block in _run(list(run)))


def _shape(entry: tuple[str, Any]) -> tuple[str, ...]:
    """Return the names of a record; of anything else its own name, so that it stands alone."""
    name, value = entry
    return tuple(value) if isinstance(value, Mapping) else (f" {name}",)


def _run(entries: list[tuple[str, Any]]) -> Iterator[Block]:
    if len(entries) > 1:
        labels = [words(name) for name, _ in entries]
        yield _table(" and ".join(labels), labels, [value for _, value in entries])
        return
    [(name, value)] = entries
    label = words(name)
    if isinstance(value, Mapping):
        yield Block(kind="group", label=label, blocks=blocks_of(value))
    elif isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value):
        yield _table(label, [str(number) for number in range(1, len(value) + 1)], value)
    elif isinstance(value, list | tuple):
        yield Block(kind="list", label=label, texts=tuple(map(text_of, value)))
    else:
        yield Block(kind="line", label=label, text=text_of(value))


def _table(label: str, labels: Sequence[str], records: Sequence[Mapping[str, Any]]) -> Block:
    names = [name for name in dict.fromkeys(name for record in records for name in record) if _said(name, records)]
    if len(records) <= BESIDE:
        rows = tuple((words(name), *(text_of(record.get(name)) for record in records)) for name in names)
        return Block(kind="table", label=label, columns=("", *labels), rows=rows)
    rows = tuple(
        (number, *(text_of(record.get(name)) for name in names)) for number, record in zip(labels, records, strict=True)
    )
    return Block(kind="table", label=label, columns=("", *map(words, names)), rows=rows)


def _said(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    return any(record.get(name) not in (None, "", (), []) for record in records)
