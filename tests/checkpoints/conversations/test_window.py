"""What a model gets to see of a thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from imem.checkpoints.conversations.messages import MOST_PINNED, PREFIX, SUMMARY, WINDOW, Message, StoredMessage
from imem.checkpoints.conversations.store import Conversations, SummaryOutcome
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, PostgresUnavailable, StoreUnavailable
from imem.journal.postgres.database import Database

from .conftest import Counting, Talk, assert_a_model_takes, calling, result

NEVER = Deadline.never()


class Away:
    """A summariser whose model is away."""

    def __init__(self) -> None:
        self.asked = 0

    async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
        self.asked += 1
        deadline.check("a summary")
        raise StoreUnavailable(f"Nobody summarises {len(messages)} messages.")


class Broken:
    """A summariser of somebody's own that knows nothing of our errors."""

    async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
        raise RuntimeError(f"{len(messages)} messages, and {deadline.left_s():.0f} s")


def said(number: int, **more: object) -> Message:
    return Message(role="user", content=f"message {number}", id=f"m{number}", **more)  # type: ignore[arg-type]


async def fill(conversations: Conversations, upto: int, after: int = 0) -> None:
    for number in range(after + 1, upto + 1):
        await conversations.add("w", "t", said(number), deadline=NEVER)


def seqs(window: Sequence[StoredMessage]) -> list[int]:
    return [message.seq for message in window]


@pytest.mark.spec("CK-43", "CK-46")
async def test_after_the_twenty_first_message_a_summary_stands_first(talk: Talk) -> None:
    """Twenty stand as they are; one more, and the summary of the first fifteen stands where they stood."""
    summariser = Counting()
    conversations = talk.with_summariser(summariser)
    await fill(conversations, 20)
    assert seqs(await conversations.window("w", "t", deadline=NEVER)) == list(range(1, 21))
    assert summariser.got == []

    added = await conversations.add("w", "t", said(21), deadline=NEVER)

    window = await conversations.window("w", "t", deadline=NEVER)
    assert added.summarised is SummaryOutcome.DONE
    assert len(window) == 7
    assert (window[0].role, window[0].metadata, window[0].content) == ("system", SUMMARY, f"{PREFIX}summary of 15")
    assert [message.content for message in window[1:]] == [f"message {number}" for number in range(16, 22)]
    assert seqs(window) == [1, *range(16, 22)]
    assert [message.seq for message in summariser.got[0]] == list(range(1, 16))


async def test_originals_are_marked_and_not_deleted(talk: Talk) -> None:
    """The history shows everything that was said, verbatim and by its number."""
    conversations = talk.with_summariser(Counting())
    await fill(conversations, 21)

    history = await conversations.history("w", "t", deadline=NEVER)

    (summary, *_) = await conversations.window("w", "t", deadline=NEVER)
    assert [message.content for message in history] == [f"message {number}" for number in range(1, 22)]
    assert [message.superseded_by for message in history] == [summary.id] * 15 + [None] * 6
    page = await conversations.history("w", "t", after=15, limit=2, deadline=NEVER)
    assert seqs(page) == [16, 17]


@pytest.mark.spec("CK-46")
async def test_summaries_are_summarised(talk: Talk) -> None:
    """A hundred messages: each summary takes in the one before it; the window is never longer, always in order."""
    summariser = Counting()
    conversations = talk.with_summariser(summariser)
    for number in range(1, 101):
        await conversations.add("w", "t", said(number), deadline=NEVER)
        window = await conversations.window("w", "t", deadline=NEVER)
        assert len(window) <= WINDOW
        assert seqs(window) == sorted(set(seqs(window)))
        assert window[-1].content == f"message {number}"

    assert [len(got) for got in summariser.got] == [15] * 6
    assert [got[0].is_summary for got in summariser.got] == [False] + [True] * 5
    assert await talk.summaries() == 1
    assert (await conversations.window("w", "t", deadline=NEVER))[0].depth == 6
    assert await talk.said() == list(range(1, 101))


async def test_instructions_at_the_beginning_stay(talk: Talk) -> None:
    """System messages before all others are pinned; one that comes later is summarised like the rest, unless pinned."""
    conversations = talk.with_summariser(Counting())
    for number in (1, 2):
        added = await conversations.add("w", "t", Message(role="system", content=f"rule {number}"), deadline=NEVER)
        assert added.pinned
    await fill(conversations, 5)
    later = await conversations.add("w", "t", Message(role="system", content="by the way"), deadline=NEVER)
    kept = await conversations.add("w", "t", Message(role="system", content="rule 3", pinned=True), deadline=NEVER)
    assert (later.pinned, kept.pinned) == (False, True)
    await fill(conversations, 60, after=5)

    window = await conversations.window("w", "t", deadline=NEVER)

    assert [message.content for message in window if message.pinned] == ["rule 1", "rule 2", "rule 3"]
    assert [message.content for message in window[:2]] == ["rule 1", "rule 2"]
    assert len([message for message in window if not message.pinned]) <= WINDOW
    assert seqs(window) == sorted(seqs(window))
    assert window[2].is_summary
    assert "by the way" not in [message.content for message in window]


async def test_not_everything_can_be_pinned(talk: Talk) -> None:
    """Beyond the twentieth an instruction is not pinned by itself, and cannot be."""
    conversations = talk.with_summariser(Counting())
    pinned = [
        (await conversations.add("w", "t", Message(role="system", content="rule"), deadline=NEVER)).pinned
        for _ in range(MOST_PINNED + 2)
    ]
    assert pinned == [True] * MOST_PINNED + [False] * 2
    with pytest.raises(BadInput) as caught:
        await conversations.add("w", "t", Message(role="system", content="rule", pinned=True), deadline=NEVER)
    assert caught.value.field == "pinned"
    assert await talk.said() == list(range(1, MOST_PINNED + 3))


@pytest.mark.spec("CK-45", "CK-46")
async def test_no_window_ever_begins_with_an_orphan(talk: Talk) -> None:
    """Random talk with parallel calls, summariser working or not: each window is one that a model takes."""
    chance = random.Random(7)
    away = Away()
    for thread in range(6):
        conversations = talk.with_summariser(Counting() if thread % 2 else away)
        name = f"t{thread}"
        waiting: list[str] = []
        asked: str | None = None
        for number in range(1, 91):
            if waiting and chance.random() < 0.8:
                message = result(waiting.pop(chance.randrange(len(waiting))), f"result {number}")
            elif chance.random() < 0.4:
                calls = [f"c{number}.{one}" for one in range(chance.randrange(1, 6))]
                waiting += calls
                message = calling(*calls)
            else:
                message = Message(role="user", content=f"message {number}")
            await conversations.add("w", name, message, deadline=NEVER)

            window = await conversations.window("w", name, deadline=NEVER)

            assert len(window) <= WINDOW
            assert_a_model_takes(window)
            users = [one.content for one in window if one.role == "user"]
            asked = message.content if message.role == "user" else asked
            assert asked is None or users[-1] == asked
            assert message.role != "tool" or message.content in [one.content for one in window]
        assert await talk.said(name) == list(range(1, 91))


async def test_a_late_result_brings_its_call_back(talk: Talk) -> None:
    """A result that comes after the call was summarised away stands behind it, with the results that came before."""
    conversations = talk.with_summariser(Counting())
    for message in (said(0), calling("a", "b"), result("b", "first")):
        await conversations.add("w", "t", message, deadline=NEVER)
    for number in range(1, 31):
        await conversations.add("w", "t", Message(role="system", content=f"note {number}"), deadline=NEVER)
    assert "first" not in [one.content for one in await conversations.window("w", "t", deadline=NEVER)]
    await conversations.add("w", "t", result("a", "second"), deadline=NEVER)

    window = await conversations.window("w", "t", deadline=NEVER)

    assert [(one.role, one.content) for one in window[:5]] == [
        ("system", window[0].content), ("user", "message 0"), ("assistant", ""), ("tool", "first"), ("tool", "second"),
    ]  # fmt: skip
    assert window[0].is_summary
    assert len(window) <= WINDOW


@pytest.mark.parametrize("made", [False, True])
async def test_the_question_stays_however_long_the_answer_takes(talk: Talk, *, made: bool) -> None:
    """One user message, and then calls alone, with a summary or without."""
    conversations = talk.with_summariser(Counting() if made else Away())
    await conversations.add("w", "t", said(1), deadline=NEVER)
    for number in range(30):
        for message in (calling(f"c{number}"), result(f"c{number}", f"result {number}")):
            await conversations.add("w", "t", message, deadline=NEVER)

        window = await conversations.window("w", "t", deadline=NEVER)

        assert_a_model_takes(window)
        assert [one.content for one in window if one.role == "user"] == ["message 1"]
        assert window[-1].content == f"result {number}"
        assert len(window) <= WINDOW


@pytest.mark.spec("CK-45")
async def test_parallel_calls_stay_with_all_their_results(talk: Talk) -> None:
    """Calls at the place of the cut: the summary takes in the call and every result, or none of them."""
    summariser = Counting()
    conversations = talk.with_summariser(summariser)
    await fill(conversations, 13)
    messages = [calling("a", "b", "c"), result("b"), result("a"), result("c")]
    for message in [*messages, *(Message(role="user", content="go on") for _ in range(4))]:
        await conversations.add("w", "t", message, deadline=NEVER)

    window = await conversations.window("w", "t", deadline=NEVER)

    assert [len(got) for got in summariser.got] == [13]
    assert [message.role for message in window] == ["system", "assistant", "tool", "tool", "tool", *["user"] * 4]


@pytest.mark.parametrize("summariser", [Away(), Broken()], ids=["away", "broken"])
async def test_a_model_that_fails_costs_nothing_but_the_summary(talk: Talk, summariser: Away | Broken) -> None:
    """Everything stands, the newest twenty are served, and nobody is told that adding failed."""
    conversations = talk.with_summariser(summariser)
    await fill(conversations, 20)

    added = await conversations.add("w", "t", said(21), deadline=NEVER)
    await fill(conversations, 30, after=21)

    assert added.summarised is SummaryOutcome.FAILED
    assert seqs(await conversations.window("w", "t", deadline=NEVER)) == list(range(11, 31))
    assert await talk.said() == list(range(1, 31))
    assert await talk.summaries() == 0


async def test_a_model_that_is_away_is_not_asked_with_every_message(talk: Talk) -> None:
    """After a failure the next attempts wait, each twice as long; when it is back, what had piled up is summarised."""
    away = Away()
    conversations = talk.with_summariser(away)
    await fill(conversations, 60)
    assert away.asked == 1
    talk.owner("UPDATE workflow.conversation_thread SET summarise_after = imem_now()")
    await fill(conversations, 61, after=60)
    assert away.asked == 2
    (thread,) = await talk.rows(
        "SELECT extract(epoch FROM summarise_after - imem_now())::float8 AS wait_s FROM workflow.conversation_thread"
    )
    assert 15 < thread["wait_s"] <= 20

    talk.owner("UPDATE workflow.conversation_thread SET summarise_after = imem_now()")
    counting = Counting()
    added = await talk.with_summariser(counting).add("w", "t", said(62), deadline=NEVER)

    assert added.summarised is SummaryOutcome.DONE
    window = await conversations.window("w", "t", deadline=NEVER)
    assert len(counting.got) == 3
    assert seqs(window) == [1, *range(44, 63)]
    assert await talk.summaries() == 1


async def test_the_summary_stays_while_a_later_one_cannot_be_made(talk: Talk) -> None:
    """What is older than the newest nineteen is not forgotten altogether."""
    await fill(talk.with_summariser(Counting()), 21)
    conversations = talk.with_summariser(Away())
    await fill(conversations, 50, after=21)

    window = await conversations.window("w", "t", deadline=NEVER)

    assert seqs(window) == [1, *range(32, 51)]
    assert window[0].is_summary


async def test_silence_ends_with_the_callers_time(talk: Talk) -> None:
    """A summariser that never answers holds up the adding until the deadline, and the message is there."""

    class Silent:
        async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
            try:
                async with asyncio.timeout(deadline.left_s()):
                    await asyncio.Event().wait()
            except TimeoutError as error:
                raise BudgetExceeded(f"{len(messages)} messages") from error
            raise AssertionError

    conversations = talk.with_summariser(Silent())
    await fill(conversations, 20)

    added = await conversations.add("w", "t", said(21), deadline=Deadline.after_ms(1_500))

    assert (added.new, added.summarised) == (True, SummaryOutcome.FAILED)
    assert await talk.said() == list(range(1, 22))


async def test_threads_of_one_name_in_two_workflows_have_nothing_in_common(talk: Talk) -> None:
    """Messages, numbers, ids, pins and summaries are each workflow's own."""
    conversations = talk.with_summariser(Counting())
    await fill(conversations, 25)
    await conversations.add("other", "t", Message(role="user", content="mine", id="m1"), deadline=NEVER)

    window = await conversations.window("other", "t", deadline=NEVER)

    assert [(message.seq, message.content) for message in window] == [(1, "mine")]
    assert "mine" not in [message.content for message in await conversations.window("w", "t", deadline=NEVER)]
    assert await conversations.window("w", "another", deadline=NEVER) == ()
    assert len(await conversations.history("other", "t", deadline=NEVER)) == 1


async def test_adding_twice_adds_once(talk: Talk) -> None:
    """The same message again is the same; its id with another content is refused and changes nothing."""
    conversations = talk.with_summariser(Counting())
    message = calling("a", content="Let me look.", id="one", agent_id="analyst-1")
    first = await conversations.add("w", "t", message, deadline=NEVER)
    await conversations.add("w", "t", said(2), deadline=NEVER)

    again = await conversations.add("w", "t", message, deadline=NEVER)

    assert (first.new, again.new, again.seq, again.created_at) == (True, False, 1, first.created_at)
    for other in (
        Message(role="assistant", content="Let me look.", id="one", agent_id="analyst-1"),
        calling("a", content="Let me see.", id="one", agent_id="analyst-1"),
        calling("a", content="Let me look.", id="one"),
    ):
        with pytest.raises(BadInput) as caught:
            await conversations.add("w", "t", other, deadline=NEVER)
        assert caught.value.field == "id"
    assert await talk.said() == [1, 2]


async def test_a_superseded_message_added_again_is_still_the_same(talk: Talk) -> None:
    conversations = talk.with_summariser(Counting())
    await fill(conversations, 21)
    again = await conversations.add("w", "t", said(3), deadline=NEVER)
    assert (again.new, again.seq) == (False, 3)
    assert len(await conversations.window("w", "t", deadline=NEVER)) == 7


@pytest.mark.parametrize(
    ("field", "workflow", "thread"),
    [("workflow_id", "", "t"), ("workflow_id", "w" * 201, "t"), ("thread_id", "w", ""), ("thread_id", "w", "t" * 256),
     ("thread_id", "w", "a\0")],
)  # fmt: skip
async def test_names_that_cannot_be_stored_are_refused(talk: Talk, field: str, workflow: str, thread: str) -> None:
    conversations = talk.with_summariser(Counting())
    for call in (
        conversations.add(workflow, thread, said(1), deadline=NEVER),
        conversations.window(workflow, thread, deadline=NEVER),
        conversations.summarise(workflow, thread, deadline=NEVER),
    ):
        with pytest.raises(BadInput) as caught:
            await call
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "values"), [("limit", {"limit": 0}), ("limit", {"limit": 501}), ("after", {"after": -1})]
)
async def test_a_page_that_cannot_be_is_refused(talk: Talk, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        await talk.with_summariser(Counting()).history("w", "t", deadline=NEVER, **values)
    assert caught.value.field == field


async def test_what_was_said_comes_back_as_it_was(talk: Talk) -> None:
    """Text of every kind, and JSON, bit for bit where JSON keeps bits."""
    conversations = talk.with_summariser(Counting())
    message = Message(
        role="tool", content="  «Ünïcode» \u202e\U0001f9ee\n\ttab\r\n", tool_call_id="c", agent_id="a_b-1",
        metadata={"a": [1, 2.5, None, True, {"ü": "\\u0000"}], "": "empty"},
    )  # fmt: skip
    await conversations.add("w/ ü", "t:*", calling("c"), deadline=NEVER)
    await conversations.add("w/ ü", "t:*", message, deadline=NEVER)

    _, found = await conversations.window("w/ ü", "t:*", deadline=NEVER)

    assert (found.id, found.role, found.content) == (message.id, message.role, message.content)
    assert (found.tool_call_id, found.agent_id, found.metadata) == ("c", "a_b-1", message.metadata)
    assert found.created_at.utcoffset() is not None


async def test_a_server_that_is_away_is_a_retryable_error() -> None:
    away = Database("postgresql://u:p@127.0.0.1:1/none")
    with pytest.raises(PostgresUnavailable) as caught:
        await Conversations(away).add("w", "t", said(1), deadline=Deadline.after_ms(2000))
    assert caught.value.retryable
    await away.close()
