"""Whether comparing keeps up is said by the doctor and by metrics: what waits too long, an index of another model."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY
from psycopg.rows import dict_row
from pydantic import SecretStr

from imem.jobs.backlog import LATE_S
from imem.journal.settings import Settings
from imem.kg.similarity.lag_watch import watch_similar
from imem.local.doctor import data
from imem.local.doctor.finding import CheckLevel
from tests.encoders import LOCAL
from tests.kg.similarity.conftest import Directions, SimilarityHarness, analysis


def said(harness: SimilarityHarness, settings: Settings) -> list[tuple[CheckLevel, str]]:
    """Return what the doctor finds, as the application."""
    with psycopg.connect(harness.url, autocommit=True, row_factory=dict_row) as connection:
        left = [one for one in data.waiting(connection, settings) if one.work.pipeline == "kg.similar"]
        late = [one for one in data.backlog(left) if one.level is not CheckLevel.FINE]
        return [(one.level, one.text) for one in (*late, *data.similar(connection, settings, left))]


async def shown(harness: SimilarityHarness) -> list[float | None]:
    """Return the metrics after one look."""

    async def once(_: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await watch_similar(harness.database, harness.embedder, sleep=once)
    return [REGISTRY.get_sample_value(f"similarity_{name}_gauge") for name in ("waiting", "lag_seconds", "other_model")]


async def test_what_waits_too_long_and_another_model_are_found(harness: SimilarityHarness, light_stack: Any) -> None:
    settings: Settings = light_stack.settings
    here = f"{LOCAL.model_id}/{LOCAL.dimension}/2"
    assert said(harness, settings) == [(CheckLevel.FINE, f"analyses are compared by {here}")]
    harness.embedder = Directions(LOCAL.model_id, LOCAL.dimension)
    await harness.say(analysis("a", "company:A", "near oil 1"), analysis("b", "company:B", "near oil 2"))
    assert said(harness, settings)[0][0] is CheckLevel.FINE
    assert await shown(harness) == [2, pytest.approx(0, abs=LATE_S / 2), 0]

    harness.owner("UPDATE due_row SET created_at = created_at - interval '6 minutes' WHERE queue = 'similar'")
    [(level, text)] = said(harness, settings)
    assert (level, text) == (
        CheckLevel.WEAK,
        "Far behind: 2 statements about analyses to compare, the oldest for 6 min (kg.similar).",
    )  # fmt: skip
    assert (await shown(harness))[1] == pytest.approx(360, abs=60)
    await harness.update()
    assert said(harness, settings) == [(CheckLevel.FINE, f"analyses are compared by {here}")]

    harness.embedder = Directions("small", 64)
    assert await shown(harness) == [0, 0, 1]
    url = SecretStr("http://127.0.0.1:1/v1")
    named = {"embedding_url": url, "embedding_model": "small", "embedding_dimension": 64}
    [(level, text)] = said(harness, settings.model_copy(update=named))
    assert level is CheckLevel.WEAK
    assert f"compared by {here}, and endpoint:small/64/2 is what is set" in text
    [(level, text)] = said(harness, settings.model_copy(update={**named, "embedding_model": None}))
    assert (level, "IMEM_EMBEDDING_MODEL is not" in text) == (CheckLevel.BROKEN, True)
