"""
Updates the lists of nearest neighbours in one version of the index.

A new or changed analysis is compared with the nearest by text, with those whose lists contain it, and with those in its
own list. Its own list is computed anew; in each of the other lists it is inserted, moved or removed. A list in which
its score fell is computed anew as well, since an analysis that was cut off before may now belong into it.

Everything runs in the caller's transaction, which holds the lock: a crash leaves all or nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cachetools import LRUCache

from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, rows
from imem.kg.asof import END_OF_TIME
from imem.kg.similarity.scoring import (
    CANDIDATES,
    NEIGHBOURS,
    RULES,
    TIES,
    Features,
    Neighbour,
    asks,
    comparable,
    rank_of,
    ranked,
    reranked,
    score,
)

EVERYTHING: Final = {"known_until": END_OF_TIME, "recorded_until": END_OF_TIME}
"""Limits that exclude nothing, since stored neighbours describe the present alone."""

CACHED_FEATURES: Final = 20_000
"""Most analyses in the cache of features of one run, about 10 MB."""


@dataclass(frozen=True, slots=True)
class Build:
    """
    A version of the index.

    Attributes:
        version: its number.
        model: the model of its vectors.
        model_version: model, dimension and rules of scoring, as one text: scores of two are never mixed.
        rules: the version of the rules alone.
        current: whether it is the one that is read.
        upto: of a version being built, the last analysis inserted.
    """

    version: int
    model: int
    model_version: str
    rules: str
    current: bool
    upto: str = ""

    @classmethod
    def from_row(cls, row: Row) -> Build:
        """Return the version of a row of ``live_builds``."""
        name = model_version(row["model_id"], row["dimension"], row["rules"])
        return cls(row["version"], row["model"], name, row["rules"], row["state"] == "current", row["upto"])


def model_version(model_id: str, dimension: int, rules: str = RULES) -> str:
    """Return the name of model, dimension and rules; scores are comparable under the same name only."""
    return f"{model_id}/{dimension}/{rules}"


def features_of(row: Row, active: frozenset[str]) -> Features:
    """Return the features in a row of ``similar_features``; inactive patterns are dropped."""
    return Features(
        row["key"],
        row["subject_id"],
        row["sector"],
        row["size"],
        frozenset(row["metrics"]),
        frozenset(row["patterns"]) & active,
        asks(row["question"], row["series_id"]),
    )


@dataclass(slots=True)
class FeatureCache:
    """Features of analyses, read once in a run."""

    _cache: LRUCache[str, Features] = field(default_factory=lambda: LRUCache(CACHED_FEATURES))

    def forget(self, keys: Iterable[str]) -> None:
        """Forget those of *keys*, which may have changed."""
        for key in keys:
            self._cache.pop(key, None)

    async def of(self, conn: Connection, keys: Iterable[str]) -> dict[str, Features]:
        """Return the features of *keys*; unknown keys are left out."""
        wanted = set(keys)
        known = {key: one for key in wanted if (one := self._cache.get(key)) is not None}
        missing = sorted(wanted - known.keys())
        if missing:
            facts = await rows(conn, "similar_features", {"keys": missing, **EVERYTHING})
            shown = sorted({pattern for row in facts for pattern in row["patterns"]})
            found = await rows(conn, "active_among", {"keys": shown, **EVERYTHING}) if shown else []
            active = frozenset(row["key"] for row in found)
            for row in facts:
                known[row["key"]] = self._cache[row["key"]] = features_of(row, active)
        return known


Lists = dict[str, list[Neighbour]]
Distances = dict[str, dict[str, float]]
Offers = dict[str, dict[str, float | None]]
"""Analysis → another → the score of the two; None where they are no neighbours."""


async def nearest(conn: Connection, model: int, keys: Sequence[str]) -> Distances:
    """Return, for each of *keys*, the nearest by the index with their distances."""
    given = {"model": model, "keys": list(keys), "limit": CANDIDATES, "ties": TIES, **EVERYTHING}
    found: Distances = {key: {} for key in keys}
    for row in await rows(conn, "nearest", given):
        found[row["key"]][row["candidate"]] = row["distance"]
    return found


async def place(
    conn: Connection, build: Build, keys: Sequence[str], known: FeatureCache, near: Distances | None = None
) -> set[str]:
    """
    Update the lists of *keys* in a version, and their places in other lists; return the keys whose lists changed.

    Args:
        keys: analyses; one without a vector of the version's model is skipped.
        known: their features; those of *keys* must be current.
        near: the nearest of each by text, if they are known.
    """
    near = {key: dict(near[key]) for key in keys} if near else await nearest(conn, build.model, keys)
    naming: dict[str, set[str]] = defaultdict(set)
    for row in await rows(conn, "lists_containing", {"version": build.version, "keys": list(keys)}):
        naming[row["neighbour_id"]].add(row["analysis_id"])
    own = await _lists(conn, build, keys)
    await _measure(conn, build, near, {key: naming[key] | {one.key for one in own[key]} for key in keys})
    others = {other for found in near.values() for other in found} | {one for found in naming.values() for one in found}
    features = await known.of(conn, others | own.keys())
    offers = {
        key: {
            other: _score(near[key].get(other), features[key], features[other])
            for other in near[key].keys() | naming[key]
            if other in features
        }
        for key in keys
        if key in features
    }
    before = own | await _lists(conn, build, await _affected(conn, build, offers, naming) - own.keys())
    lists = before | {key: _best(offered) for key, offered in offers.items()}
    taken: Offers = defaultdict(dict)
    for key, offered in offers.items():
        for other in offered.keys() & lists.keys():
            taken[other][key] = offered[other]
    fallen = {other for other, offered in taken.items() if _take(lists, other, offered)}
    await _rebuild_lists(conn, build, sorted(fallen - set(keys)), lists, known)
    changed = {key for key, found in lists.items() if found != before.get(key, [])}
    await _write(conn, build, sorted(changed), lists)
    return changed


def _score(distance: float | None, one: Features, other: Features) -> float | None:
    """Return the score of two, of either as a neighbour of the other; None where they are too far or not compared."""
    return None if distance is None or not comparable(one, other) else score(1.0 - distance, one, other)


async def _affected(conn: Connection, build: Build, offers: Offers, naming: Mapping[str, set[str]]) -> set[str]:
    """
    Return whose lists may change: those that contain an analysis, and those of which one is among the best.

    The others are not read: an analysis is near to many, and among the nearest of few.
    """
    containing = {other for found in naming.values() for other in found}
    asked = {other for offered in offers.values() for other in offered} - containing
    given = {"version": build.version, "keys": sorted(asked), "rank": NEIGHBOURS}
    last = {
        row["analysis_id"]: rank_of(Neighbour(row["score"], row["neighbour_id"]))
        for row in await rows(conn, "last_of_lists", given)
    }
    return containing | {
        other
        for key, offered in offers.items()
        for other, value in offered.items()
        if value is not None and (other not in last or rank_of(Neighbour(value, key)) < last[other])
    }


def _best(offered: Mapping[str, float | None]) -> list[Neighbour]:
    return ranked(Neighbour(value, key) for key, value in offered.items() if value is not None)


def _take(lists: Lists, other: str, offered: Mapping[str, float | None]) -> bool:
    """Insert, move or remove those *offered* in the list of *other*; return whether the score of one of them fell."""
    before = lists[other]
    lists[other] = ranked([*(one for one in before if one.key not in offered), *_best(offered)])
    return any((offered[one.key] or 0.0) < one.score for one in before if one.key in offered)


async def _lists(conn: Connection, build: Build, keys: Iterable[str]) -> Lists:
    wanted = sorted(set(keys))
    found: Lists = {key: [] for key in wanted}
    for row in await rows(conn, "lists_of", {"version": build.version, "keys": wanted}) if wanted else []:
        found[row["analysis_id"]].append(Neighbour(row["score"], row["neighbour_id"]))
    return found


async def _measure(conn: Connection, build: Build, near: Distances, more: Mapping[str, set[str]]) -> None:
    """Add to *near* the distances to *more*, which the index search may not have returned."""
    pairs = [(key, other) for key in sorted(more) for other in sorted(more[key] - near[key].keys())]
    if pairs:
        ones, others = zip(*pairs, strict=True)
        given = {"model": build.model, "ones": list(ones), "others": list(others)}
        for row in await rows(conn, "distances", given):
            near[row["one"]][row["other"]] = row["distance"]


async def _rebuild_lists(
    conn: Connection, build: Build, keys: Sequence[str], lists: Lists, known: FeatureCache
) -> None:
    """Search the neighbours of *keys* again: where one fell, others may be nearer."""
    if not keys:
        return
    near = await nearest(conn, build.model, keys)
    features = await known.of(conn, {*keys, *(other for found in near.values() for other in found)})
    for key in keys:
        lists[key] = ranked([*lists[key], *reranked(features[key], list(near[key].items()), features)])


async def _write(conn: Connection, build: Build, keys: Sequence[str], lists: Lists) -> None:
    if not keys:
        return
    await execute(conn, "delete_lists", {"version": build.version, "keys": list(keys)})
    given: dict[str, Any] = {"version": build.version, "model_version": build.model_version}
    ordered = [(key, one, rank) for key in keys for rank, one in enumerate(lists[key], 1)]
    await execute(
        conn,
        "write_lists",
        {
            **given,
            "analyses": [key for key, _, _ in ordered],
            "neighbours": [one.key for _, one, _ in ordered],
            "scores": [one.score for _, one, _ in ordered],
            "ranks": [rank for _, _, rank in ordered],
        },
    )
