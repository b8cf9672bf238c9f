"""
Erasure of a person's data: the person's names and ids are replaced by a pseudonym, wherever they are stored.

First the whole of Postgres, the journal and the audit included, in one transaction with an event and an audit row that
say so; then the archives, which are built anew. A crash leaves either nothing or all of Postgres; the same call then
goes on with the archives. The hash of each event stays: whoever has an original can prove it, and the journal shows
which events were changed, when, by whom and why. The caller rebuilds the graph from the journal and drops caches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from psycopg.errors import UniqueViolation

from imem.archives.archive import MANIFEST, build
from imem.archives.building import write_rows
from imem.archives.contents import ROOT, file_path, folder_of
from imem.archives.facts import facts_of
from imem.archives.marker import check_store
from imem.archives.scoring import TIER_2
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import BadInput, ObjectMissing, shown
from imem.journal.events.entry import Tier, notice_entry
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.journal.settings import Role
from imem.kg.kinds import enums
from imem.kg.kinds.catalog import KINDS

ERASED: Final = "notice.PERSON_ERASED"
"""Kind of the event of an erasure."""

SHORTEST, LONGEST, MOST = 3, 200, 20
"""Characters of a term, and terms of one erasure."""

TERM: Final = re.compile(r"[\w .@'+:/-]+")
"""The characters of a term: letters, digits, blanks and signs that JSON and arrays write as they are."""


_OWN_WORDS: Final = frozenset(
    (
        "core", "groups", "props", "record", "correct", "link", "notice", "company", "market", "import", "from",
        "erased", "true", "false", "null",
    )
)  # fmt: skip
"""Words of events and of JSON that no kind declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    The result of an erasure, or what one would do.

    Attributes:
        pseudonym: what the terms are replaced by.
        events: events of the journal that hold a term.
        found: table → rows that hold one.
        opaque: table → rows with one in binary content, such as checkpoints: not changed; they expire.
        archives: patterns whose archives are built anew.
        files: objects of archives that hold one still: copies of files of data, which are not changed.
    """

    pseudonym: str
    events: int
    found: dict[str, int]
    opaque: dict[str, int]
    archives: tuple[str, ...]
    files: tuple[str, ...]


async def erase(
    owner: Database,
    objects: ObjectStore,
    by: Actor,
    terms: Sequence[str],
    reason: str,
    *,
    change: bool,
    deadline: Deadline,
) -> Erasure:
    """
    Replace a person's names and ids everywhere; without *change* count where they are.

    Upper and lower case are one; a term is matched as whole words.

    Args:
        owner: Postgres under its owner's login: nobody else may change what is never changed.
        terms: names, ids and addresses of the person.
        reason: why, without the terms.

    Raises:
        BadInput: a term or the reason cannot be used.
        PermissionDenied: *by* may not do it.
        PostgresUnavailable: nothing was changed; retryable.
        ObjectsUnavailable: Postgres is changed and archives are not; retryable.
    """
    asked = checked_terms(terms)
    pattern = _pattern(asked)
    if not reason.strip() or pattern.search(reason):
        raise BadInput("reason", "must say why, without the terms.")
    gateway = Gateway(owner, by)
    await gateway.authorize(Resource(ResourceType.GRAPH, "a person's data"), Action.DELETE, deadline=deadline)
    await check_store(owner, objects, deadline=deadline)
    pseudonym = f"erased-{uuid4().hex[:12]}"
    async with owner.transaction(deadline) as conn:
        if change:
            # Each event that is changed is among those that the event of the erasure names.
            await execute(conn, "erase_begin")
        [events] = await rows(conn, "erasable_events", {"terms": asked})
        try:
            tables = await rows(conn, "erase", {"terms": asked, "pseudonym": pseudonym, "change": change})
        except UniqueViolation as error:
            raise BadInput(
                "terms", "name two keys or actors, which would become one; nothing was changed.",
                mend="Give each term a call, and so a pseudonym, of its own.",
            ) from error  # fmt: skip
        found = {row["relation"]: row["hits"] for row in tables if row["hits"]}
        if change and found:
            said = {"pseudonym": pseudonym, "reason": reason, "events": events["positions"], "rows": found}
            event = notice_entry(ERASED, pseudonym, "erasure", said)
            await gateway.append_in(conn, [event], actor=by, action=Action.APPEND, deadline=deadline)
            audit = {
                "actor": by.id, "role": by.role.value, "resource_type": "graph", "resource_id": pseudonym,
                "action": "erase", "authorized": True, "reason": reason, "outcome": "done",
                "context": context_of(by, events=events["events"]),
            }  # fmt: skip
            await rows(conn, "audit", audit)
    if change and found:
        await gateway.publish_wakeup(tuple(Tier))
    archives, files = await _in_objects(owner, objects, pattern, deadline)
    for pattern_id in archives if change else ():
        await _build_anew(owner, objects, pattern_id, deadline)
    if change:
        await _delete_former(owner, objects, pattern, files, deadline)
    if change and (archives or files):
        _, files = await _in_objects(owner, objects, pattern, deadline)
    return Erasure(
        pseudonym=pseudonym, events=events["events"], found=found,
        opaque={row["relation"]: row["opaque"] for row in tables if row["opaque"]}, archives=tuple(archives),
        files=tuple(files),
    )  # fmt: skip


def checked_terms(terms: Sequence[str]) -> list[str]:
    """
    Return the terms without blanks around them.

    Raises:
        BadInput: there is none, or one is too short, has other signs than names and addresses have, or is a word of the
            product's own, as ``analysis``.
    """
    asked = sorted({term.strip() for term in terms})
    if not 0 < len(asked) <= MOST:
        raise BadInput("terms", f"must be one to {MOST} names, ids or addresses of a person.")
    for one in asked:
        if not SHORTEST <= len(one) <= LONGEST or not TERM.fullmatch(one) or not re.search(r"[^\W\d_]", one):
            raise BadInput(
                "terms",
                f"{shown(one)} is no name or address of {SHORTEST} to {LONGEST} letters, digits and . @ ' + : / -.",
            )
        if one.lower() in _own_words():
            raise BadInput("terms", f"{shown(one)} is a word that the program itself stores, and names no person.")
    return asked


def _pattern(terms: Sequence[str]) -> re.Pattern[str]:
    """Return what matches the terms as ``imem_term_pattern_v1`` does: a word also begins after an escape of JSON."""
    matches = []
    for one in terms:
        begin = r"(?:(?<!\w)|(?<=\\[bfnrt]))" if re.match(r"\w", one) else ""
        matches.append(begin + re.escape(one) + (r"(?!\w)" if re.search(r"\w$", one) else ""))
    return re.compile("|".join(matches), re.IGNORECASE)


@cache
def _own_words() -> Collection[str]:
    """Return names of kinds, fields, groups and values, in lower case: what is stored means nothing without them."""
    declared: list[type[StrEnum]] = [Role, ResourceType, Action]
    declared += [one for one in vars(enums).values() if isinstance(one, type) and issubclass(one, StrEnum)]
    words = {value.value for one in declared for value in one}
    for info in KINDS.values():
        words |= {info.label, *info.model.model_fields, *info.groups}
        words |= {name for group in info.groups.values() for name in group.model.model_fields}
    words |= _OWN_WORDS
    return {word.lower() for word in words}


# Archives


async def _in_objects(
    owner: Database, objects: ObjectStore, pattern: re.Pattern[str], deadline: Deadline
) -> tuple[list[str], list[str]]:
    """Return the patterns whose archives hold a term, or were left half deleted; and keys of objects that hold one."""
    recorded = await owner.named("archive_rows_all", deadline=deadline)
    folders = {folder_of(row["pattern_id"]): row["pattern_id"] for row in recorded}
    stored = await objects.keys(ROOT, deadline=deadline)
    held = [key for key in stored if pattern.search(unquote(key)) or await _holds(objects, key, pattern, deadline)]
    archives = {one for folder, one in folders.items() if f"{folder}/{MANIFEST}" not in stored}
    archives |= {one for folder, one in folders.items() if any(key.startswith(f"{folder}/") for key in held)}
    return sorted(archives), held


async def _holds(objects: ObjectStore, key: str, pattern: re.Pattern[str], deadline: Deadline) -> bool:
    try:
        content = await objects.get(key, deadline=deadline)
    except ObjectMissing:
        return False
    return pattern.search(content.decode(errors="replace")) is not None


async def _build_anew(owner: Database, objects: ObjectStore, pattern_id: str, deadline: Deadline) -> None:
    """Delete the archives of a pattern, but for its copies of files, and build them from what is recorded now."""
    async with owner.transaction(deadline) as conn:
        [locked] = await rows(conn, "archives_lock")
        facts = (await facts_of(conn, [pattern_id]))[pattern_id]
        tiers = {row["tier"] for row in await rows(conn, "archive_rows", {"patterns": [pattern_id]})}
        top = folder_of(pattern_id)
        copies = {f"{top}/tier{TIER_2}/{file_path(row['file_id'])}" for row in facts.files}
        await _delete(objects, top, copies, deadline)
        manifest = await build(objects, facts, locked["now"], least=tiers, deadline=deadline)
        if manifest is not None:
            await write_rows(conn, manifest)


async def _delete_former(
    owner: Database, objects: ObjectStore, pattern: re.Pattern[str], held: Collection[str], deadline: Deadline
) -> None:
    """Delete the archives that bear a term as the id of their pattern: it has another id now."""
    recorded = {folder_of(row["pattern_id"]) for row in await owner.named("archive_rows_all", deadline=deadline)}
    folders = {"/".join(key.split("/")[:2]) for key in held}
    for top in sorted(folders - recorded):
        if pattern.search(unquote(top)):
            await _delete(objects, top, (), deadline)


async def _delete(objects: ObjectStore, top: str, kept: Collection[str], deadline: Deadline) -> None:
    """Delete what is in a folder, the manifest first: without it nothing of the rest counts."""
    found = (await objects.keys(top, deadline=deadline)).keys() - {*kept}
    for key in sorted(found, key=lambda one: one != f"{top}/{MANIFEST}"):
        await objects.delete(key, deadline=deadline)
