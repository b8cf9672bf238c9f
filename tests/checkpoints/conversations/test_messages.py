"""Where a conversation may be cut, and what a message may be: no server needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.conversations.messages import (
    CONTENT_BYTES,
    MOST_CALLS,
    WINDOW,
    Message,
    MessageOutline,
    answered,
    cut,
)
from imem.journal.errors import BadInput, TooLarge
from tests.checkpoints.conversations.conftest import stored


def turn(role: str, tool_call_id: str | None = None, calls: frozenset[str] = frozenset()) -> MessageOutline:
    return MessageOutline("", role, tool_call_id, calls)


USER = turn("user")
CALL_IDS = st.sampled_from(["a", "b", "c", "d"])
TURNS = st.lists(
    st.one_of(
        st.just(USER),
        st.builds(lambda calls: turn("assistant", None, calls), st.frozensets(CALL_IDS, max_size=3)),
        st.builds(lambda call: turn("tool", call), CALL_IDS),
    ),
    max_size=60,
)


def test_without_tools_the_oldest_fifteen_go() -> None:
    assert cut([USER] * 21) == 15


@given(TURNS)
def test_a_cut_splits_no_call_from_a_result(turns: list[MessageOutline]) -> None:
    """Whatever was said: no result behind the cut answers a call before it, and the cut makes the thread shorter."""
    where = cut(turns)

    calls = answered(turns)
    assert not any(call is not None and call < where <= index for index, call in enumerate(calls))
    assert where == 0 or 2 <= where < len(turns)


@given(TURNS)
def test_a_cut_is_found_where_there_is_one(turns: list[MessageOutline]) -> None:
    """Nothing is left long that could be made shorter."""
    calls = answered(turns)
    allowed = [
        where
        for where in range(2, len(turns))
        if not any(call is not None and call < where <= index for index, call in enumerate(calls))
    ]

    assert (cut(turns) == 0) == (allowed == [])


def test_the_cut_moves_to_the_nearest_place_that_splits_nothing() -> None:
    """A call at the fifteenth place with two results behind it: one fewer goes."""
    turns = [USER] * 14 + [turn("assistant", None, frozenset("ab")), turn("tool", "a"), turn("tool", "b")] + [USER] * 6
    assert cut(turns) == 14
    turns = [turn("assistant", None, frozenset("ab")), *[USER] * 15, turn("tool", "a"), turn("tool", "b"), *[USER] * 4]
    assert cut(turns) == 18


def test_results_that_are_still_to_come_are_waited_for_but_not_for_ever() -> None:
    """An unanswered call stays with what follows, until nothing else is left to summarise."""
    waiting = turn("assistant", None, frozenset("a"))
    assert cut([*[USER] * 10, waiting, *[USER] * 12]) == 10
    assert cut([USER, waiting, *[USER] * 20]) == 15


def test_calls_that_are_numbered_anew_each_time_are_told_apart() -> None:
    """A result answers the nearest call of its name."""
    turns = [turn("assistant", None, frozenset("a")), turn("tool", "a")] * 12
    assert answered(turns) == [None if index % 2 == 0 else index - 1 for index in range(24)]
    assert cut(turns) in {14, 16}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("role", {"role": "robot"}),
        ("id", {"id": ""}),
        ("id", {"id": "x" * 201}),
        ("id", {"id": "a\0b"}),
        ("content", {"content": 7}),
        ("content", {"content": "a\0b"}),
        ("content", {"content": "\ud800"}),
        ("content", {"content": "x" * (CONTENT_BYTES + 1)}),
        ("content", {"content": "é" * (CONTENT_BYTES // 2 + 1)}),
        ("agent_id", {"agent_id": "a:b"}),
        ("agent_id", {"agent_id": "*"}),
        ("tool_call_id", {"role": "tool"}),
        ("tool_call_id", {"role": "tool", "tool_call_id": "x" * 256}),
        ("pinned", {"pinned": True}),
        ("metadata", {"metadata": [1]}),
        ("metadata.a", {"metadata": {"a": float("nan")}}),
        ("metadata.a", {"metadata": {"a": {1}}}),
        ("metadata.a", {"metadata": {"a": (1,)}}),
        ("metadata.a", {"metadata": {"a": "b\0"}}),
        ("metadata", {"metadata": {"a\0": "b"}}),
        ("metadata.a", {"metadata": {"a": 2**5000}}),
        ("metadata", {"metadata": {"a": "x" * 70_000}}),
        ("metadata.tool_calls", {"metadata": {"tool_calls": [{"id": "a"}]}}),
        ("metadata.tool_calls", {"role": "assistant", "metadata": {"tool_calls": "a"}}),
        ("metadata.tool_calls.id", {"role": "assistant", "metadata": {"tool_calls": [{"name": "a"}]}}),
        (
            "metadata.tool_calls",
            {"role": "assistant", "metadata": {"tool_calls": [{"id": str(n)} for n in range(MOST_CALLS + 1)]}},
        ),
    ],
)
def test_what_is_wrong_is_named(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        Message(**{"role": "user", "content": "hello", **values})
    assert caught.value.field == field
    assert isinstance(caught.value, TooLarge) == (
        (field == "content" and len(str(values["content"])) > 100_000)
        or (field == "metadata" and len(str(values["metadata"])) > 60_000)
    )


def test_a_call_of_many_tools_fits_into_a_window_with_its_results() -> None:
    assert MOST_CALLS + 2 == WINDOW, "with the question"
    calls = [{"id": str(number)} for number in range(MOST_CALLS)]
    assert len(Message(role="assistant", content="", metadata={"tool_calls": calls}).calls) == MOST_CALLS


def test_a_text_of_a_backslash_and_zeros_is_no_nul() -> None:
    assert Message(role="user", content="\\u0000", metadata={"a": "\\u0000"}).content == "\\u0000"


def test_a_message_keeps_no_hold_of_its_makers_dictionary() -> None:
    given_: dict[str, Any] = {"a": [1]}
    message = Message(role="user", content="", metadata=given_)
    given_["a"].append(2)
    assert message.metadata == {"a": [1]}


def test_the_form_of_chat_models() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    asked = stored(1, "", "assistant", metadata={"tool_calls": calls, "cost": 3})
    assert asked.to_chat() == {"role": "assistant", "content": "", "tool_calls": calls}
    assert stored(2, "42", "tool", tool_call_id="c").to_chat() == {
        "role": "tool", "content": "42", "tool_call_id": "c",
    }  # fmt: skip
