"""Building the index anew: beside the one in use, whole or not at all, and with a model of its own."""

from __future__ import annotations

import pytest

from imem.jobs.throttle import Throttle
from imem.journal.postgres.database import Database
from imem.kg.similarity.index import embed_missing, prune, rebuild
from imem.kg.similarity.vectors import model_of, models
from tests.kg.similarity.conftest import NEVER, Directions, House, analysis
from tests.kg.similarity.test_index import agree, crowd, exact


async def builds(house: House) -> list[tuple[str, str]]:
    rows = await house.rows(
        "SELECT b.state, m.model_id FROM similarity_build AS b JOIN embedding_model AS m ON m.model = b.model"
        " ORDER BY b.version"
    )
    return [(row["state"], row["model_id"]) for row in rows]


async def test_a_rebuild_takes_the_place_of_what_was_there(house: House) -> None:
    """It mends lists that were broken, replaces the version whole, and removes the old one."""
    await house.say(*crowd(40))
    await house.update()
    house.owner("DELETE FROM similar_analysis WHERE analysis_id LIKE 'a00%%'")
    house.owner("UPDATE similar_analysis SET score = 0.1 WHERE analysis_id LIKE 'a01%%'")
    [before] = await house.rows("SELECT version FROM similarity_build")
    done = await house.rebuild()

    assert done.version is not None
    assert done.version != before["version"]
    assert await builds(house) == [("current", "directions")]
    assert agree(await house.lists(), await exact(house)) >= 0.95
    assert await house.rows("SELECT DISTINCT version FROM similar_analysis") == [{"version": done.version}]


async def test_only_lists_that_differ_are_drawn_again(house: House) -> None:
    await house.say(*crowd(20))
    await house.update()
    await house.rebuild()
    house.owner("DELETE FROM due_row WHERE queue = 'graph'")
    await house.rebuild()
    waiting = "SELECT DISTINCT key FROM due_row WHERE queue = 'graph' AND kind = 'similar_to'"
    assert await house.rows(waiting) == []
    house.owner("UPDATE similar_analysis SET score = 0.1 WHERE analysis_id = 'a003'")
    await house.rebuild()
    assert await house.rows(waiting) == [{"key": "a003"}]


async def test_readers_see_the_old_version_until_the_new_one_is_whole(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped half-way the old one stays; the next run goes on where it stopped, with what came meanwhile."""
    await house.say(*crowd(30))
    await house.update()
    before = await house.lists()
    monkeypatch.setattr("imem.kg.similarity.index.PAGE", 10)
    throttle = Stopping(pages=2)
    done = await rebuild(house.pipelines, house.embedder, throttle=throttle)
    assert done.more
    assert (await builds(house))[-1][0] == "building"
    assert await house.lists() == before

    # In the part that was built already, and in one that was not.
    await house.say(analysis("a000b", "company:X", "near oil 500"), analysis("zz", "company:Y", "near oil 501"))
    await house.update()
    done = await house.rebuild()
    assert done.analyses == 11  # Those behind the place where it stopped.
    lists = await house.lists()
    assert {"a000b", "zz"} <= lists.keys()
    assert agree(lists, await exact(house)) >= 0.95
    assert await builds(house) == [("current", "directions")]


class Stopping(Throttle):
    """A throttle that ends after some pages."""

    def __init__(self, *, pages: int) -> None:
        super().__init__(NEVER)
        self.pages = pages

    async def pause(self, journal: Database | None = None) -> None:  # noqa: ARG002 - what it extends has it
        self.pages -= 1

    def over(self) -> bool:
        return self.pages <= 0


async def test_a_new_model_comes_into_use_when_it_is_whole(house: House) -> None:
    """Until then the old one answers and what is new waits; afterwards nothing of the old one is left."""
    await house.say(*crowd(20))
    await house.update()
    old = await house.lists()
    house.embedder = Directions("others", dimension=32)
    model = await model_of(house.pipelines, house.embedder)
    assert not model.in_use
    await embed_missing(house.pipelines, house.embedder, model, throttle=Stopping(pages=1))
    assert await house.lists() == old
    await house.say(analysis("late", "company:LATE", "near oil 77"))

    done = await house.update()
    assert done.version is not None
    assert [(one.model_id, one.in_use) for one in await models(house.database)] == [
        ("directions", False),
        ("others", True),
    ]
    assert await builds(house) == [("current", "others")]
    lists = await house.lists()
    assert agree(lists, await exact(house)) >= 0.95
    assert {row["model_version"] for row in await house.rows("SELECT model_version FROM similar_analysis")} == {
        "others/32/2"
    }
    assert await house.rows("SELECT 1 FROM embedding AS e JOIN embedding_model AS m ON m.model = e.model"
                            " WHERE m.model_id = 'directions'") == []  # fmt: skip
    assert await house.rows("SELECT 1 FROM pg_indexes WHERE indexname = 'embedding_hnsw_1'") == []

    assert (await house.update()).analyses == 1  # What had waited, once more.
    assert (await house.update()).analyses == 0
    assert "late" in await house.lists()


async def test_a_version_for_another_model_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings were changed back while the new model was on its way."""
    await house.say(*crowd(30))
    await house.update()
    before = await house.lists()
    monkeypatch.setattr("imem.kg.similarity.index.PAGE", 10)
    first, other = house.embedder, Directions("others", dimension=32)
    await embed_missing(house.pipelines, other, await model_of(house.pipelines, other), throttle=Throttle(NEVER))
    await rebuild(house.pipelines, other, throttle=Stopping(pages=2))
    assert ("building", "others") in await builds(house)
    await rebuild(house.pipelines, first, throttle=Throttle(NEVER))
    assert await builds(house) == [("current", "directions")]
    assert await house.lists() == before
    await prune(house.pipelines, throttle=Throttle(NEVER))
    assert (await house.rows("SELECT count(*) AS n FROM embedding"))[0]["n"] == 30


async def test_a_build_that_fails_leaves_the_old_one(house: House) -> None:
    """Whatever goes wrong goes wrong in a page; the version in use is another."""
    await house.say(*crowd(20))
    await house.update()
    before = await house.lists()
    house.owner("ALTER TABLE similar_analysis ADD CONSTRAINT broken CHECK (version < 2)")
    with pytest.raises(Exception, match="refused"):
        await house.rebuild()
    assert await house.lists() == before
    house.owner("ALTER TABLE similar_analysis DROP CONSTRAINT broken")
    assert (await house.rebuild()).version is not None
