"""The embedder that the settings name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from pydantic import SecretStr

from imem.journal.errors import SettingsError, StackError, StoreUnavailable
from imem.journal.settings import PREFIX, Settings
from imem.kg.similarity.embedders import Embedder, EndpointEmbedder, LocalEmbedder
from imem.kg.similarity.sentence_models import E5Encoder, UniversalEncoder
from imem.local.servers import jars
from imem.local.servers.jars import ENCODER


def embedder_of(settings: Settings) -> Embedder:
    """
    Return the embedder that *settings* name: a model where there is a URL, otherwise a local encoder.

    Nothing is fetched or loaded before the first text. The memories that a process opens share one local encoder, which
    takes 0.2 GB once loaded and encodes for one call at a time.

    Raises:
        SettingsError: a URL is set, and the model or its dimension is not.
    """
    if settings.embedding_url is None:
        return _local(settings.embedding_local, settings.cache_dir, settings.maven_repository)
    model, dimension = settings.embedding_model, settings.embedding_dimension
    if model is None or dimension is None:
        missing = "MODEL" if model is None else "DIMENSION"
        raise SettingsError(
            f"{PREFIX}EMBEDDING_URL is set, and {PREFIX}EMBEDDING_{missing} is not.",
            mend="Name the model to ask there and how many numbers its vectors have.",
        )
    key = settings.embedding_key.get_secret_value() if settings.embedding_key is not None else None
    return EndpointEmbedder(settings.embedding_url.get_secret_value(), model, dimension, key)


@cache
def _local(name: str, cache_dir: Path, mirror: SecretStr | None) -> LocalEmbedder:
    """Return the encoder of this process."""
    return LocalEmbedder(E5Encoder(lambda: _jar(cache_dir, mirror)) if name == ENCODER else UniversalEncoder())


# At a fork it may be in use by a thread, which the new process lacks.
os.register_at_fork(after_in_child=_local.cache_clear)


def _jar(cache_dir: Path, mirror: SecretStr | None) -> Path:
    try:
        lib = jars.ensure(ENCODER, cache_dir, mirror.get_secret_value() if mirror is not None else None)
    except StackError as error:
        raise StoreUnavailable(error.message, mend=error.mend) from error
    (jar,) = jars.read_lock(ENCODER)
    return lib / jar.filename
