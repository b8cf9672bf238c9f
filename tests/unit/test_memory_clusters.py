"""Which memories become one."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from imem.recall.memories.clusters import clusters

LEAST = 0.9


@some.composite
def similar(draw: some.DrawFn) -> dict[frozenset[int], float]:
    values = some.sampled_from([0.5, 0.89, 0.9, 0.91, 0.95, 0.95, 0.99])
    return {
        frozenset(pair): draw(values)
        for pair in combinations(range(draw(some.integers(0, 8))), 2)
        if draw(some.booleans())
    }


@pytest.mark.spec("RC-20")
@given(similar(), some.randoms(use_true_random=False))
def test_the_order_does_not_matter(pairs: dict[frozenset[int], float], chance: Random) -> None:
    """However memories are numbered and pairs are found: the same groups, and every two of a group are similar."""
    order = {one: f"memory {one}" for one in range(8)}
    groups = clusters(pairs, order, LEAST)
    numbers = list(order)
    chance.shuffle(numbers)
    names = dict(zip(order, numbers, strict=True))
    shuffled = sorted(pairs.items(), key=lambda _: chance.random())
    renamed = {frozenset(names[one] for one in pair): value for pair, value in shuffled}
    again = clusters(
        renamed, {names[one]: text for one, text in sorted(order.items(), key=lambda _: chance.random())}, LEAST
    )
    assert again == [[names[one] for one in group] for group in groups]
    members = [one for group in groups for one in group]
    assert len(members) == len(set(members))
    for group in groups:
        assert all(pairs.get(frozenset(pair), 0.0) > LEAST for pair in combinations(group, 2))


@pytest.mark.spec("RC-20")
def test_a_chain_does_not_become_one() -> None:
    """A~B and B~C without A~C: the more similar two join."""
    order = {"a": 1, "b": 2, "c": 3}
    chain = {frozenset("ab"): 0.92, frozenset("bc"): 0.95, frozenset("ac"): 0.85}
    assert clusters(chain, order, LEAST) == [["b", "c"]]
    assert clusters({**chain, frozenset("ac"): 0.91}, order, LEAST) == [["a", "b", "c"]]
