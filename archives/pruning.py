"""
Pruning of the graph: unused records lose their texts and lists there, and keep a stub.

One event says so, the group ``archive`` of the record. Upon it the projection drops what no query finds or sorts by
(:mod:`imem.kg.kinds.archiving`); links stay. The journal is never pruned: answers read values from it as before,
:func:`detail` returns the whole record, and a rebuild projects the same stub. A crash leaves whole pages; the next run
goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from imem.archives.building import ACTOR
from imem.archives.pruning_rules import Exemption, RecordUse, grounds_of, is_prunable
from imem.jobs.lifecycle import BATCH_MS, Effects, LifecycleRuntime, finish
from imem.jobs.pipeline import Monthly, Pipeline, Report
from imem.journal.actors import Action
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, shown
from imem.journal.events.entry import JournalEntry, Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import END_OF_TIME, AsOf, dated
from imem.kg.kinds.archiving import Archive, summary_of
from imem.kg.kinds.catalog import ARCHIVE, KINDS
from imem.kg.kinds.enums import ENDED_DEBATES
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of

PRUNED_KINDS: Final = tuple(sorted(label for label, info in KINDS.items() if ARCHIVE in info.groups))
"""Kinds whose records may be pruned; decisions, outcomes, post-mortems, insights and lessons are not among them."""

WRITER: Final = "archives"
"""The subsystem that owns the group."""

PAGE: Final = 500
"""Records that are looked at in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """
    A record whose detail may leave the graph.

    Attributes:
        kind, key: the record.
        grounds: what speaks for it.
        summary: what its stub says.
    """

    kind: str
    key: str
    grounds: tuple[str, ...]
    summary: str

    @property
    def entry(self) -> JournalEntry:
        """The event upon which the projection keeps a stub."""
        group = Archive(archive_summary=self.summary, archive_grounds=self.grounds)
        return entry_of(groups_of(KINDS[self.kind].model, self.key, {ARCHIVE: group}, writer=WRITER))


async def prunable(database: Database, *, deadline: Deadline) -> AsyncIterator[Sequence[Prunable]]:
    """
    Yield the records whose detail may leave the graph, page by page; nothing is changed.

    Raises:
        PostgresUnavailable, BudgetExceeded: retryable.
    """
    cited = await database.named("prune_cited_in_debates", deadline=deadline)
    for kind in PRUNED_KINDS:
        after = ""
        while page := await database.named("prune_candidates", _parameters(kind, after, cited), deadline=deadline):
            after = page[-1]["key"]
            if found := _select(kind, page):
                yield found


def _parameters(kind: str, after: str, cited: Sequence[Row]) -> dict[str, Any]:
    keys = [row["key"] for row in cited]
    return {"kind": kind, "after": after, "limit": PAGE, "cited": keys, "ended": sorted(ENDED_DEBATES)}


def _select(kind: str, page: Sequence[Row]) -> list[Prunable]:
    return [_prunable(kind, row) for row in page if is_prunable(_use(row), row["now"])]


def _use(row: Row) -> RecordUse:
    exempt = row["exempt"]
    names = ("known_at", "recorded_at", "accesses", "relevance", "superseded")
    return RecordUse(**{name: row[name] for name in names}, exempt=None if exempt is None else Exemption(exempt))


def _prunable(kind: str, row: Row) -> Prunable:
    grounds = tuple(ground.value for ground in grounds_of(_use(row), row["now"]))
    return Prunable(kind=kind, key=row["key"], grounds=grounds, summary=summary_of(row["summary"]))


async def prune(database: Database, gateway: Gateway, *, until: Deadline) -> Report:
    """
    Do one run; each page is read and pruned in one transaction, under the lock of holds.

    A hold is placed before a page is read or after it is committed, never between.

    Returns:
        How many records of each kind were pruned.

    Raises:
        PostgresUnavailable, BudgetExceeded: committed pages stay; nodes of the others are as they were.
    """
    report = dict.fromkeys(PRUNED_KINDS, 0)
    for kind in PRUNED_KINDS:
        after = ""
        while True:
            until.check("pruning")
            async with database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
                await rows(conn, "archives_lock")
                await rows(conn, "retention_lock_holds")
                # Debates cite and dispute findings alone.
                cited = await rows(conn, "prune_cited_in_debates") if kind == "Finding" else []
                page = await rows(conn, "prune_candidates", _parameters(kind, after, cited))
                found = _select(kind, page)
                facts = [(ACTOR, Action.APPEND_PATTERNS, one.entry) for one in found]
                await finish(conn, Effects(facts=facts), gateway, until)
            if not page:
                break
            after = page[-1]["key"]
            report[kind] += len(found)
            if found:
                await gateway.publish_wakeup(tuple(Tier))
    return report


async def detail(database: Database, kind: str, key: str, *, deadline: Deadline) -> dict[str, Any]:
    """
    Return the whole of a record as the journal has it, whether the graph holds a stub of it or not.

    Raises:
        BadInput: records of that kind are not pruned, or no such record is known.
        PostgresUnavailable, BudgetExceeded: retryable.
    """
    if kind not in PRUNED_KINDS:
        raise BadInput("kind", f"must be one of {', '.join(PRUNED_KINDS)}.")
    at = AsOf(END_OF_TIME)
    found = (await dated(database, [(kind, key)], at, deadline=deadline)).records.get((kind, key))
    if found is None:
        raise BadInput("key", f"no {kind} {shown(key)} is recorded.")
    body = await database.named("body_of", {"kind": kind, "key": key, **at.limits}, deadline=deadline)
    return {
        "kind": kind, "key": key, "core": dict(found.core),
        "groups": {name: dict(group) for name, group in found.groups.items()},
        "body": body[0]["body"] if body else None, "known_at": found.known_at, "occurred_at": found.occurred_at,
    }  # fmt: skip


PRUNE: Final[Pipeline[LifecycleRuntime]] = Pipeline(
    "archives.prune",
    lambda runtime, until: prune(runtime.database, runtime.gateway, until=until),
    Monthly(3, 15),
    budget_ms=None,
)
