"""Building the index anew: beside the one in use, whole or not at all, and with a model of its own."""

from __future__ import annotations

import pytest

from imem.jobs.throttle import Throttle
from imem.journal.postgres.database import Database
from imem.kg.similarity.index import embed_missing, prune, rebuild
from imem.kg.similarity.vectors import model_of, models
from tests.kg.similarity.conftest import NEVER, Directions, SimilarityHarness, analysis
from tests.kg.similarity.test_index import agree, crowd, exact


async def builds(harness: SimilarityHarness) -> list[tuple[str, str]]:
    rows = await harness.rows(
        "SELECT b.state, m.model_id FROM similarity_build AS b JOIN embedding_model AS m ON m.model = b.model"
        " ORDER BY b.version"
    )
    return [(row["state"], row["model_id"]) for row in rows]


async def test_a_rebuild_takes_the_place_of_what_was_there(harness: SimilarityHarness) -> None:
    """It mends lists that were broken, replaces the version whole, and removes the old one."""
    await harness.say(*crowd(40))
    await harness.update()
    harness.owner("DELETE FROM similar_analysis WHERE analysis_id LIKE 'a00%%'")
    harness.owner("UPDATE similar_analysis SET score = 0.1 WHERE analysis_id LIKE 'a01%%'")
    [before] = await harness.rows("SELECT version FROM similarity_build")
    done = await harness.rebuild()

    assert done.version is not None
    assert done.version != before["version"]
    assert await builds(harness) == [("current", "directions")]
    assert agree(await harness.lists(), await exact(harness)) >= 0.95
    assert await harness.rows("SELECT DISTINCT version FROM similar_analysis") == [{"version": done.version}]


async def test_only_lists_that_differ_are_drawn_again(harness: SimilarityHarness) -> None:
    await harness.say(*crowd(20))
    await harness.update()
    await harness.rebuild()
    harness.owner("DELETE FROM due_row WHERE queue = 'graph'")
    await harness.rebuild()
    waiting = "SELECT DISTINCT key FROM due_row WHERE queue = 'graph' AND kind = 'similar_to'"
    assert await harness.rows(waiting) == []
    harness.owner("UPDATE similar_analysis SET score = 0.1 WHERE analysis_id = 'a003'")
    await harness.rebuild()
    assert await harness.rows(waiting) == [{"key": "a003"}]


async def test_readers_see_the_old_version_until_the_new_one_is_whole(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped half-way the old one stays; the next run goes on where it stopped, with what came meanwhile."""
    await harness.say(*crowd(30))
    await harness.update()
    before = await harness.lists()
    monkeypatch.setattr("imem.kg.similarity.index.PAGE", 10)
    throttle = Stopping(pages=2)
    done = await rebuild(harness.pipelines, harness.embedder, throttle=throttle)
    assert done.more
    assert (await builds(harness))[-1][0] == "building"
    assert await harness.lists() == before

    # In the part that was built already, and in one that was not.
    await harness.say(analysis("a000b", "company:X", "near oil 500"), analysis("zz", "company:Y", "near oil 501"))
    await harness.update()
    done = await harness.rebuild()
    assert done.analyses == 11  # Those behind the place where it stopped.
    lists = await harness.lists()
    assert {"a000b", "zz"} <= lists.keys()
    assert agree(lists, await exact(harness)) >= 0.95
    assert await builds(harness) == [("current", "directions")]


class Stopping(Throttle):
    """A throttle that ends after some pages."""

    def __init__(self, *, pages: int) -> None:
        super().__init__(NEVER)
        self.pages = pages

    async def pause(self, journal: Database | None = None) -> None:  # noqa: ARG002 - what it extends has it
        self.pages -= 1

    def over(self) -> bool:
        return self.pages <= 0


async def test_a_new_model_comes_into_use_when_it_is_whole(harness: SimilarityHarness) -> None:
    """Until then the old one answers and what is new waits; afterwards nothing of the old one is left."""
    await harness.say(*crowd(20))
    await harness.update()
    old = await harness.lists()
    harness.embedder = Directions("others", dimension=32)
    model = await model_of(harness.pipelines, harness.embedder)
    assert not model.in_use
    await embed_missing(harness.pipelines, harness.embedder, model, throttle=Stopping(pages=1))
    assert await harness.lists() == old
    await harness.say(analysis("late", "company:LATE", "near oil 77"))

    done = await harness.update()
    assert done.version is not None
    assert [(one.model_id, one.in_use) for one in await models(harness.database)] == [
        ("directions", False),
        ("others", True),
    ]
    assert await builds(harness) == [("current", "others")]
    lists = await harness.lists()
    assert agree(lists, await exact(harness)) >= 0.95
    assert {row["model_version"] for row in await harness.rows("SELECT model_version FROM similar_analysis")} == {
        "others/32/2"
    }
    assert await harness.rows("SELECT 1 FROM embedding AS e JOIN embedding_model AS m ON m.model = e.model"
                            " WHERE m.model_id = 'directions'") == []  # fmt: skip
    assert await harness.rows("SELECT 1 FROM pg_indexes WHERE indexname = 'embedding_hnsw_1'") == []

    assert (await harness.update()).analyses == 1  # What had waited, once more.
    assert (await harness.update()).analyses == 0
    assert "late" in await harness.lists()


async def test_a_version_for_another_model_is_given_up(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings were changed back while the new model was on its way."""
    await harness.say(*crowd(30))
    await harness.update()
    before = await harness.lists()
    monkeypatch.setattr("imem.kg.similarity.index.PAGE", 10)
    first, other = harness.embedder, Directions("others", dimension=32)
    await embed_missing(harness.pipelines, other, await model_of(harness.pipelines, other), throttle=Throttle(NEVER))
    await rebuild(harness.pipelines, other, throttle=Stopping(pages=2))
    assert ("building", "others") in await builds(harness)
    await rebuild(harness.pipelines, first, throttle=Throttle(NEVER))
    assert await builds(harness) == [("current", "directions")]
    assert await harness.lists() == before
    await prune(harness.pipelines, throttle=Throttle(NEVER))
    assert (await harness.rows("SELECT count(*) AS n FROM embedding"))[0]["n"] == 30


async def test_a_build_that_fails_leaves_the_old_one(harness: SimilarityHarness) -> None:
    """Whatever goes wrong goes wrong in a page; the version in use is another."""
    await harness.say(*crowd(20))
    await harness.update()
    before = await harness.lists()
    harness.owner("ALTER TABLE similar_analysis ADD CONSTRAINT broken CHECK (version < 2)")
    with pytest.raises(Exception, match="refused"):
        await harness.rebuild()
    assert await harness.lists() == before
    harness.owner("ALTER TABLE similar_analysis DROP CONSTRAINT broken")
    assert (await harness.rebuild()).version is not None
