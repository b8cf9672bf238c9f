"""Names become keys in one place, which refuses what could mean somebody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.cache import keys
from imem.cache.working.state import MemoryIdentity
from imem.journal.errors import BadInput

BAD_IDS = (
    "", "a" * 65, "a:b", "a*", "?", "[ab]", "a b", "a\n", "\na", "a\0", "ä", "a/b", "a.b", "{a}", "a\\", None, 7, b"a",
)  # fmt: skip
"""What no agent may be called."""


@pytest.mark.spec("CK-16")
@pytest.mark.parametrize("agent_id", BAD_IDS)
def test_agent_ids_that_could_mean_others_are_refused(agent_id: object) -> None:
    """Glob characters, separators, and whatever is not a plain name; the error names the field."""
    for build in (keys.working, keys.snapshot, lambda name: MemoryIdentity(name, "analysis", "valuation")):
        with pytest.raises(BadInput) as caught:
            build(agent_id)  # type: ignore[arg-type]
        assert caught.value.field == "agent_id"


@pytest.mark.spec("CK-16")
@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_no_key_of_one_agent_is_another_ones(one: str, other: str) -> None:
    """Whatever follows the prefix, it is not followed by another agent's name."""
    if one == other:
        return
    mine = keys.working(one)
    start = f"L1:{other}:".encode()
    assert not any(key.startswith(start) for key in (mine.meta, mine.index, mine.prefix, mine.scratch))
    assert len({mine.meta, mine.index, mine.prefix, mine.scratch, *vars_of(other)}) == 8


def vars_of(agent_id: str) -> tuple[bytes, ...]:
    its = keys.working(agent_id)
    return its.meta, its.index, its.prefix, its.scratch


def test_keys_are_those_of_the_specification() -> None:
    """Programs of other languages find them."""
    its = keys.working("val-1")
    assert (its.meta, its.index, its.prefix) == (b"L1:val-1:meta", b"L1:val-1:keys", b"L1:val-1:working:")
    assert keys.snapshot("val-1") == keys.SnapshotKeys(b"fas:l1_snapshot:val-1", b"fas:l1_snapshot_meta:val-1")
    assert keys.checkpoint("an:1", "valuation") == b"checkpoint:an:1:valuation"


def test_copies_of_two_checkpoints_never_share_a_key() -> None:
    """The id of an analysis may hold colons, a type may not."""
    with pytest.raises(BadInput, match="agent_type"):
        keys.checkpoint("a", "b:c")
    with pytest.raises(BadInput, match="analysis_id"):
        keys.checkpoint("a" * 201, "valuation")


@pytest.mark.parametrize("key", ["", "a" * 201, "a\0", "\ud800", 7, None, b"bytes"])
def test_users_keys_have_bounds(key: object) -> None:
    """1 to 200 characters of text; everything but NUL is a character."""
    with pytest.raises(BadInput) as caught:
        keys.suffix_of(key)
    assert caught.value.field == "key"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200))
def test_users_keys_come_back(key: str) -> None:
    """Whatever its characters are."""
    assert keys.name_of(keys.suffix_of(key)) == key
