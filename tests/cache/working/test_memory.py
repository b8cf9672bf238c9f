"""Working memory as an agent's program sees it."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from imem.cache.working import changes
from imem.cache.working.document import CAP_BYTES, size_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.values import SortedSet
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, NotOpen, StaleEpoch, TooLarge, UnsupportedType

from .conftest import NEVER, World, somebody
from .strategies import HOSTILE_KEYS


async def test_like_a_dict(memory: WorkingMemory) -> None:
    """Set, get, ask, remove, everything at once."""
    assert await memory.get("a") is None
    assert await memory.get("a", "b") == "b"
    await memory.set("a", "1")
    await memory.update({"b": ["x", "y"], "c": {"f": "v"}, "d": {"m"}, "e": SortedSet({"m": 1.5})})
    await memory.update({})

    assert (await memory.get("a"), await memory.get("a", raw=True)) == ("1", b"1")
    assert await memory.contains("b")
    assert not await memory.contains("z")
    assert (await memory.len(), await memory.keys()) == (5, ["a", "b", "c", "d", "e"])
    assert await memory.items() == {"a": "1", "b": ["x", "y"], "c": {"f": "v"}, "d": {"m"}, "e": {"m": 1.5}}
    assert await memory.items(raw=True) == {
        "a": b"1", "b": [b"x", b"y"], "c": {b"f": b"v"}, "d": {b"m"}, "e": {b"m": 1.5},
    }  # fmt: skip
    assert await memory.pop("b") == ["x", "y"]
    assert await memory.pop("b", "gone") == "gone"
    assert await memory.setdefault("c", "other") == {"f": "v"}
    assert await memory.setdefault("g", SortedSet({"m": 2})) == {"m": 2.0}
    assert await memory.delete("a")
    assert not await memory.delete("a")
    await memory.set("c", "another type")
    assert await memory.keys() == ["c", "d", "e", "g"]
    await memory.clear()
    assert (await memory.len(), await memory.items()) == (0, {})
    await memory.set("a", "")
    assert await memory.get("a") == ""


async def test_what_is_taken_out_comes_back_whatever_it_is(memory: WorkingMemory) -> None:
    """An error instead would be the end of it: what is no text comes as bytes."""
    await memory.update({"text": b"\xff", "list": [b"\xff", "a", b"\xfe"], "hash": {"f": b"\xff"}})

    assert await memory.pop("text") == b"\xff"
    assert await memory.list("list").pop() == b"\xfe"
    assert await memory.list("list").pop_first() == b"\xff"
    assert await memory.pop("hash") == {b"f": b"\xff"}
    assert await memory.items() == {"list": ["a"]}
    with pytest.raises(UnsupportedType, match="raw=True"):
        await memory.setdefault("bytes", b"\xff")


async def test_lists(memory: WorkingMemory) -> None:
    """Both ends, positions, trimming, removing; gone with the last item."""
    tasks = memory.list("tasks")
    assert (await tasks.all(), await tasks.len(), await tasks.pop(), await tasks.get(0)) == ([], 0, None, None)
    assert await tasks.append("b", "c", b"\xff") == 3
    assert await tasks.prepend("1", "2") == 5
    assert await tasks.range(0, 3) == ["1", "2", "b", "c"]
    assert await tasks.get(-1, raw=True) == b"\xff"
    assert await tasks.pop(raw=True) == b"\xff"
    assert await tasks.pop_first() == "1"
    await tasks.set(-1, "d")
    assert await tasks.all() == ["2", "b", "d"]
    with pytest.raises(BadInput, match="tasks: has no such item: it has 3"):
        await tasks.set(3, "x")
    assert await tasks.append("b", "b") == 5
    assert await tasks.remove("b", -1) == 1
    assert await tasks.remove("b") == 2
    assert await tasks.trim(-1, -1) == 1
    assert await tasks.all() == ["d"]
    assert await tasks.pop() == "d"
    assert not await memory.contains("tasks")


async def test_hashes(memory: WorkingMemory) -> None:
    """Fields of their own, and counters."""
    facts = memory.hash("facts")
    assert (await facts.get("a"), await facts.contains("a"), await facts.all()) == (None, False, {})
    assert await facts.put({"a": "1", "b": b"\0"}) == 2
    assert await facts.put({"a": "2", "c": "3"}) == 1
    assert (await facts.get("a"), await facts.get(b"b", raw=True), await facts.len()) == ("2", b"\0", 3)
    assert await facts.contains("b")
    assert await facts.increment("a", 40) == 42
    assert await facts.increment("n") == 1
    assert await facts.remove("a", "b", "z", "a") == 2
    assert await facts.all() == {"c": "3", "n": "1"}
    with pytest.raises(UnsupportedType, match="facts: holds no whole number"):
        await memory.write(changes.hash_put("facts", {"c": "x"}), changes.hash_add("facts", "c", 1))
    assert await facts.get("c") == "3"


async def test_sets(memory: WorkingMemory) -> None:
    """Each member once."""
    seen = memory.members("seen")
    assert (await seen.all(), await seen.contains("a")) == (set(), False)
    assert await seen.add("a", "b", "a") == 2
    assert await seen.add("b", "c") == 1
    assert (await seen.contains("c"), await seen.contains("d"), await seen.len()) == (True, False, 3)
    assert await seen.remove("a", "z") == 1
    assert await seen.all(raw=True) == {b"b", b"c"}


async def test_sorted_sets(memory: WorkingMemory) -> None:
    """Scores are doubles, infinities among them."""
    rank = memory.sorted("rank")
    assert (await rank.all(), await rank.score("a"), await rank.ranked()) == ({}, None, [])
    assert await rank.add({"a": 0.1, "b": math.inf, b"c": -1}) == 3
    assert await rank.add({"a": 1 / 3}) == 0
    assert await rank.score("a") == 1 / 3
    assert await rank.ranked() == [("c", -1.0), ("a", 1 / 3), ("b", math.inf)]
    assert await rank.ranked(0, 0, down=True) == [("b", math.inf)]
    assert await rank.increment("c", 0.5) == -0.5
    assert await rank.increment("new") == 1.0
    with pytest.raises(UnsupportedType, match="rank: infinity and minus infinity"):
        await rank.increment("b", -math.inf)
    assert await rank.remove("b", "z") == 1
    assert await rank.all() == SortedSet({"a": 1 / 3, "c": -0.5, "new": 1.0})


async def test_counters(memory: WorkingMemory) -> None:
    """Whole numbers within 2^53, which every client reads alike."""
    assert await memory.increment("n") == 1
    assert await memory.increment("n", -3) == -2
    assert await memory.increment("n", 2**53) == 2**53 - 2
    with pytest.raises(UnsupportedType, match="n: holds no whole number, or the sum would pass"):
        await memory.increment("n", 3)
    assert await memory.get("n") == str(2**53 - 2)
    await memory.set("n", "1.5")
    with pytest.raises(UnsupportedType):
        await memory.increment("n")


@pytest.mark.parametrize("key", HOSTILE_KEYS)
async def test_keys_are_never_looked_at(memory: WorkingMemory, key: str) -> None:
    """What would be a pattern, a separator or a name of ours elsewhere is a name like any other here."""
    await memory.set("other", "stays")
    await memory.list(key).append("a")
    assert await memory.keys() == sorted(["other", key])
    assert await memory.pop(key) == ["a"]
    assert await memory.items() == {"other": "stays"}


@pytest.mark.spec("CK-18")
async def test_what_cannot_be_kept_changes_nothing(world: World, memory: WorkingMemory) -> None:
    """A batch with one such value writes none of it, and the error names its key."""
    await memory.set("a", "1")
    before = world.image(memory.identity.agent_id)
    for bad in (1, None, [["nested"]], {"f": 2}, [], SortedSet({"m": float("nan")})):
        with pytest.raises(UnsupportedType) as caught:
            await memory.update({"b": "fine", "the bad one": bad})  # type: ignore[dict-item]
        assert caught.value.field == "the bad one"
    assert world.image(memory.identity.agent_id) == before


@pytest.mark.spec("CK-18")
async def test_types_that_others_wrote_are_refused(world: World, memory: WorkingMemory) -> None:
    """A stream at one of its keys is neither read, nor written, nor part of a snapshot."""
    await memory.set("s", "x")
    key = b"L1:%s:working:s" % memory.identity.agent_id.encode()
    world.bare.delete(key)
    world.bare.xadd(key, {"a": "b"})
    with pytest.raises(UnsupportedType, match="s: holds a stream"):
        await memory.list("s").append("y")
    with pytest.raises(UnsupportedType, match="s: holds a stream"):
        await memory.set("s", "y")
    with pytest.raises(Exception, match="holds a stream"):
        await memory.items()


WRONG_TYPE: dict[str, Any] = {
    "append": lambda memory: memory.list("k").append("x"),
    "range": lambda memory: memory.list("k").range(),
    "len of a list": lambda memory: memory.list("k").len(),
    "field": lambda memory: memory.hash("k").get("f"),
    "put": lambda memory: memory.hash("k").put({"f": "v"}),
    "add": lambda memory: memory.members("k").add("m"),
    "contains": lambda memory: memory.members("k").contains("m"),
    "score": lambda memory: memory.sorted("k").score("m"),
    "increment": lambda memory: memory.sorted("k").increment("m"),
}


@pytest.mark.parametrize("name", WRONG_TYPE)
async def test_a_key_of_another_type_is_named(memory: WorkingMemory, name: str) -> None:
    """And left as it is."""
    await memory.set("k", "text")
    with pytest.raises(UnsupportedType, match="k: holds a string; this needs a") as caught:
        await WRONG_TYPE[name](memory)
    assert caught.value.field == "k"
    assert await memory.items() == {"k": "text"}


# Batches


async def test_a_batch_is_made_whole(memory: WorkingMemory) -> None:
    """Several changes of one key see each other; results come in order."""
    await memory.set("old", "x")
    written = await memory.write(
        changes.list_append("log", ["a", "b", "c"]),
        changes.list_trim("log", -2, -1),
        changes.list_set("log", 0, "B"),
        changes.string_add("n", 5),
        changes.delete("old"),
        changes.hash_put("old", {"now": "a hash"}),
        changes.take("log"),
        changes.list_append("log", ["z"]),
    )

    assert written.results == (3, 2, None, b"5", 1, 1, [b"list", [b"B", b"c"]], 1)
    assert (written.rev, memory.rev) == (2, 2)
    assert await memory.items() == {"log": ["z"], "n": "5", "old": {"now": "a hash"}}


BAD_LAST: dict[str, Any] = {
    "a type": changes.set_add("text", ["x"]),
    "a position": changes.list_set("items", 3, "x"),
    "a number": changes.string_add("text", 1),
    "NaN": changes.sorted_increment("scores", "m", -math.inf),
    "a size": changes.put("large", b"x" * (CAP_BYTES - 100)),
    "a size of several": changes.list_append("items", [b"x" * CAP_BYTES]),
}


@pytest.mark.parametrize("touched", ["once", "twice"])
@pytest.mark.parametrize("name", BAD_LAST)
async def test_a_batch_that_ends_badly_never_was(world: World, name: str, touched: str) -> None:
    """The last of its changes is refused, and everything is byte for byte as it was, expiries and index included."""
    memory = await world.memory()
    await memory.update({"text": "t", "items": ["a", "b", "c"], "scores": SortedSet({"m": math.inf}), "f": {"a": "b"}})
    before = world.image(memory.identity.agent_id)
    batch = [changes.list_append("new", ["1"]), changes.hash_put("f", {"a": "c"}), changes.delete("f2")]
    if touched == "twice":
        batch += [changes.hash_remove("f", ["a"]), changes.list_pop("items"), changes.list_append("items", ["c"])]

    with pytest.raises(BadInput) as caught:
        await memory.write(*batch, BAD_LAST[name])
    assert caught.value.field == BAD_LAST[name].key
    assert world.image(memory.identity.agent_id) == before
    assert memory.rev == 1


async def test_clear_comes_first(world: World, memory: WorkingMemory) -> None:
    """A batch with it begins with nothing, and is undone with the rest of it."""
    await memory.update({"a": "1", "b": ["x"]})
    before = world.image(memory.identity.agent_id)
    with pytest.raises(UnsupportedType):
        await memory.write(changes.clear(), changes.put("b", "text"), changes.list_append("b", ["y"]))
    assert world.image(memory.identity.agent_id) == before

    await memory.write(changes.clear(), changes.list_append("a", ["y"]), changes.put("c", "2"))
    assert await memory.items() == {"a": ["y"], "c": "2"}


# Bounds


async def test_the_cap_is_exact(world: World, memory: WorkingMemory) -> None:
    """To the byte; what would pass it is named, and what makes room is taken."""
    room = CAP_BYTES - (64 + 16 + len("full"))
    await memory.set("full", b"x" * room)
    assert size_of((await world.store.read(memory.identity.agent_id, deadline=NEVER))[1]) == CAP_BYTES
    for change in (
        changes.put("more", ""),
        changes.list_append("l", [""]),
        changes.hash_add("h", "f", 1),
        changes.set_add("s", ["m"]),
        changes.sorted_add("z", {"m": 1.0}),
    ):
        with pytest.raises(TooLarge, match="8,388,608") as caught:
            await memory.write(change)
        assert caught.value.field == change.key
    with pytest.raises(TooLarge):
        await memory.set("full", b"x" * (room + 1))
    # One byte is enough, alone and among others.
    await memory.write(changes.put("full", b"x" * (room - 84)), changes.put("few", ["a"]))
    for batch in ([changes.list_set("few", 0, "ab")], [changes.delete("none"), changes.list_set("few", 0, "ab")]):
        with pytest.raises(TooLarge, match="to 8,388,609 bytes"):
            await memory.write(*batch)
    await memory.write(changes.list_set("few", 0, "b"))
    await memory.write(changes.delete("full"), changes.put("more", "x"))
    assert await memory.items() == {"few": ["b"], "more": "x"}


async def test_a_batch_has_a_bound_before_it_is_sent(memory: WorkingMemory) -> None:
    """So that a caller's mistake does not become a server's."""
    with pytest.raises(TooLarge, match="brings one write to more than 16,777,216 bytes") as caught:
        await memory.update({f"k{number}": b"x" * 4_000_000 for number in range(5)})
    assert caught.value.field == "k4"
    with pytest.raises(BadInput, match="names nothing to do"):
        await memory.write()


async def test_many_leaves_pass_at_once(memory: WorkingMemory) -> None:
    """More than one command takes."""
    many = [f"item {number}" for number in range(20_000)]
    await memory.set("list", many)
    await memory.set("hash", dict.fromkeys(many, "x"))
    await memory.set("set", set(many))
    await memory.set("sorted", SortedSet(dict.fromkeys(many, 1.0)))
    assert await memory.get("list") == many
    assert len(await memory.get("hash")) == len(await memory.get("set")) == len(await memory.get("sorted")) == 20_000
    assert await memory.list("list").append(*many) == 40_000
    assert await memory.members("set").remove(*many) == 20_000
    assert await memory.hash("hash").remove(*many) == 20_000
    assert await memory.sorted("sorted").remove(*many) == 20_000
    assert await memory.keys() == ["list"]


async def test_many_keys_are_read_at_once(memory: WorkingMemory) -> None:
    """Likewise more than one command takes, texts and others among each other."""
    given: dict[str, Any] = {f"key {number}": f"text {number}" if number % 9 else ["a"] for number in range(9_000)}
    await memory.update(given)
    assert await memory.items() == given


# Who may


async def test_a_memory_that_was_never_opened(world: World, memory: WorkingMemory) -> None:
    """And one that was cleared: every call says so."""
    await memory.set("a", "1")
    assert await world.store.clear(memory.identity.agent_id, 1, deadline=NEVER) == 1
    for call in (memory.get("a"), memory.set("a", "2"), memory.items(), memory.keys(), memory.list("l").append("x")):
        with pytest.raises(NotOpen, match="does not exist"):
            await call


async def test_epochs(world: World) -> None:
    """A later holder shuts the earlier one out, from reading as from writing; a future one has to recover first."""
    early = await world.memory()
    await early.set("a", "1")
    late = await world.memory(early.identity, epoch=7)
    assert await late.get("a") == "1"
    before = world.image(early.identity.agent_id)
    for call in (early.get("a"), early.set("a", "2"), early.items(), early.len(), early.clear()):
        with pytest.raises(StaleEpoch, match="taken over with epoch 7; this one is 1"):
            await call
    with pytest.raises(StaleEpoch):
        await world.store.open(early.identity, 6, deadline=NEVER)
    future = await world.memory(late.identity, epoch=7)
    future.epoch = 8
    for call in (future.get("a"), future.set("a", "2"), future.items(), future.len()):
        with pytest.raises(NotOpen, match="has only seen epoch 7, not 8"):
            await call
    assert world.image(early.identity.agent_id) == before


async def test_fencing_needs_no_holder(world: World, memory: WorkingMemory) -> None:
    """The manager raises the epoch; stragglers stop; content and expiry stay."""
    agent_id = memory.identity.agent_id
    await memory.set("a", "1")
    expiries = world.expiries(agent_id)
    assert await world.store.fence(agent_id, 5, deadline=NEVER)
    assert await world.store.fence(agent_id, 5, deadline=NEVER)
    with pytest.raises(StaleEpoch):
        await world.store.fence(agent_id, 4, deadline=NEVER)
    with pytest.raises(StaleEpoch):
        await memory.set("a", "2")
    assert not await world.store.fence(somebody().agent_id, 5, deadline=NEVER)
    meta, contents = await world.store.read(agent_id, epoch=5, deadline=NEVER)
    assert (meta.epoch, len(contents), world.expiries(agent_id)) == (5, 1, expiries)


async def test_opening_again(world: World, memory: WorkingMemory) -> None:
    """The same analysis finds what it had; another one is refused, unless it replaces it."""
    await memory.set("a", "1")
    again = await world.store.open(memory.identity, 1, deadline=NEVER)
    assert (again.rev, again.keys, again.epoch) == (1, 1, 1)
    other = type(memory.identity)(memory.identity.agent_id, "another analysis", "valuation")
    before = world.image(memory.identity.agent_id)
    with pytest.raises(NotOpen, match="belongs to valuation in the analysis 'analysis:"):
        await world.store.open(other, 99, deadline=NEVER)
    assert world.image(memory.identity.agent_id) == before
    replaced = await world.store.open(other, 1, replace=True, deadline=NEVER)
    assert (replaced.identity, replaced.rev, replaced.keys, replaced.size_bytes) == (other, 0, 0, 0)
    with pytest.raises(StaleEpoch):
        await world.store.open(other, 0, replace=True, deadline=NEVER)


async def test_how_it_stands(world: World, memory: WorkingMemory) -> None:
    """Meta says what a recovery and a person need to know."""
    agent_id = memory.identity.agent_id
    await memory.set("a", "1")
    assert await world.store.mark(agent_id, 1, seq=4, digest="d" * 64, rev=1, deadline=NEVER)
    meta = await world.store.meta(agent_id, deadline=NEVER)
    assert meta is not None
    assert (meta.identity, meta.epoch, meta.rev, meta.keys) == (memory.identity, 1, 1, 1)
    assert (meta.checkpoint_seq, meta.digest, meta.clean, meta.size_bytes) == (4, "d" * 64, True, 64 + 1 + 16 + 1)
    assert not await world.store.mark(agent_id, 1, seq=3, digest="e" * 64, rev=1, deadline=NEVER)
    await memory.set("b", "2")
    meta = await world.store.meta(agent_id, deadline=NEVER)
    assert meta is not None
    assert (meta.checkpoint_seq, meta.digest, meta.clean) == (4, "d" * 64, False)
    with pytest.raises(NotOpen, match="is at revision 2, behind"):
        await world.store.mark(agent_id, 1, seq=5, digest="e" * 64, rev=3, deadline=NEVER)
    assert await world.store.meta(somebody().agent_id, deadline=NEVER) is None


@pytest.mark.spec("CK-16")
async def test_nothing_touches_another_agents_keys(world: World) -> None:
    """Every command of every operation, as the server saw it, names keys of the agent alone."""
    memory = await world.memory()
    agent_id = memory.identity.agent_id
    neighbours = [type(memory.identity)(agent_id + end, "analysis", "valuation") for end in ("-", "_", "0", "x")]
    for neighbour in neighbours:
        await (await world.memory(neighbour)).update({"a": "1", "*": ["x"]})
    before = [world.image(neighbour.agent_id) for neighbour in neighbours]
    seen: list[dict[str, Any]] = []
    with world.bare.monitor() as monitor:
        await everything(world, memory)
        world.bare.echo("the end")
        for command in monitor.listen():
            if "the end" in command["command"]:
                break
            seen.append(command)

    ran = [one["command"].split(" ", 2) for one in seen if one["client_type"] == "lua"]
    start = f"L1:{agent_id}:"
    assert len(ran) > 100
    assert [words for words in ran if not words[1].strip('"').startswith(start)] == []
    assert [world.image(neighbour.agent_id) for neighbour in neighbours] == before


async def everything(world: World, memory: WorkingMemory) -> None:
    """Use every operation that there is."""
    store, agent_id = world.store, memory.identity.agent_id
    await memory.update({"*": "1", "a:b": ["x"], "h": {"f": "v"}, "s": {"m"}, "z": SortedSet({"m": 1.0})})
    await memory.write(changes.list_append("*l", ["x"]), changes.list_append("*l", ["y"]), changes.delete("?"))
    await memory.items()
    await memory.keys()
    await memory.list("a:b").trim(0, 0)
    await memory.hash("h").put({"*": "x"})
    await memory.members("s").remove("m")
    await memory.sorted("z").increment("m")
    await memory.pop("*")
    await store.heartbeat(agent_id, 1, deadline=NEVER)
    await store.fence(agent_id, 2, deadline=NEVER)
    meta, contents = await store.read(agent_id, epoch=2, deadline=NEVER)
    from imem.cache.working.document import digest
    from imem.cache.working.state import ExpiryMode

    await store.mark(agent_id, 2, seq=1, digest=digest(contents), rev=meta.rev, deadline=NEVER)
    await store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    await store.restore(memory.identity, contents, digest(contents), 3, 1, deadline=NEVER)
    await store.verify(agent_id, digest(contents), deadline=NEVER)
    await store.open(memory.identity, 3, deadline=NEVER)
    await store.clear(agent_id, 3, deadline=NEVER)


# Time


async def test_deadlines_are_kept_before_anything_is_sent(memory: WorkingMemory) -> None:
    """No time left: nothing was written."""
    with pytest.raises(BudgetExceeded, match="No time was left"):
        await memory.set("a", "1", deadline=Deadline.after_ms(-1))
    assert await memory.items() == {}


async def test_many_callers_share_few_connections(world: World) -> None:
    """Two hundred at once: each gets its own answer."""
    memory = await world.memory()
    await asyncio.gather(*(memory.set(f"k{number}", f"v{number}", deadline=NEVER) for number in range(200)))
    found = await asyncio.gather(*(memory.get(f"k{number}", deadline=NEVER) for number in range(200)))
    assert found == [f"v{number}" for number in range(200)]
    assert (memory.rev, len(world.bare.client_list()) < 20) == (200, True)


async def test_a_cancelled_call_leaves_nothing_behind(world: World) -> None:
    """Neither a slot nor half an answer: the next call gets its own."""
    memory = await world.memory()
    await memory.set("large", b"x" * 2_000_000)
    await memory.set("small", "s")
    for turns in range(1, 40):
        task = asyncio.ensure_future(memory.get("large", raw=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await memory.get("small") == "s"
