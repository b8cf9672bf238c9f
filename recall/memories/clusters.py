"""
Finds memories that say the same, so that they become one. Pure.

Complete linkage: two groups join only where every one of both is similar to every other, the most similar groups first.
Of a chain A~B~C without A~C two join, and the third stays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

M = TypeVar("M", bound=Hashable)


def connected(pairs: Iterable[tuple[M, M]], order: Mapping[M, int], most: int) -> list[list[M]]:
    """
    Return blocks of at most *most* that *pairs* connect, each from its first in *order* outwards; each is in one.

    Of more that hang together, pairs between two blocks are left for another round: each settles at least one pair.
    """
    beside: dict[M, set[M]] = {}
    for one, other in pairs:
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    seen: set[M] = set()
    blocks: list[list[M]] = []
    for first in sorted(beside, key=order.__getitem__):
        if first in seen:
            continue
        block = [first]
        # Breadth first: what is appended has its turn, too.
        for member in block:
            block += sorted(beside[member] - seen - {*block}, key=order.__getitem__)[: most - len(block)]
        seen |= {*block}
        blocks.append(block)
    return blocks


def clusters(similarities: Mapping[frozenset[M], float], order: Mapping[M, object], least: float) -> list[list[M]]:
    """
    Return the groups of two and more, each in *order*.

    Args:
        similarities: of pairs; one that is missing is not similar.
        order: decides between equally similar pairs; of no two memories the same.
        least: pairs above it are similar.
    """
    groups: list[tuple[M, ...]] = [(one,) for one in sorted(order, key=order.__getitem__)]  # type: ignore[arg-type]
    while True:
        joins = [
            (-linkage, first, second)
            for first in range(len(groups))
            for second in range(first + 1, len(groups))
            if (linkage := _linkage(groups[first], groups[second], similarities)) > least
        ]
        if not joins:
            return [list(group) for group in groups if len(group) > 1]
        _, first, second = min(joins)
        joined = tuple(sorted((*groups[first], *groups[second]), key=order.__getitem__))  # type: ignore[arg-type]
        rest = [group for nth, group in enumerate(groups) if nth not in {first, second}]
        groups = sorted([*rest, joined], key=lambda group: order[group[0]])  # type: ignore[arg-type,return-value]


def _linkage(one: tuple[M, ...], other: tuple[M, ...], similarities: Mapping[frozenset[M], float]) -> float:
    """Return the least similarity between one of each."""
    return min(similarities.get(frozenset((a, b)), float("-inf")) for a in one for b in other)
