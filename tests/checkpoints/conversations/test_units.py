"""Of what a window is made: units of a call with its results, and the last question. No server needed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.conversations.messages import MOST_CALLS, SUMMARY, WINDOW, StoredMessage, answered
from imem.checkpoints.conversations.windows import MARKER, UNANSWERED, window_of
from tests.checkpoints.conversations.conftest import assert_a_model_takes, stored


def user(number: int) -> StoredMessage:
    return stored(number, f"message {number}")


def call(number: int, *ids: str) -> StoredMessage:
    return stored(number, "", "assistant", metadata={"tool_calls": [{"id": one} for one in ids]} if ids else {})


def result(number: int, of: str) -> StoredMessage:
    return stored(number, f"result {number}", "tool", tool_call_id=of)


def shown(*messages: StoredMessage) -> list[str]:
    return [f"{one.role} {one.content}".strip() for one in window_of(messages)]


IDS = st.sampled_from([f"c{number}" for number in range(8)])
MAKERS = st.one_of(
    st.just(user),
    st.lists(IDS, max_size=6, unique=True).map(lambda ids: lambda number: call(number, *ids)),
    st.integers(0, MOST_CALLS).map(lambda most: lambda number: call(number, *(f"p{one}" for one in range(most)))),
    st.one_of(IDS, st.integers(0, MOST_CALLS).map("p{}".format)).map(lambda one: lambda number: result(number, one)),
    st.just(lambda number: stored(number, "rule", "system", pinned=True)),
    st.just(lambda number: stored(number, "note", "system")),
)
THREADS = st.lists(MAKERS, max_size=50).map(lambda made: [one(number) for number, one in enumerate(made, 2)])


@given(messages=THREADS, summarised=st.booleans())
def test_every_window_is_one_that_a_model_takes(messages: Sequence[StoredMessage], *, summarised: bool) -> None:
    """Whatever comes late, twice, alone, in another order or never, and however little room there is."""
    head = [stored(1, "summary", "system", depth=1, metadata=SUMMARY)] if summarised else []
    window = window_of([*head, *messages])

    assert_a_model_takes(window)
    assert len([one for one in window if not one.pinned]) <= WINDOW
    assert [one for one in window if one.pinned] == [one for one in messages if one.pinned]
    users = [one for one in messages if one.role == "user"]
    assert [one for one in window if one.role == "user"][-1:] == users[-1:]
    said = [one for one in window if one.role != "tool"]
    assert said == sorted(said, key=lambda one: one.seq)
    recorded = {one.id: one for one in [*head, *messages]}
    for one in window:
        assert recorded.get(one.id) == one or (one.metadata, one.content) == (MARKER, UNANSWERED)
    assert len({one.id for one in window}) == len(window)


@given(THREADS)
def test_the_newest_message_is_shown(messages: Sequence[StoredMessage]) -> None:
    """Unless it is a result without a call."""
    if messages and (messages[-1].role != "tool" or answered(messages)[-1] is not None):
        assert messages[-1] in window_of(messages)


@given(THREADS)
def test_nothing_is_left_out_where_there_is_room(messages: Sequence[StoredMessage]) -> None:
    window = window_of(messages[:3])
    for message, of in zip(messages[:3], answered(messages[:3]), strict=True):
        assert message in window or len(window) > 1 or (message.role == "tool" and of is None)


def test_results_stand_behind_their_call() -> None:
    marker = f"tool {UNANSWERED}"
    late = shown(call(1, "a"), user(2), result(3, "a"))
    assert late == ["assistant", "tool result 3", "user message 2"]
    assert shown(call(1, "a"), user(2)) == ["assistant", marker, "user message 2"]
    assert shown(call(1, "a", "b"), result(2, "b"), user(3)) == ["assistant", "tool result 2", marker, "user message 3"]
    assert shown(call(1, "a", "b"), result(2, "b"), result(3, "a"))[1:] == ["tool result 2", "tool result 3"]
    assert shown(call(1, "a"), call(2, "b"), result(3, "b"), result(4, "a")) == [
        "assistant", "tool result 4", "assistant", "tool result 3",
    ]  # fmt: skip
    assert shown(result(1, "a"), call(2, "a")) == ["assistant", marker], "a result before its call"
    assert shown(result(1, "a"), user(2)) == ["user message 2"]
    assert shown(call(1, "a"), result(2, "a"), result(3, "a")) == ["assistant", "tool result 3"], "the newest counts"
    assert shown(call(1, "a"), result(2, "a"), call(3, "a"), result(4, "a")) == [
        "assistant", "tool result 2", "assistant", "tool result 4",
    ]  # fmt: skip


def test_the_largest_call_fits_with_the_question() -> None:
    """And with no more: the summary gives way."""
    ids = [str(number) for number in range(MOST_CALLS)]
    summary = stored(1, "summary", "system", depth=1, metadata=SUMMARY)
    window = window_of([summary, user(2), call(3), call(4, *ids), *(result(5 + n, one) for n, one in enumerate(ids))])

    assert [one.role for one in window] == ["user", "assistant", *["tool"] * MOST_CALLS]
    assert len(window) == WINDOW
