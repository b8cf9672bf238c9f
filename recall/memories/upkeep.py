"""
Upkeep of memories: near-duplicates are merged, importance decays, and unused memories are deleted.

Both read by namespaces and pages. Merges, and pages of decay, are transactions of their own, and progress is noted: a
crash leaves whole steps, and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.vectors import model_number, store_deadline
from imem.recall.memories.clusters import clusters, connected
from imem.recall.memories.store import EXACT

NEIGHBOURS: Final = 50
"""Neighbours that are looked at of each new memory."""

PAGE: Final = 500
"""New memories of one statement: in a namespace of any size it ends within the server's transaction timeout."""

GATHERED: Final = 100_000
"""Most pairs of a namespace that are gathered; with more, or at the end of a run, those of some pages are merged."""

MOST_ALIKE: Final = 100
"""Most memories that are compared with one another at once; more that hang together are compared block by block."""

MAINTAINED: Final = 1_000
"""Memories that have their turn in one transaction of the daily round."""


@dataclass(frozen=True, slots=True)
class UpkeepRules:
    """
    When memories are merged, decay and are deleted; the settings ``memory_…`` of the same names, in days.

    Attributes:
        merge_similarity: memories above this similarity to one another become one, where their literals are the same.
        unused: time without an access after which importance decays; a memory without any counts from its creation.
        daily_decay: what is left of its importance a day later.
        least_importance: importance at which decay ends; below it a memory is deleted ...
        age: ... if it is older than this ...
        accesses: ... and was found less often than this.
    """

    merge_similarity: float = 0.90
    unused: timedelta = timedelta(days=30)
    daily_decay: float = 0.99
    least_importance: float = 0.1
    age: timedelta = timedelta(days=90)
    accesses: int = 3

    @classmethod
    def of(cls, settings: Settings) -> UpkeepRules:
        """Return those of the settings."""
        return cls(
            settings.memory_merge_similarity,
            timedelta(days=settings.memory_unused_days),
            settings.memory_daily_decay,
            settings.memory_least_importance,
            timedelta(days=settings.memory_delete_days),
            settings.memory_delete_accesses,
        )


async def consolidate(
    database: Database, embedder: Embedder, rules: UpkeepRules, *, until: Deadline
) -> dict[str, object]:
    """
    Merge what says the same in each namespace with new memories; messages of conversations stay as they were said.

    The one that is kept is the most important, then the longest; it gets the metadata of all, and the others are
    superseded by it.

    Raises:
        PostgresUnavailable: what was merged stays; retryable.
    """
    model = await model_number(database, embedder, deadline=store_deadline())
    merged = 0
    while not until.passed:
        wanted = {"model": model, "page": PAGE, "namespace": None, "after": None}
        found = await database.named("namespaces_to_consolidate", wanted, deadline=store_deadline())
        if not found:
            return {"merged": merged, "more": False}
        pairs: list[tuple[UUID, UUID]] = []
        # All before the first is merged: else what was recorded first would decide which of a chain become one.
        while found:
            [space] = found
            given = {**wanted, **space, "least": rules.merge_similarity, "exact": EXACT, "limit": NEIGHBOURS}
            rows = await database.named("similar_memories", given, deadline=Deadline.never())
            pairs += [(row["id"], row["other"]) for row in rows]
            if len(pairs) > GATHERED or until.left_s() <= 0.0:
                break
            wanted |= {"namespace": space["namespace"], "after": space["at"]}
            found = await database.named("namespaces_to_consolidate", wanted, deadline=store_deadline())
        merged += await _merge(database, model, pairs, rules)
        await database.execute("note_consolidated", space, deadline=store_deadline())
    return {"merged": merged, "more": True}


async def _merge(database: Database, model: int, pairs: Collection[tuple[UUID, UUID]], rules: UpkeepRules) -> int:
    """Merge what is alike in the memories of *pairs*, each of which is similar; return how many were merged."""
    ids = {"ids": list({one for pair in pairs for one in pair})}
    # By what they say and not by their ids: in whichever order they were stored, the same is kept.
    ranked = await database.named("memories_in_order", ids, deadline=store_deadline())
    order = {row["id"]: rank for rank, row in enumerate(ranked)}
    pairs = [(one, other) for one, other in pairs if one in order and other in order]
    merged = 0
    while pairs:
        compared: dict[UUID, int] = {}
        for number, block in enumerate(connected(pairs, order, MOST_ALIKE)):
            compared |= dict.fromkeys(block, number)
            merged += await _merge_block(database, model, block, order, rules)
        pairs = [(one, other) for one, other in pairs if compared[one] != compared[other]]
    return merged


async def _merge_block(
    database: Database, model: int, block: Sequence[UUID], order: Mapping[UUID, int], rules: UpkeepRules
) -> int:
    rows = await database.named("memories_alike", {"ids": list(block), "model": model}, deadline=store_deadline())
    current = {row["id"]: order[row["id"]] for row in rows}
    similarities = {frozenset((row["id"], row["other"])): row["similarity"] for row in rows if row["other"] is not None}
    merged = 0
    for keep, *others in clusters(similarities, current, rules.merge_similarity):
        [done] = await database.commit("merge_memories", {"keep": keep, "others": others}, deadline=store_deadline())
        merged += len(others) if done["merged"] else 0
    return merged


async def maintain(database: Database, rules: UpkeepRules, *, until: Deadline) -> dict[str, object]:
    """
    Let importance decay in each namespace and delete unused memories, at most once a day, however often it runs.

    Raises:
        PostgresUnavailable: finished pages stay, and the next run goes on after them; retryable.
    """
    decayed = deleted = 0
    given = {
        "page": MAINTAINED,
        "unused": rules.unused,
        "decay": rules.daily_decay,
        "least": rules.least_importance,
        "age": rules.age,
        "accesses": rules.accesses,
    }
    while not until.passed:
        found = await database.named("namespace_to_maintain", deadline=store_deadline())
        if not found:
            return {"decayed": decayed, "deleted": deleted, "more": False}
        [row] = await database.commit("maintain_memories", {**found[0], **given}, deadline=store_deadline())
        decayed, deleted = decayed + row["decayed"], deleted + row["deleted"]
    return {"decayed": decayed, "deleted": deleted, "more": True}
