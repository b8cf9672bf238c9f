"""Summaries by a model: a real HTTP server that speaks OpenAI's chat completions, well and badly."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
import structlog

from imem.checkpoints.conversations.messages import PREFIX, Message
from imem.checkpoints.conversations.summaries import REPLY_BYTES, SUMMARY_CHARS, EndpointSummariser
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError, StatementRejected, StoreUnavailable
from tests.http_server import Answer, Asked, HttpServer, serving

from .conftest import Talk, stored

KEY = "sk-s3cret-key"
TOKEN = "t0ken-in-the-path"  # noqa: S105
MESSAGES = [stored(1, "Look at Northwind."), stored(2, "Its margin fell.", "assistant")]


def completion(text: Any) -> Answer:
    return Answer(
        200, orjson.dumps({"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})
    )


@contextmanager
def model(*answers: Answer) -> Iterator[tuple[HttpServer, EndpointSummariser]]:
    """Run a model that gives these answers in turn, the last for ever."""
    left = list(answers)

    def next_answer(_: Asked) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    with serving(next_answer) as server:
        yield server, EndpointSummariser(f"{server.url}/{TOKEN}/v1/", "small", KEY)


async def test_it_asks_as_openai_has_it() -> None:
    """One request: path, key and model as set; the talk is data in it, under an instruction of ours."""
    with model(completion("  They looked at Northwind.  ")) as (server, endpoint):
        text = await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(5000))

    (asked,) = server.asked
    body = orjson.loads(asked.body)
    assert text.strip() == "They looked at Northwind."
    assert asked.path == f"/{TOKEN}/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"
    assert set(body) == {"model", "messages"}
    assert (body["model"], [one["role"] for one in body["messages"]]) == ("small", ["system", "user"])
    assert [one["text"] for one in orjson.loads(body["messages"][1]["content"])] == [one.content for one in MESSAGES]


@pytest.mark.parametrize(
    ("base", "path"),
    [("", "/v1/chat/completions"), ("/", "/v1/chat/completions"), ("/v1", "/v1/chat/completions"),
     ("/openai/v2/", "/openai/v2/chat/completions"), ("/v1/chat/completions", "/v1/chat/completions")],
)  # fmt: skip
async def test_where_it_asks(base: str, path: str) -> None:
    with serving(lambda _: completion("done")) as server:
        await EndpointSummariser(server.url + base, "small").summarise(MESSAGES, deadline=Deadline.after_ms(5000))
    assert server.asked[0].path == path
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_busy_one_is_asked_again(status: int) -> None:
    with model(Answer(status), completion("done")) as (server, endpoint):
        assert await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(10_000)) == "done"
    assert len(server.asked) == 2


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_it_is_asked_again_when_it_says(form: str) -> None:
    """Retry-After in either form is waited for."""
    value = "2" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
    with model(Answer(429, headers={"retry-after": value}), completion("done")) as (_, endpoint):
        began = time.monotonic()
        assert await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(10_000)) == "done"
    assert 1.9 < time.monotonic() - began < 5


async def test_three_times_at_most() -> None:
    with model(Answer(500)) as (server, endpoint), pytest.raises(StoreUnavailable) as caught:
        await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(20_000))
    assert len(server.asked) == 3
    assert caught.value.retryable


async def test_it_does_not_wait_beyond_the_deadline() -> None:
    """Who is told to come again in a minute and has a second says so at once."""
    with model(Answer(429, headers={"retry-after": "60"})) as (server, endpoint):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(20_000))
    assert time.monotonic() - began < 10
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", [Answer(silent=True), Answer(drip=True, body=b"{")], ids=["silent", "dripping"])
async def test_silence_ends_at_the_deadline(answer: Answer) -> None:
    """Also where a byte comes now and then."""
    with model(answer) as (_, endpoint):
        began = time.monotonic()
        with pytest.raises(BudgetExceeded):
            await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(700))
        assert 0.6 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"{not json"),
        Answer(200, b""),
        Answer(200, b"[]"),
        Answer(200, b'{"choices": []}'),
        Answer(200, b'{"choices": [{"message": {}}]}'),
        Answer(200, b'{"error": "x"}'),
        Answer(200, b"\xff\xfe"),
        completion(None),
        completion("  "),
        completion([{"type": "text", "text": "x"}]),
        completion(7),
        Answer(200, cut=True, body=b'{"choices": '),
        Answer(200, b"\x1f\x8b\x08", headers={"content-encoding": "gzip"}),
    ],
)
async def test_an_answer_that_nobody_can_read(answer: Answer) -> None:
    with model(answer) as (_, endpoint), pytest.raises(StoreUnavailable):
        await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(10_000))


@pytest.mark.parametrize(
    "said",
    [
        "<think>They <b>.\n</think>\n\nThey looked.",
        "<Reasoning>\nHm.</Reasoning><think>So.</think> They looked.",
        "Let me think.\n</think>\n\nThey looked.",
        "Let me think.</think>They looked.",
        "Sure.\n<think>So.</think>They looked.",
        "[THINK]So.[/THINK]They looked.",
        "So.\n[/THINK]\nThey looked.",
        "<think>So.</think>\nSure.\n<reflection>Hm.</reflection >\nThey looked.",
        '<think>They say "end"</think>They looked.',
        "{ So } </thinking> They looked.",
    ],
)
async def test_what_a_model_reasons_is_no_summary(said: str) -> None:
    with model(completion(said)) as (_, endpoint):
        assert (await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(5000))).strip() == "They looked."


@pytest.mark.parametrize(
    "said", ["The tag `</think>` was missing.", 'They print "<think>" and "</think>".', "It may [think] </b> so."]
)
async def test_a_summary_that_speaks_of_the_tags_is_kept(said: str) -> None:
    with model(completion(said)) as (_, endpoint):
        assert await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(5000)) == said


@pytest.mark.parametrize(
    "said",
    [
        "<think>They looked.",
        "[THINK]They looked.",
        "Sure.\n<think>They looked.",
        "<think>So.</think><think>They looked.",
        "They looked.</think>\n",
    ],
)
async def test_reasoning_without_an_end_is_no_answer(said: str) -> None:
    with model(completion(said)) as (_, endpoint), pytest.raises(StoreUnavailable):
        await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(10_000))


async def test_an_answer_that_was_cut_off_is_no_summary() -> None:
    body = {"choices": [{"message": {"content": "They looked at"}, "finish_reason": "length"}]}
    with model(Answer(200, orjson.dumps(body))) as (server, endpoint), pytest.raises(StatementRejected, match="cut"):
        await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(5000))
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 422])
async def test_a_refusal_is_not_repeated(status: int) -> None:
    """Nor is a redirect followed: the key is for one address."""
    with serving(lambda _: completion("stolen")) as other:
        headers = {"location": f"{other.url}/v1/chat/completions"}
        with (
            model(Answer(status, headers=headers)) as (server, endpoint),
            pytest.raises(StatementRejected) as caught,
        ):
            await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(5000))
    assert (len(server.asked), other.asked) == (1, [])
    assert "IMEM_SUMMARY" in caught.value.mend


async def test_nobody_there() -> None:
    with pytest.raises(StoreUnavailable):
        await EndpointSummariser("http://127.0.0.1:1/v1", "small").summarise(MESSAGES, deadline=Deadline.after_ms(5000))


async def test_an_answer_without_end_is_not_read_to_the_end() -> None:
    answer = Answer(200, b" " * (REPLY_BYTES + 1))
    with model(answer) as (_, endpoint), pytest.raises(StoreUnavailable, match="bytes"):
        await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(10_000))


async def test_in_a_conversation(talk: Talk) -> None:
    """The model's words stand where the oldest stood, cut to their bound; what cannot be stored is left out."""
    with model(completion(f"They\0 looked. {'and looked ' * SUMMARY_CHARS}")) as (server, endpoint):
        conversations = talk.with_summariser(endpoint)
        for number in range(1, 22):
            message = Message(role="user", content=f"message {number}")
            await conversations.add("w", "t", message, deadline=Deadline.after_ms(10_000))
        window = await conversations.window("w", "t", deadline=Deadline.never())

    assert len(window) == 7
    assert window[0].content.startswith(f"{PREFIX}They looked. and")
    assert len(window[0].content) <= len(PREFIX) + SUMMARY_CHARS
    assert len(server.asked) == 1


async def test_in_a_conversation_whose_model_is_busy(talk: Talk) -> None:
    """Adding takes as long as its caller has, and the newest twenty are served."""
    with model(Answer(429, headers={"retry-after": "30"})) as (_, endpoint):
        conversations = talk.with_summariser(endpoint)
        for number in range(1, 23):
            message = Message(role="user", content=f"message {number}")
            await conversations.add("w", "t", message, deadline=Deadline.after_ms(3000))
        window = await conversations.window("w", "t", deadline=Deadline.never())
    assert [one.seq for one in window] == list(range(3, 23))


@pytest.mark.parametrize(
    "answer", [completion("done"), Answer(500), Answer(401), Answer(200, b"{"), Answer(301, headers={"location": "/x"})]
)
async def test_neither_key_nor_address_is_ever_shown(
    answer: Answer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in logs of any level or library, not in errors, not in representations."""
    shown: list[Callable[[], str]] = []
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as events, model(answer) as (_, endpoint):
        try:
            await endpoint.summarise(MESSAGES, deadline=Deadline.after_ms(4000))
        except ImemError as error:
            text = f"{error} {error!r}"
            shown.append(lambda: text)
        shown.append(lambda: repr(endpoint))
    out = capsys.readouterr()
    everything = "\n".join([caplog.text, str(events), out.out, out.err, *(one() for one in shown)])
    assert KEY not in everything
    assert TOKEN not in everything
