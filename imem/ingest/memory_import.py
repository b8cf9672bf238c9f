"""
``imem memories import``: exports of other memories become memories, or items of LangGraph's store.

Each entry is a transaction of its own, and its id follows from where it came from: a second import finds it and writes
nothing, whatever became of it meanwhile. A memory that already has the entry's exact text keeps its own metadata.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from imem.ingest.line_reader import RefusedLine, UnreadableFile
from imem.ingest.memory_sources import jsonl, langgraph, mem0, zep
from imem.ingest.memory_sources.entries import ImportedItem, ImportedMemory
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.recall.memories.items import NewItem, leaves, value_text
from imem.recall.memories.namespaces import own_namespace, parse_namespace, resource_of, segment_of
from imem.services.memories import Memories

FILE_BYTES: Final = 512 * 1024 * 1024
"""Largest file, in bytes; all of it is in memory."""

ENTRY_MS: Final = 30_000
"""Budget of one entry, in milliseconds."""

_BETWEEN: Final = re.compile(r"[\s,]*")

Entry = ImportedMemory | ImportedItem


@dataclass(frozen=True, slots=True)
class Source:
    """
    How a file of a source is read.

    Attributes:
        entry: what makes an entry of a record.
        lists: keys of a document under which its list may stand.
        conversations: fields that name a message's conversation, the first counts first; none if it has no messages.
    """

    entry: Callable[[Mapping[str, Any]], Entry]
    lists: tuple[str, ...]
    conversations: tuple[str, ...] = ()


SOURCES: Final[Mapping[str, Source]] = {
    "jsonl": Source(jsonl.entry, jsonl.LISTS, jsonl.CONVERSATIONS),
    "langgraph": Source(langgraph.entry, langgraph.LISTS),
    "mem0": Source(mem0.entry, mem0.LISTS),
    "zep": Source(zep.entry, zep.LISTS, zep.CONVERSATIONS),
}
"""Those that can be imported, by name."""


@dataclass(slots=True)
class ImportReport:
    """
    The result of an import.

    Attributes:
        counts: entries by what became of them: new, updated, identical, or read in a dry run.
        refused: those that cannot be stored.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[RefusedLine] = field(default_factory=list)


def read_entries(
    path: Path, source: str, report: ImportReport, *, conversation: str | None = None
) -> Iterator[tuple[int, Entry]]:
    """
    Return the entries of a file with their lines; those that are none are noted in *report*.

    Args:
        path: JSON Lines, or a JSON document that is or holds a list.
        source: one of :data:`SOURCES`.
        conversation: that of messages for which the file names none.

    Raises:
        UnreadableFile: it cannot be read, is too large, or is no text.
    """
    kind = SOURCES[source]
    given = dict.fromkeys(kind.conversations[:1], conversation)
    try:
        if path.stat().st_size > FILE_BYTES:
            raise UnreadableFile(f"{path} is larger than {FILE_BYTES:,} bytes; split it.")
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}.") from error
    met: Counter[str] = Counter()
    for line, record, around in _records(content, kind.lists):
        try:
            found = kind.entry(_with_shared(_with_shared(_object(record), around, kind), given, kind))
        except BadInput as error:
            report.refused.append(RefusedLine.by(error, str(path), line))
            continue
        if isinstance(found, ImportedMemory) and found.numbered:
            met[found.id] += 1
            found = replace(found, id=f"{found.id}|{met[found.id]}")
        yield line, found


def _with_shared(record: dict[str, Any], around: Mapping[str, Any], kind: Source) -> dict[str, Any]:
    """Return *record* with the user and the conversation that *around* says for all, where it says none itself."""
    shared: dict[str, Any] = {}
    for names in (("user_id",), kind.conversations) if kind.conversations else ():
        if not any(record.get(name) for name in names):
            shared |= {name: around[name] for name in names if around.get(name)}
    return record | shared


def _object(record: Any) -> dict[str, Any]:
    if isinstance(record, ValueError):
        raise BadInput("line", f"is no JSON: {record}.")
    if not isinstance(record, dict):
        raise BadInput("line", "is no object.")
    return record


def _records(content: str, lists: tuple[str, ...]) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """Return the values of a document or of lines, each with the line at which it begins and the object around."""
    around: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        for number, one in enumerate(content.split("\n"), 1):
            if one.strip():
                try:
                    yield number, json.loads(one), around
                except (ValueError, RecursionError) as error:
                    yield number, ValueError(str(error)), around
        return
    start = 0
    if isinstance(whole, dict):
        name = next((name for name in lists if isinstance(whole.get(name), list)), None)
        if name is None:
            yield 1, whole, around
            return
        around = whole
        start, whole = content.index(json.dumps(name)) + len(name) + 2, whole[name]
    if not isinstance(whole, list):
        yield 1, whole, around
        return
    at, line, counted = content.index("[", start) + 1, 1, 0
    for value in whole:
        between = _BETWEEN.match(content, at)
        at = between.end() if between is not None else at
        line, counted = line + content.count("\n", counted, at), at
        yield line, value, around
        with suppress(ValueError):  # A text before the list contains its key: lines are not known.
            at = decoder.raw_decode(content, at)[1]


class MemoryImport(Memories):
    """Imports of one actor."""

    async def run(
        self, path: Path, source: str, namespace: str | None, *, conversation: str | None = None
    ) -> ImportReport:
        """
        Import a file.

        Args:
            namespace: where everything goes; by default where its source says, else the actor's own.
            conversation: that of messages for which the file names none.

        Raises:
            UnreadableFile: as :func:`read_entries`.
            PermissionDenied: the actor may not write in a namespace; what was imported before stays.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: likewise; importing again goes on.
        """
        report = ImportReport()
        for line, entry in read_entries(path, source, report, conversation=conversation):
            try:
                report.counts[await self._import(entry, source, namespace)] += 1
            except BadInput as error:
                report.refused.append(RefusedLine.by(error, str(path), line))
        return report

    async def _import(self, entry: Entry, source: str, namespace: str | None) -> str:
        due, actor = Deadline.after_ms(ENTRY_MS), self._actor
        where = namespace_of(entry, namespace, actor)
        await self._authorize(resource_of(tuple(where.split("/")), actor, Action.WRITE), Action.WRITE, due)
        if isinstance(entry, ImportedItem):
            if await self._table.items.was_put(where, entry.key, deadline=due):
                return "identical"
            created_at, known_at = (entry.created_at, entry.known_at) if actor.may_import else (None, None)
            item = NewItem(
                where, entry.key, value_text(entry.value), leaves(entry.value), created_at=created_at, known_at=known_at
            )
            await self._table.items.put(actor, [item], deadline=due)
            return "new"
        memory, created_at, known_at = entry.memory, entry.created_at, entry.known_at
        if created_at is not None and not actor.may_import:
            memory = replace(memory, metadata={**memory.metadata, "created_at": created_at.isoformat()})
            created_at = known_at = None
        if memory.occurred_at is not None and not actor.may_import:
            stated = {"occurred_at": memory.occurred_at.isoformat()}
            memory = replace(memory, metadata={**memory.metadata, **stated}, occurred_at=None)
        known = id_of(where, source, entry.id)
        done = await self._table.store(
            actor, where, memory, imported_as=known, created_at=created_at, known_at=known_at, deadline=due
        )
        return done.status.value


def namespace_of(entry: Entry, namespace: str | None, actor: Actor) -> str:
    """
    Return where an entry goes: *namespace*, where its source says, its user's or agent's, or the actor's own.

    Raises:
        BadInput: that is no namespace.
    """
    labels: tuple[str, ...] = ()
    if isinstance(entry, ImportedItem):
        labels = entry.labels
    else:
        namespace = namespace or entry.namespace
        for root, name in (("user", entry.user), ("agent", entry.agent)):
            if namespace is None and name:
                namespace = f"{root}/{segment_of(name)}"
    base = parse_namespace(namespace) if namespace is not None else own_namespace(actor)
    return "/".join(parse_namespace("/".join((*base, *map(segment_of, labels)))))


def dry_run(
    path: Path, source: str, namespace: str | None, actor: Actor, *, conversation: str | None = None
) -> ImportReport:
    """
    Read and check a file without a server.

    Raises:
        UnreadableFile: as :func:`read_entries`.
    """
    report = ImportReport()
    for line, entry in read_entries(path, source, report, conversation=conversation):
        try:
            where = namespace_of(entry, namespace, actor)
            if isinstance(entry, ImportedItem):
                NewItem(where, entry.key, value_text(entry.value))
            report.counts["read"] += 1
        except BadInput as error:
            report.refused.append(RefusedLine.by(error, str(path), line))
    return report
