"""Which memories become one."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from imem.recall.memories.clusters import clusters, connected

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


@pytest.mark.spec("RC-20")
@given(
    some.sets(some.tuples(some.integers(0, 30), some.integers(0, 30)), max_size=80), some.integers(2, 9), some.data()
)
def test_blocks_do_not_depend_on_ids(pairs: set[tuple[int, int]], most: int, data: some.DataObject) -> None:
    """However memories are numbered and pairs found: none is in two blocks, and round by round every pair is in one."""
    pairs = {(one, other) for one, other in pairs if one != other}
    order = {one: one for one in range(31)}
    names = dict(zip(order, data.draw(some.permutations(list(order))), strict=True))
    renamed = data.draw(some.permutations([(names[other], names[one]) for one, other in pairs]))
    blocks = connected(pairs, order, most)
    again = connected(renamed, {names[one]: rank for one, rank in order.items()}, most)
    assert again == [[names[one] for one in block] for block in blocks]
    rounds = 0
    while pairs:
        blocks = connected(pairs, order, most)
        members = [one for block in blocks for one in block]
        assert sorted(members) == sorted({one for pair in pairs for one in pair})
        assert max(map(len, blocks)) <= most
        assert any({*pair} <= {*block} for pair in pairs for block in blocks), "each round settles some"
        pairs = {pair for pair in pairs if not any({*pair} <= {*block} for block in blocks)}
        rounds += 1
    assert rounds <= 80
