"""Embedders: the one that is here, and one behind an endpoint that may answer anything."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from pydantic import SecretStr

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, SettingsError, StatementRejected, StoreUnavailable
from imem.journal.settings import Settings
from imem.kg.similarity.embedders import (
    NICENESS,
    TEXT_CHARS,
    TEXTS_A_CALL,
    Embedder,
    EndpointEmbedder,
    LocalEmbedder,
    unit,
)
from imem.kg.similarity.sentence_models import Encode, Purpose, UniversalEncoder
from imem.local.servers.jars import ENCODER
from imem.services.embedders import embedder_of
from tests.http_server import Answer, Asked, HttpServer, serving

LOCAL = embedder_of(Settings.read({}))
MULTILINGUAL = LocalEmbedder(UniversalEncoder())
TOKEN, KEY = "t0ken", "secret-key"


def soon() -> Deadline:
    return Deadline.after_ms(10_000)


@pytest.mark.parametrize("embedder", [LOCAL, MULTILINGUAL], ids=["english", "multilingual"])
async def test_what_means_alike_lies_near(embedder: Embedder) -> None:
    """Vectors have length 1, the same text has the same one, and meaning shows across words and figures."""
    texts = [
        "Demand for memory chips is strong and margins rise by 4 %.",
        "Demand for memory chips is strong and margins rise by 11.5 %.",
        "Margins of the chip maker grow as demand stays high.",
        "The court postponed the hearing about the river's dam.",
    ]
    found = await embedder.embed([*texts, texts[0]], deadline=soon())
    assert found.shape == (5, embedder.dimension)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    near = (found @ found.T - embedder.unrelated) / (1 - embedder.unrelated)
    assert near[0, 4] == pytest.approx(1.0, abs=1e-5)
    assert near[0, 1] > 0.95
    assert near[0, 1] > near[0, 2] > 0.6
    assert near[0, 3] < 0.1


@pytest.mark.parametrize("embedder", [LOCAL, MULTILINGUAL], ids=["english", "multilingual"])
async def test_a_vector_does_not_depend_on_its_batch(embedder: Embedder) -> None:
    """To the last bit: what is alike is ordered by it, and homes that were loaded in other batches must agree."""
    texts = [" ".join([*_WORDS[: 3 + 5 * nth], f"company {nth}"]) for nth in range(40)]
    together = await embedder.embed(texts, deadline=Deadline.never())
    for batch in (texts[::-1], texts[7:20], [texts[30], texts[2], texts[30]], texts[5:6]):
        found = await embedder.embed(batch, deadline=Deadline.never())
        for text, vector in zip(batch, found, strict=True):
            assert np.array_equal(vector, together[texts.index(text)]), text


async def test_figures_count_in_what_questions_are_to_find() -> None:
    """Of texts that are compared they do not; a question is encoded as one, and finds what answers it."""
    rises = ["Margins rise by 4 %.", "Margins rise by 11 %."]
    for purpose in Purpose:
        four, eleven = await LOCAL.embed(rises, deadline=soon(), purpose=purpose)
        assert np.array_equal(four, eleven) is (purpose is Purpose.COMPARE)
    texts = ["How much do margins rise?", "The court postponed the hearing."]
    [asked, _] = await LOCAL.embed(texts, deadline=soon(), purpose=Purpose.QUERY)
    found = await LOCAL.embed([rises[0], *texts], deadline=soon(), purpose=Purpose.PASSAGE)
    assert not np.array_equal(asked, found[1])
    assert asked @ found[0] > asked @ found[2]


async def test_an_encoder_that_cannot_be_fetched_is_away(tmp_path: Path) -> None:
    """What needs it waits, and the message names the ways out; nothing is fetched before the first text."""
    settings = Settings.read({"IMEM_CACHE_DIR": str(tmp_path), "IMEM_MAVEN_REPOSITORY": str(tmp_path / "empty")})
    embedder = embedder_of(settings)
    assert not (tmp_path / ENCODER).exists()
    with pytest.raises(StoreUnavailable, match="The sentence encoder cannot be fetched") as caught:
        await embedder.embed(["one"], deadline=soon())
    assert "IMEM_EMBEDDING_LOCAL" in caught.value.mend


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_has_each_local_encoder_once(tmp_path: Path) -> None:
    """However many memories it opens; a fork has its own, as a thread that uses the inherited one is not in it."""
    settings = Settings.read({"IMEM_CACHE_DIR": str(tmp_path)})
    one = embedder_of(settings)
    assert embedder_of(settings) is one
    assert embedder_of(settings.model_copy(update={"embedding_local": "universal-3"})) is not one
    assert embedder_of(settings.model_copy(update={"cache_dir": tmp_path / "other"})) is not one
    child = os.fork()
    if not child:
        code = 2
        try:
            code = int(embedder_of(settings) is one)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


_WORDS = (
    "demand for memory chips is strong while the court postponed the hearing about the river and margins of " * 20
).split()


async def test_only_the_beginning_counts() -> None:
    text = "The margin falls. " * 200
    long, short = await LOCAL.embed([text, text[:TEXT_CHARS]], deadline=soon())
    assert np.array_equal(long, short)
    assert (await LOCAL.embed([], deadline=soon())).shape == (0, LOCAL.dimension)


async def test_a_model_that_nobody_uses_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 0.2 GB in each process that used it; who wants it again gets it, and the same vectors."""
    monkeypatch.setattr("imem.kg.similarity.embedders.IDLE_S", 0.05)
    embedder = LocalEmbedder(UniversalEncoder())
    before = await embedder.embed(["The margin falls."], deadline=soon())
    assert embedder._idle is not None
    embedder._idle.join(10)
    assert embedder._encode is None
    assert np.array_equal(await embedder.embed(["The margin falls."], deadline=soon()), before)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
async def test_many_texts_are_encoded_at_low_priority() -> None:
    """So that whoever asks meanwhile is served first; a question and the rest of the process keep theirs."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    seen: list[int] = []

    class Watched(UniversalEncoder):
        def load(self) -> Encode:
            def encode(*_: object) -> Any:
                seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
                return np.ones(self.dimension, np.float32)

            return encode

    await LocalEmbedder(Watched()).embed(["text"] * 40, deadline=soon())
    assert seen == [min(own + NICENESS, 19)] * 32 + [own] * 8
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


async def test_a_deadline_ends_it() -> None:
    with pytest.raises(BudgetExceeded):
        await LOCAL.embed(["one"], deadline=Deadline.after_ms(-1))


def test_a_vector_without_direction_is_none() -> None:
    for bad in ([[0.0, 0.0]], [[float("nan"), 1.0]], [[float("inf"), 1.0]]):
        with pytest.raises(ValueError, match="direction"):
            unit(bad)


# Behind an endpoint


def vectors(*rows: Any, **more: Any) -> Answer:
    data = [{"index": index, "embedding": row, "object": "embedding"} for index, row in enumerate(rows)]
    return Answer(200, orjson.dumps({"data": data, "object": "list", **more}))


@contextmanager
def asking(*answers: Answer, dimension: int = 2) -> Iterator[tuple[HttpServer, EndpointEmbedder]]:
    given = list(answers)
    with serving(lambda _: given.pop(0) if len(given) > 1 else given[0]) as server:
        yield server, EndpointEmbedder(f"{server.url}/{TOKEN}/v1", "small", dimension, KEY)


async def test_an_endpoint_is_asked_for_many_at_once() -> None:
    """The order is that of the texts whatever that of the answer, and vectors come back with length 1."""

    def answer(asked: Asked) -> Answer:
        texts = orjson.loads(asked.body)["input"]
        data = [{"index": index, "embedding": [float(len(text)), 0.0]} for index, text in enumerate(texts)]
        return Answer(200, orjson.dumps({"data": data[::-1]}))

    with serving(answer) as server:
        endpoint = EndpointEmbedder(f"{server.url}/{TOKEN}/v1/", "small", 2, KEY)
        found = await endpoint.embed(["a" * (n + 1) for n in range(TEXTS_A_CALL + 5)], deadline=soon())
    assert found.shape == (TEXTS_A_CALL + 5, 2)
    assert np.allclose(found, [[1.0, 0.0]] * len(found))
    assert [len(orjson.loads(one.body)["input"]) for one in server.asked] == [TEXTS_A_CALL, 5]
    first = server.asked[0]
    assert first.path == f"/{TOKEN}/v1/embeddings"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert orjson.loads(first.body)["model"] == "small"
    assert TOKEN not in repr(endpoint)
    assert KEY not in repr(endpoint)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"{not json"),
        Answer(200, b"[]"),
        Answer(200, b'{"data": [{"index": 0}]}'),
        Answer(200, b'{"data": null}'),
        vectors([1.0, 0.0], [1.0, 0.0]),
        vectors([1.0, 0.0, 0.0]),
        vectors([1.0, "x"]),
        vectors([0.0, 0.0]),
        vectors(),
        Answer(200, orjson.dumps({"data": [{"index": 1, "embedding": [1.0, 0.0]}]})),
    ],
)
async def test_an_answer_that_nobody_can_use(answer: Answer) -> None:
    """Too few, too many, too long, no numbers, no direction: nothing of it is taken."""
    with asking(answer) as (_, endpoint), pytest.raises(StoreUnavailable):
        await endpoint.embed(["one"], deadline=soon())


async def test_a_refusal_names_the_settings() -> None:
    with asking(Answer(401)) as (server, endpoint), pytest.raises(StatementRejected) as caught:
        await endpoint.embed(["one"], deadline=soon())
    assert len(server.asked) == 1
    assert "IMEM_EMBEDDING_KEY" in caught.value.mend
    assert TOKEN not in str(caught.value)


async def test_a_busy_one_is_asked_again() -> None:
    with asking(Answer(503), vectors([3.0, 4.0])) as (server, endpoint):
        found = await endpoint.embed(["one"], deadline=soon())
    assert np.allclose(found, [[0.6, 0.8]])
    assert len(server.asked) == 2


# Which of them


def test_settings_choose() -> None:
    settings = Settings.read({})
    assert embedder_of(settings).model_id == "e5-small-v2-q8-figures"
    assert embedder_of(Settings.read({"IMEM_EMBEDDING_LOCAL": "universal-3"})).model_id == MULTILINGUAL.model_id
    url = SecretStr("http://127.0.0.1:1/v1")
    named = settings.model_copy(update={"embedding_url": url, "embedding_model": "small", "embedding_dimension": 384})
    chosen = embedder_of(named)
    assert (chosen.model_id, chosen.dimension) == ("endpoint:small", 384)
    for missing in ("embedding_model", "embedding_dimension"):
        with pytest.raises(SettingsError, match=f"IMEM_{missing.upper()} is not"):
            embedder_of(named.model_copy(update={missing: None}))
