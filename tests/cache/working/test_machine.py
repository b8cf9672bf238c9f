"""
Working memory beside a plain dict of what it should hold, through any sequence of changes, reopenings and pauses.

After every step: the same content, the size that a recount gives, an index without gaps, and one expiry for everything
where the agent is paused.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.cache.client import Client
from imem.cache.keys import working
from imem.cache.working import changes
from imem.cache.working.changes import Change
from imem.cache.working.document import Type, contents_of, digest, document_of, size_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import ExpiryMode, ms_of
from imem.cache.working.store import WorkingStore
from imem.cache.working.values import SortedSet, entry_from, entry_of, value_of
from imem.journal.clock import ManualClock
from imem.journal.errors import BadInput

from .conftest import DAY, EXAMPLES, NEVER, World, bare_client, url_of
from .strategies import LEAVES, SCORES, VALUES, normal

KEYS = st.sampled_from(["a", "b", "*", "k:1"])
SMALL = st.one_of(st.sampled_from([b"x", b"y", b"", b"7", b"-3"]), LEAVES)
SOME = st.lists(SMALL, min_size=1, max_size=4)
PLACES = st.integers(-4, 4)

Model = dict[str, Any]
"""What each key should hold: bytes, a list, a dict, a set, a SortedSet; all leaves bytes."""


class Refused(Exception):
    """The model says that the change cannot be made."""


def raw(value: Any) -> Any:
    """Return *value* with all leaves as bytes."""
    entry = entry_of("k", value)
    made: dict[Type, Callable[[Any], Any]] = {
        Type.STRING: lambda leaves: leaves[0],
        Type.LIST: list,
        Type.HASH: dict,
        Type.SET: set,
        Type.ZSET: SortedSet,
    }
    return made[entry.type](entry.leaves)


def held(model: Model, key: str, kind: type) -> Any:
    """Return what *key* holds, put there if it holds nothing."""
    found = model.setdefault(key, kind())
    if type(found) is not kind:
        raise Refused
    return found


def number_of(text: bytes | None) -> int:
    text = b"0" if text is None else text
    if not text.removeprefix(b"-").isdigit() or abs(int(text)) > 2**53:
        raise Refused
    return int(text)


def summed(text: bytes | None, by: int) -> bytes:
    total = number_of(text) + by
    if abs(total) > 2**53:
        raise Refused
    return b"%d" % total


def apply(model: Model, change: Change) -> Any:
    """Make *change* in the model; return its result as the server states it."""
    key, arguments, operation = change.key, change.arguments, change.operation
    match operation:
        case "clear":
            model.clear()
            return Refused
        case "put" | "default" | "delete" | "take":
            before = copy.copy(model.get(key))  # Later changes of the batch change the original.
            if operation == "delete":
                return int(model.pop(key, None) is not None)
            if operation == "take":
                return model.pop(key, None)
            if operation == "put" or before is None:
                model[key] = raw(CHOSEN[id(change)])
            return None if operation == "put" else before
        case "string_add":
            if not isinstance(model.get(key, b""), bytes):
                raise Refused
            model[key] = summed(model.get(key), int(arguments[0]))
            return model[key]
    name, _, what = operation.partition("_")
    return _PARTS[name](model, key, what, arguments)


def on_list(model: Model, key: str, what: str, arguments: tuple[bytes, ...]) -> Any:
    items: list[bytes] = held(model, key, list)
    match what:
        case "append":
            items += arguments
            return len(items)
        case "prepend":
            items[:0] = arguments[::-1]
            return len(items)
        case "pop" | "pop_first":
            return items.pop(-1 if what == "pop" else 0) if items else None
        case "set":
            place = int(arguments[0])
            if not -len(items) <= place < len(items):
                raise Refused
            items[place] = arguments[1]
            return None
        case "trim":
            first, last = (int(text) for text in arguments)
            first = max(first + len(items), 0) if first < 0 else first
            last = last + len(items) if last < 0 else last
            items[:] = items[first : last + 1] if last >= 0 else []
            return len(items)
    count, item = int(arguments[0]), arguments[1]
    places = [place for place, one in enumerate(items) if one == item]
    gone = places if count == 0 else places[:count] if count > 0 else places[count:]
    items[:] = [one for place, one in enumerate(items) if place not in gone]
    return len(gone)


def on_hash(model: Model, key: str, what: str, arguments: tuple[bytes, ...]) -> Any:
    fields: dict[bytes, bytes] = held(model, key, dict)
    if what == "add":
        fields[arguments[0]] = summed(fields.get(arguments[0]), int(arguments[1]))
        return fields[arguments[0]]
    before = len(fields)
    if what == "put":
        fields.update(zip(arguments[::2], arguments[1::2], strict=True))
        return len(fields) - before
    return sum(fields.pop(field, None) is not None for field in arguments)


def on_set(model: Model, key: str, what: str, arguments: tuple[bytes, ...]) -> Any:
    members: set[bytes] = held(model, key, set)
    count = len(members & set(arguments))
    if what == "add":
        members |= set(arguments)
        return len(arguments) - count
    members -= set(arguments)
    return count


def on_sorted(model: Model, key: str, what: str, arguments: tuple[bytes, ...]) -> Any:
    scores: SortedSet = held(model, key, SortedSet)
    if what == "remove":
        return sum(scores.pop(member, None) is not None for member in arguments)
    if what == "increment":
        total = scores.get(arguments[1], 0.0) + float(arguments[0])
        if math.isnan(total):
            raise Refused
        scores[arguments[1]] = total + 0.0
        return total
    before = len(scores)
    scores.update(zip(arguments[1::2], map(float, arguments[::2]), strict=True))
    return len(scores) - before


_PARTS: dict[str, Callable[..., Any]] = {"list": on_list, "hash": on_hash, "set": on_set, "zset": on_sorted}

CHOSEN: dict[int, Any] = {}
"""What whole values were drawn for which change; a change bears its bytes alone."""

KEPT: list[Change] = []
"""So that no two changes of a run share an identity."""


@st.composite
def a_change(draw: st.DrawFn) -> Change:
    key = draw(KEYS)
    by = draw(st.integers(-5, 5) | st.integers(-(2**53), 2**53))
    make: Callable[[], Change] = draw(
        st.sampled_from(
            [
                lambda: whole(changes.put, key, draw(VALUES)),
                lambda: whole(changes.default, key, draw(VALUES)),
                lambda: changes.delete(key),
                lambda: changes.take(key),
                lambda: changes.string_add(key, by),
                lambda: changes.list_append(key, draw(SOME)),
                lambda: changes.list_prepend(key, draw(SOME)),
                lambda: changes.list_pop(key, first=draw(st.booleans())),
                lambda: changes.list_set(key, draw(PLACES), draw(SMALL)),
                lambda: changes.list_trim(key, draw(PLACES), draw(PLACES)),
                lambda: changes.list_remove(key, draw(SMALL), draw(PLACES)),
                lambda: changes.hash_put(key, draw(st.dictionaries(SMALL, SMALL, min_size=1, max_size=4))),
                lambda: changes.hash_remove(key, draw(SOME)),
                lambda: changes.hash_add(key, draw(SMALL), by),
                lambda: changes.set_add(key, draw(SOME)),
                lambda: changes.set_remove(key, draw(SOME)),
                lambda: changes.sorted_add(key, draw(st.dictionaries(SMALL, SCORES, min_size=1, max_size=4))),
                lambda: changes.sorted_remove(key, draw(SOME)),
                lambda: changes.sorted_increment(key, draw(SMALL), draw(SCORES)),
            ]
        )
    )
    change = make()
    KEPT.append(change)
    return change


def whole(build: Callable[[str, Any], Change], key: str, value: Any) -> Change:
    change = build(key, value)
    CHOSEN[id(change)] = value
    return change


BATCHES = st.lists(st.one_of(a_change(), a_change(), a_change(), st.builds(changes.clear)), min_size=1, max_size=5)
STEPS = st.one_of(
    BATCHES, BATCHES, BATCHES, BATCHES, st.sampled_from(["reopen", "pause", "resume", "restore", "later"])
)


def applied(model: Model, batch: list[Change]) -> tuple[Model, list[Any]] | None:
    """Return the model after *batch* and its results; None where it is refused. A clear comes first."""
    after = {key: value if isinstance(value, bytes) else type(value)(value) for key, value in model.items()}
    results = []
    try:
        for change in sorted(batch, key=lambda one: one.operation != "clear"):
            result = apply(after, change)
            for key in [key for key, value in after.items() if value in ([], {}, set())]:
                del after[key]
            if result is not Refused:
                results.append(result)
    except Refused:
        return None
    return after, results


def stated(change: Change, result: Any) -> Any:
    """Return what a server's *result* of *change* means."""
    if result is None or change.operation not in {"take", "default", "zset_increment"}:
        return result
    if change.operation == "zset_increment":
        return float(result)
    return value_of("k", entry_from(*result), raw=True)


async def check(world: World, memory: WorkingMemory, model: Model) -> None:
    """Compare everything."""
    agent_id = memory.identity.agent_id
    meta, contents = await world.store.read(agent_id, epoch=memory.epoch, deadline=NEVER)
    assert await memory.items(raw=True) == model
    assert normal(contents) == normal({key.encode(): entry_of(key, value) for key, value in model.items()})
    assert (meta.size_bytes, meta.keys, meta.rev) == (size_of(contents), len(model), memory.rev)
    assert digest(contents_of(document_of(contents))) == digest(contents)
    every: Any = world.bare.keys(b"L1:%s:*" % agent_id.encode())
    its = working(agent_id)
    assert set(every) - {its.meta, its.index} == {its.prefix + key.encode() for key in model}
    expiries = set(world.expiries(agent_id).values())
    assert -1 not in expiries
    if meta.mode is not ExpiryMode.ACTIVE:
        assert expiries == {ms_of(meta.expires_at)}
    else:
        assert max(expiries) <= world.now_ms + DAY / timedelta(milliseconds=1)


async def step_of(world: World, memory: WorkingMemory, model: Model, step: Any) -> tuple[WorkingMemory, Model]:
    """Take one step, compare everything, and return what goes on."""
    store, agent_id = world.store, memory.identity.agent_id
    if isinstance(step, list):
        expected = applied(model, step)
        if expected is None:
            before = world.image(agent_id)
            with pytest.raises(BadInput):
                await memory.write(*step)
            assert world.image(agent_id) == before
            return memory, model
        written = await memory.write(*step)
        model = expected[0]
        kept = [change for change in step if change.operation != "clear"]
        results = [stated(change, found) for change, found in zip(kept, written.results, strict=True)]
        assert results == expected[1]
    elif step == "reopen":
        memory = await world.memory(memory.identity, epoch=memory.epoch + 1)
    elif step in {"pause", "resume"}:
        await store.expire(agent_id, ExpiryMode.PAUSED if step == "pause" else ExpiryMode.RESUMED, deadline=NEVER)
    elif step == "restore":
        _, contents = await store.read(agent_id, deadline=NEVER)
        meta = await store.restore(memory.identity, contents, digest(contents), memory.epoch + 1, 1, deadline=NEVER)
        memory = WorkingMemory(store, meta)
    else:
        await store.heartbeat(agent_id, memory.epoch, deadline=NEVER)
    await check(world, memory, model)
    return memory, model


@asynccontextmanager
async def alone(light_stack: Any) -> AsyncIterator[World]:
    """Lend a world to a loop of its own."""
    url, clock = url_of(light_stack, "working"), ManualClock(datetime.now(UTC))
    with bare_client(url) as bare:
        async with Client(url) as client:
            yield World(WorkingStore(client, clock), client, bare, clock)


@pytest.mark.spec("CK-18", "CK-19")
@pytest.mark.longer
@EXAMPLES
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_it_holds_what_a_dict_holds(light_stack: Any, steps: list[Any]) -> None:
    """Whatever is done to it: accepted changes are made whole, refused ones leave every byte as it was."""

    async def run() -> None:
        async with alone(light_stack) as world:
            memory, model = await world.memory(), dict[str, Any]()
            for step in steps:
                memory, model = await step_of(world, memory, model, step)
            await world.store.clear(memory.identity.agent_id, memory.epoch, deadline=NEVER)
            assert world.image(memory.identity.agent_id) == {}

    asyncio.run(run())


# A long walk


POOL = (b"", b"x", b"y", b"7", b"-3", b"\xff\0", b"9007199254740991", b"long" * 30)
NUMBERS = (0.0, -0.0, 1.5, -1.5, 1 / 3, math.inf, -math.inf, 5e-324, 1e300)


def walk(chance: random.Random, model: Model) -> Change:
    """Return a change that fits what a key holds, most of the time."""
    key = chance.choice(["a", "b", "*", "k:1"])
    found = model.get(key)

    def some() -> list[bytes]:
        return chance.sample(POOL, chance.randint(1, 4))

    def scores() -> dict[bytes, float]:
        return {member: chance.choice(NUMBERS) for member in some()}

    values: list[Any] = [chance.choice(POOL), some(), set(some()), dict.fromkeys(some(), b"v"), SortedSet(scores())]
    fitting: dict[type, list[Callable[[], Change]]] = {
        bytes: [lambda: changes.string_add(key, chance.choice([1, -9, 2**53, 3]))],
        list: [
            lambda: changes.list_append(key, some()),
            lambda: changes.list_prepend(key, some()),
            lambda: changes.list_pop(key, first=chance.random() < 0.5),
            lambda: changes.list_set(key, chance.randint(-2, 1), chance.choice(POOL)),
            lambda: changes.list_trim(key, chance.randint(-4, 4), chance.randint(-4, 4)),
            lambda: changes.list_remove(key, chance.choice(POOL), chance.randint(-2, 2)),
        ],
        dict: [
            lambda: changes.hash_put(key, {field: chance.choice(POOL) for field in some()}),
            lambda: changes.hash_remove(key, some()),
            lambda: changes.hash_add(key, chance.choice(POOL), chance.choice([1, -9, 2**53])),
        ],
        set: [lambda: changes.set_add(key, some()), lambda: changes.set_remove(key, some())],
        SortedSet: [
            lambda: changes.sorted_add(key, scores()),
            lambda: changes.sorted_remove(key, some()),
            lambda: changes.sorted_increment(key, chance.choice(POOL), chance.choice(NUMBERS)),
        ],
    }
    if chance.random() < 0.15:
        build = chance.choice([changes.put, changes.default])
        change = whole(build, key, chance.choice(values))
    elif chance.random() < 0.1:
        change = chance.choice([changes.delete, changes.take])(key)
    else:
        kind = chance.choice(list(fitting)) if found is None or chance.random() < 0.05 else type(found)
        change = chance.choice(fitting[kind])()
    KEPT.append(change)
    return change


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(one, marks=pytest.mark.chaos) for one in range(6, 60))])
async def test_long_walks(world: World, seed: int) -> None:
    """Hundreds of changes that mostly fit: every operation is accepted many times, alone and among others."""
    chance, memory, model, accepted = random.Random(seed), await world.memory(), dict[str, Any](), Counter[str]()
    for number in range(600):
        step: Any = [walk(chance, model) for _ in range(chance.choice([1, 1, 1, 2, 4]))]
        if number % 40 == 39:
            step = chance.choice(["reopen", "pause", "resume", "restore", "later", [changes.clear(), *step]])
        before = model
        memory, model = await step_of(world, memory, model, step)
        if isinstance(step, list) and (model is not before):
            accepted.update(change.operation for change in step)
    rare = {operation: accepted[operation] for operation in OPERATIONS if not accepted[operation]}
    assert rare == {}


OPERATIONS = (
    "put", "default", "delete", "take", "string_add", "list_append", "list_prepend", "list_pop", "list_pop_first",
    "list_set", "list_trim", "list_remove", "hash_put", "hash_remove", "hash_add", "set_add", "set_remove", "zset_add",
    "zset_remove", "zset_increment",
)  # fmt: skip
