"""
Embedders: turn texts into vectors, so that texts of similar meaning are near one another.

There are two. The default runs a sentence encoder (:mod:`imem.kg.similarity.sentence_models`) in this process. The
other calls an OpenAI-compatible endpoint. Vectors of two models are never compared, so that each is stored with its
model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from imem.journal.deadline import Deadline
from imem.journal.endpoints.models import ModelEndpoint
from imem.journal.errors import StoreUnavailable
from imem.journal.settings import PREFIX
from imem.kg.similarity.sentence_models import Encode, Purpose, SentenceModel

Vectors = NDArray[np.float32]
"""One row a text, each of length 1."""

TEXT_CHARS: Final = 2000
"""Characters of a text that are embedded, from its beginning."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model_id(self) -> str:
        """Model and version; a text has the same vector as long as this is the same."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    def unrelated(self) -> float:
        """Cosine of texts that have nothing to do with one another, from which on their similarity counts."""

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        """
        Return the vectors of *texts*, in order; of each text the first :data:`TEXT_CHARS` characters count.

        Vectors for comparing are compared with one another, those of questions with those of passages.

        Raises:
            ImemError: none could be made.
        """


# The local one

IDLE_S: Final = 600.0
"""Time without use after which the model is unloaded, in seconds; loading it takes one or two."""

_AT_ONCE: Final = 32
"""Texts in one call of the thread; between two calls a cancellation takes effect."""

NICENESS: Final = 5
"""Added to the nice value of threads that encode a full batch: other threads get three times their processor share."""


class LocalEmbedder:
    """
    Runs a sentence encoder in this process; loaded on use, 0.2 GB, and unloaded when idle.

    A text's vector is the same to the last bit, whatever batch it is in. Encoding is CPU-bound: it runs in threads, as
    many texts at once as the model allows; one call at a time.
    """

    def __init__(self, model: SentenceModel) -> None:
        self._model = model
        self._encode: Encode | None = None
        self._busy = threading.Lock()
        self._idle: threading.Timer | None = None

    @property
    def model_id(self) -> str:
        """The encoder and its version."""
        return self._model.model_id

    @property
    def dimension(self) -> int:
        """Numbers in a vector of this model."""
        return self._model.dimension

    @property
    def unrelated(self) -> float:
        """Cosine of unrelated texts."""
        return self._model.unrelated

    @property
    def languages(self) -> frozenset[str]:
        """Codes of the languages that the model was trained for."""
        return self._model.languages

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded now."""
        return self._encode is not None

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        """
        Return the vectors; see :class:`Embedder`.

        Raises:
            BudgetExceeded: the deadline passed between two parts.
            StoreUnavailable: the encoder cannot be fetched; retryable.
        """
        parts = []
        for start in range(0, len(texts), _AT_ONCE):
            deadline.check("vectors")
            parts.append(await asyncio.to_thread(self._vectors, texts[start : start + _AT_ONCE], purpose))
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float32)

    def _vectors(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        with self._busy:
            if self._idle is not None:
                self._idle.cancel()
            if self._encode is None:
                self._encode = self._model.load()
            encode = self._encode
            begin = _lower_priority if len(texts) == _AT_ONCE else None
            with ThreadPoolExecutor(self._model.threads, initializer=begin) as pool:
                found = unit(np.stack(list(pool.map(lambda text: encode(text[:TEXT_CHARS], purpose), texts))))
            self._idle = threading.Timer(IDLE_S, self._let_go)
            self._idle.daemon = True
            self._idle.start()
            return found

    def _let_go(self) -> None:
        """Unload the model; each process of a worker may hold one."""
        with self._busy:
            self._encode = None


def _lower_priority() -> None:
    """Lower the priority of this thread, where threads have one of their own."""
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)


def unit(vectors: Any) -> Vectors:
    """
    Scale *vectors* to length 1, so that the cosine of two is their product.

    Raises:
        ValueError: a vector is zero or not finite.
    """
    found = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise ValueError("A vector has no direction.")
    return np.asarray(found / lengths, dtype=np.float32)


# Models behind an endpoint

TEXTS_A_CALL: Final = 64
REPLY_BYTES: Final = 16 * 1024 * 1024
"""Longest response that is read, in bytes: 64 vectors of 2,000 numbers are a quarter of it."""


class EndpointEmbedder:
    """
    Calls a model behind an OpenAI-compatible endpoint.

    Args:
        url: the base of ``embeddings``; see :class:`imem.journal.endpoints.models.ModelEndpoint`.
        model: the model's name there.
        dimension: of its vectors.
        key: sent as a bearer token, if given; never shown.
    """

    def __init__(self, url: str, model: str, dimension: int, key: str | None = None) -> None:
        self._endpoint = ModelEndpoint(url, "embeddings", "vectors", "EMBEDDING", key)
        self._model = model
        self._dimension = dimension

    def __repr__(self) -> str:
        return f"EndpointEmbedder(model={self._model!r}, dimension={self._dimension})"

    @property
    def model_id(self) -> str:
        """The model's name; the endpoint that serves it makes no difference."""
        return f"endpoint:{self._model}"

    @property
    def dimension(self) -> int:
        """Numbers in a vector, from the settings."""
        return self._dimension

    @property
    def unrelated(self) -> float:
        """0: of most models' unrelated texts."""
        return 0.0

    async def embed(
        self,
        texts: Sequence[str],
        *,
        deadline: Deadline,
        purpose: Purpose = Purpose.COMPARE,  # noqa: ARG002 - it takes none
    ) -> Vectors:
        """
        Return the vectors; see :class:`Embedder`.

        Raises:
            StoreUnavailable: it cannot be reached, is busy, or its response is invalid; retryable.
            StatementRejected: it refuses: the URL, the model or the key is wrong.
            BudgetExceeded: it did not answer before *deadline*.
        """
        parts = [np.empty((0, self._dimension), np.float32)]
        for start in range(0, len(texts), TEXTS_A_CALL):
            few = [text[:TEXT_CHARS] for text in texts[start : start + TEXTS_A_CALL]]
            body = orjson.dumps({"model": self._model, "input": few, "encoding_format": "float"})
            answer = await self._endpoint.ask(body, most_bytes=REPLY_BYTES, deadline=deadline)
            parts.append(self._vectors(answer, len(few)))
        return np.concatenate(parts)

    def _vectors(self, answer: bytes, count: int) -> Vectors:
        """
        Parse the vectors of a response.

        Raises:
            StoreUnavailable: it is invalid, or not of that many vectors of the dimension.
        """
        try:
            data = sorted(orjson.loads(answer)["data"], key=lambda one: one["index"])
            found = np.asarray([one["embedding"] for one in data], dtype=np.float32)
            numbers = [one["index"] for one in data]
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
            raise StoreUnavailable("The endpoint for vectors gave an answer that cannot be read.") from None
        if numbers != list(range(count)) or found.shape != (count, self._dimension):
            raise StoreUnavailable(
                f"The endpoint for vectors did not answer with {count} vectors of {self._dimension} numbers.",
                mend=f"Check {PREFIX}EMBEDDING_MODEL and {PREFIX}EMBEDDING_DIMENSION.",
            )
        try:
            return unit(found)
        except ValueError:
            raise StoreUnavailable("The endpoint for vectors answered with a vector that has no direction.") from None
