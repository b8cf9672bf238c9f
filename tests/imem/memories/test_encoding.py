"""An encoder that takes longer than a caller has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.kg.similarity.embedders import Vectors
from imem.kg.similarity.sentence_models import Purpose
from imem.recall.memories.encoding import BackgroundEncoder
from tests.imem.memories.conftest import NEVER, Places


@dataclass
class Loading(Places):
    """Makes vectors once it is loaded."""

    loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        del deadline  # Loading heeds none.
        await self.loaded.wait()
        return await super().embed(texts, deadline=NEVER, purpose=purpose)


async def test_what_is_late_goes_on() -> None:
    """A caller gets an error at its deadline, later ones wait less while it is late, and then all get vectors."""
    embedder = Loading()
    encoder = BackgroundEncoder(embedder)
    with pytest.raises(BudgetExceeded, match="not ready"):
        await encoder.vectors(["a"], Purpose.QUERY, deadline=Deadline.after_ms(20))
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(BudgetExceeded, match="not ready"):
            await encoder.vectors(["b"], Purpose.PASSAGE, deadline=Deadline.after_ms(60_000))
    assert time.monotonic() - begun < 30
    embedder.loaded.set()
    assert (await encoder.vectors(["c"], Purpose.QUERY, deadline=NEVER)).shape == (1, 64)
    assert embedder.texts[0] == "a", "it went on"
    await encoder.close()
