"""Two homes with the same data, loaded in another order and in other batches, answer alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from imem.kg.similarity.neighbours import EVERYTHING
from imem.kg.similarity.scoring import TIES
from imem.memory import Memory
from tests.encoders import LOCAL
from tests.kg.similarity.conftest import NEVER, SimilarityHarness, analysis, day, opened, without_a_graph
from tests.servers import as_pipelines, cloned

_SAID = (
    "Demand for memory chips is strong and margins rise.",
    "The court postponed the hearing about the river's dam, so that the permit is late.",
    "Margins of the chip maker grow as demand stays high, and inventories fall for a third quarter.",
)
LINES = [
    *(
        {
            "record": "Market",
            "known_at": day(nth / 24).isoformat(),
            "core": {"market_id": f"q{nth}", "question": f"Will it be so by day {nth % 4}?", "sector": "tech"},
        }
        for nth in range(0, 24, 4)
    ),
    *(
        analysis(
            f"a{nth}", f"company:S{nth}" if nth % 4 else f"market:q{nth}",
            f"{_SAID[nth % 3]} {'It was said before. ' * (nth % 5)}", day(nth / 24),
        )
        for nth in range(24)
    ),
    *(analysis(f"b{nth}", f"market:q{nth}", _SAID[nth % 3], day(nth / 24)) for nth in range(0, 24, 4)),
]  # fmt: skip
"""Those about a market among them, whose question comes before or after them, by the order."""


EQUALS: list[dict[str, Any]] = [
    analysis(f"e{nth:03}", f"company:E{nth}", _SAID[0], day(nth / 100), confidence=nth / 100) for nth in range(75)
]
"""More that say the same than candidates are looked at."""


async def told(harness: SimilarityHarness, order: list[dict[str, Any]], size: int) -> None:
    """State lines in an order, and compare them in batches of a size."""
    for start in range(0, len(order), size):
        await harness.say(*order[start : start + size])
        await harness.update()


@asynccontextmanager
async def home_of(settings: Any, template: str) -> AsyncIterator[SimilarityHarness]:
    """Lend a home of its own, with the encoder that is here."""
    with cloned(settings, template) as (url, admin_url):
        async with opened(url, as_pipelines(settings, url), admin_url, LOCAL) as harness:
            yield harness


async def test_two_homes_hold_the_same_vectors_and_answer_alike(light_stack: Any, light_template: str) -> None:
    """To the last bit, so that neighbours that are as near as one another stand in the same order."""
    vectors, answers = [], []
    for order, size in ((LINES, 40), (LINES[::-1], 5)):
        async with home_of(light_stack.settings, light_template) as harness:
            await told(harness, order, size)
            rows = await harness.rows("SELECT key, vector::text AS vector FROM embedding WHERE standing ORDER BY key")
            vectors.append([(row["key"], row["vector"]) for row in rows])
            answers.append(await _similar(without_a_graph(light_stack.settings, harness)))
    assert len(vectors[0]) == len(LINES) - 6
    assert vectors[0] == vectors[1]
    assert answers[0] == answers[1]
    assert any(answers[0].values())


async def test_of_many_equal_vectors_two_homes_choose_the_same(light_stack: Any, light_template: str) -> None:
    """Which of them the index meets first depends on the order in which they were stored; who is chosen does not."""
    lists, found = [], []
    for order, size in ((EQUALS, 75), (EQUALS[::-1], 6), (EQUALS[30:] + EQUALS[:30], 20)):
        async with home_of(light_stack.settings, light_template) as harness:
            await told(harness, order, size)
            lists.append(await harness.lists())
            given = {"model": 1, "keys": ["e040"], "limit": 50, "ties": TIES, **EVERYTHING}
            rows = await harness.database.named("nearest", given, deadline=NEVER)
            found.append([row["candidate"] for row in rows])
            async with Memory.open(without_a_graph(light_stack.settings, harness)) as memory:
                section = await memory.similar("E40", as_of=day(1), min_score=0.0, deadline_ms=30_000)
            # The newest of equals is shown first, of those that are kept: the first by name.
            assert {item.analysis.key for item in section.items} <= {key for key, _ in lists[-1]["e040"]}
    assert found[0] == [line["core"]["id"] for line in EQUALS if line["core"]["id"] != "e040"]
    assert found[1:] == [found[0]] * 2
    assert lists[1:] == [lists[0]] * 2
    assert [key for key, _ in lists[0]["e070"]] == [f"e{nth:03}" for nth in range(10)]


async def _similar(settings: Any) -> dict[str, list[tuple[str, float]]]:
    found = {}
    async with Memory.open(settings) as memory:
        for nth in range(0, 24, 3):
            for as_of in (None, day(1) + timedelta(hours=1)):
                subject = f"market:q{nth}" if nth % 4 == 0 else f"S{nth}"
                section = await memory.similar(subject, as_of=as_of, min_score=0.0, deadline_ms=30_000)
                found[f"{subject} {as_of}"] = [(item.analysis.key, item.score) for item in section.items]
    return found
