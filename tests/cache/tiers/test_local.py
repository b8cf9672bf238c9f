"""What one process keeps is bounded, the least recently used going first."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from imem.cache.tiers.cached_result import Bookmark, CacheEntry
from imem.cache.tiers.local import LocalCache
from imem.journal.clock import ManualClock
from tests.cache.tiers.conftest import MOMENT

MOST = 5


def entry(value: bytes = b"x", *, stale_s: float = 100, tags: tuple[str, ...] = ()) -> CacheEntry:
    return CacheEntry(
        value=value, moment=MOMENT, created_at=MOMENT, fresh_until=MOMENT,
        stale_until=MOMENT + timedelta(seconds=stale_s), bookmark=Bookmark("s", 1), tags=tags,
    )  # fmt: skip


KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdefgh"])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS), st.tuples(st.just("get"), KEYS), st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("drop_tagged"), KEYS),
)  # fmt: skip


@given(st.lists(STEPS, max_size=60))
def test_it_is_a_dict_that_forgets_what_was_used_least_recently(steps: list[tuple[str, bytes]]) -> None:
    local, model = LocalCache(ManualClock(MOMENT), most_entries=MOST), OrderedDict[bytes, bytes]()
    for nth, (what, key) in enumerate(steps):
        if what == "put":
            value = str(nth).encode()
            local.put(key, entry(value, tags=(key.decode(),)))
            model[key] = value
            model.move_to_end(key)
            while len(model) > MOST:
                model.popitem(last=False)
        elif what == "get":
            found = local.get(key)
            assert (found.value if found else None) == model.get(key)
            if key in model:
                model.move_to_end(key)
        elif what == "drop":
            local.drop(key)
            model.pop(key, None)
        else:
            assert local.drop_tagged({key.decode()}) == int(model.pop(key, None) is not None)
        assert len(local) == len(model)


def test_to_look_for_what_changed_is_not_to_use_it() -> None:
    """Several times a second somebody looks through all entries: they stay as old as they are."""
    local = LocalCache(ManualClock(MOMENT), most_entries=MOST)
    for key in b"abcde":
        local.put(bytes([key]), entry(tags=("subject:x",)))
    assert local.get(b"a") is not None
    assert local.drop_tagged({"subject:y"}) == 0
    local.put(b"f", entry())
    assert [key for key in b"abcdef" if local.get(bytes([key])) is None] == list(b"b")


def test_tags_of_what_is_gone_are_forgotten() -> None:
    local = LocalCache(ManualClock(MOMENT), most_entries=MOST)
    for nth in range(1_000):
        local.put(str(nth).encode(), entry(tags=("subject:x",)))
    assert len(local._tags) <= 2 * MOST + 101
    assert local.drop_tagged({"subject:x"}) == MOST
    assert len(local) == 0


def test_bytes_are_bounded_too() -> None:
    local = LocalCache(ManualClock(MOMENT), most_bytes=50_000)
    for nth in range(100):
        local.put(str(nth).encode(), entry(b"x" * 1_000))
        assert local._entries.currsize <= 50_000
    assert 1 < len(local) < 10
    local.put(b"larger than all", entry(b"x" * 20_000))
    assert local.get(b"larger than all") is None


def test_nothing_outlives_its_time() -> None:
    clock = ManualClock(MOMENT)
    local = LocalCache(clock)
    local.put(b"a", entry(stale_s=10))
    clock.advance(timedelta(seconds=11))
    assert local.get(b"a") is None
    local.put(b"b", entry(stale_s=10))
    assert len(local) == 0
