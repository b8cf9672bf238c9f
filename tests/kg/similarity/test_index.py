"""The index of similar analyses: complete for what is due, on both sides, and right against a plain computation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import psycopg
import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import StatementRejected, StoreUnavailable
from imem.journal.settings import Role
from imem.kg.asof import END_OF_TIME
from imem.kg.similarity import index
from imem.kg.similarity.embedders import Vectors
from imem.kg.similarity.index import PAGE, update
from imem.kg.similarity.neighbours import features_of, place
from imem.kg.similarity.scoring import NEIGHBOURS, reranked
from imem.kg.similarity.sentence_models import Purpose
from tests.kg.similarity.conftest import (
    NEVER,
    Directions,
    SimilarityHarness,
    analysis,
    company,
    corrected,
    day,
    finding,
)
from tests.waiting import TIMEOUT_S, asked_twice

TOPICS = ("oil", "chips", "banks", "water", "steel", "rails")
SECTORS = ("energy", "tech", None)


def crowd(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Return lines of companies and their analyses on a few topics."""
    chance = random.Random(seed)
    lines: list[dict[str, Any]] = []
    for number in range(count // 2):
        profile = {
            "name": f"C{number}",
            "sector": chance.choice(SECTORS),
            "size_class": chance.choice(["small", "large"]),
        }
        known: dict[str, Any] = {name: value for name, value in profile.items() if value}
        lines.append(company(f"C{number}", **known))
    for number in range(count):
        text = f"near {chance.choice(TOPICS)} {number}"
        lines.append(analysis(f"a{number:03}", f"company:C{number % (count // 2)}", text, day(number / 100)))
        if number % 3 == 0:
            metric = chance.choice(["revenue", "eps"])
            lines.append(finding(f"f{number}", f"a{number:03}", f"company:C{number % (count // 2)}", metric))
    return lines


async def exact(harness: SimilarityHarness) -> dict[str, list[tuple[str, float]]]:
    """Compute every list from all pairs."""
    rows = await harness.rows(
        "SELECT e.key, e.vector::text AS vector FROM embedding AS e JOIN embedding_model AS m ON m.model = e.model"
        " WHERE m.in_use AND e.standing ORDER BY e.key"
    )
    keys = [row["key"] for row in rows]
    vectors = np.array([orjson.loads(row["vector"]) for row in rows])
    cosines = vectors @ vectors.T
    until = {"keys": keys, "known_until": END_OF_TIME, "recorded_until": END_OF_TIME}
    found = await harness.database.named("similar_features", until, deadline=NEVER)
    features = {row["key"]: features_of(row, frozenset()) for row in found}
    lists = {}
    for nth, key in enumerate(keys):
        pairs = [(other, 1.0 - float(cosines[nth, at])) for at, other in enumerate(keys)]
        lists[key] = [(one.key, one.score) for one in reranked(features[key], pairs, features)]
    return lists


def agree(found: dict[str, list[tuple[str, float]]], wanted: dict[str, list[tuple[str, float]]]) -> float:
    """Return the share of wanted neighbours that were found."""
    hits = total = 0
    for key, near in wanted.items():
        total += len(near)
        hits += len({one for one, _ in near} & {one for one, _ in found.get(key, [])})
    return hits / total


@pytest.mark.spec("PF-9")
async def test_a_new_analysis_is_found_from_either_side(harness: SimilarityHarness) -> None:
    """It has neighbours of its own, and stands in the lists of those that it is nearest to; within one update."""
    await harness.say(*crowd(30))
    await harness.update()
    await harness.say(company("NEW", sector="energy"), analysis("new", "company:NEW", "near oil 9999"))
    done = await harness.update()

    lists = await harness.lists()
    assert done.analyses == 1
    near = [key for key, _ in lists["new"]]
    assert near
    backwards = {key for key, found in lists.items() if "new" in {one for one, _ in found}}
    assert set(near[:3]) & backwards
    assert all(lists[key] == sorted(lists[key], key=lambda one: (-one[1], one[0])) for key in lists)
    assert all(len(found) <= NEIGHBOURS for found in lists.values())
    scores = {(key, one): score for key, found in lists.items() for one, score in found}
    assert all(score == scores.get((one, key), score) for (key, one), score in scores.items())
    assert await harness.rows("SELECT * FROM due_row WHERE queue = 'similar'") == []


async def test_lists_are_those_of_all_pairs(harness: SimilarityHarness) -> None:
    """However they came, in one go or one by one, the lists are nearly those of comparing everything."""
    lines = crowd(60)
    for start in range(0, len(lines), 17):
        await harness.say(*lines[start : start + 17])
        await harness.update()
    assert agree(await harness.lists(), await exact(harness)) >= 0.95


async def test_doing_it_again_changes_nothing(harness: SimilarityHarness) -> None:
    """The same file again writes nothing; the same work again finds the same lists."""
    lines = crowd(30)
    await harness.say(*lines)
    await harness.update()
    before = await harness.lists()
    await harness.say(*lines)
    assert (await harness.update()).analyses == 0
    harness.owner(
        "INSERT INTO due_row (queue, kind, key)"
        " SELECT 'similar', 'Analysis', record_key FROM event WHERE kind = 'record.Analysis'"
    )
    done = await harness.update()
    assert (done.analyses, done.vectors) == (30, 0)
    assert await harness.lists() == before


@dataclass
class Tired(Directions):
    """Makes the vectors of one page, and is away from then on."""

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        found = await super().embed(texts, deadline=deadline, purpose=purpose)
        self.away = True
        return found


async def test_what_is_stated_today_does_not_wait_for_an_import(harness: SimilarityHarness) -> None:
    """Behind hundreds of analyses that were imported before it, it is found with the next page, from either side."""
    await harness.say(*crowd(20))
    await harness.update()
    await harness.say(*(analysis(f"old{nth}", f"company:O{nth}", f"near oil {500 + nth}") for nth in range(200)))
    today = analysis("today", "company:T", "near oil 3")
    del today["known_at"]
    await harness.say(today, actor=Actor("ann", Role.KNOWLEDGE_BASE_AGENT))
    await harness.say(analysis("older", "company:P", "near oil 4"))
    harness.embedder = Tired()

    with pytest.raises(StoreUnavailable):
        await harness.update()

    lists = await harness.lists()
    assert len(lists["today"]) == 10
    assert any(name == "today" for key, near in lists.items() if key != "today" for name, _ in near)
    assert "older" not in lists
    assert len(await harness.rows("SELECT FROM due_row WHERE queue = 'similar'")) == 202 - PAGE
    assert not await harness.rows("SELECT FROM due_row WHERE queue = 'similar' AND NOT later")


async def test_the_vectors_of_an_import_are_indexed_once_for_all(harness: SimilarityHarness) -> None:
    """Not one by one; who ends between the two leaves a search that is exact, and the next run makes the index."""
    indexes = "SELECT FROM pg_class WHERE relname LIKE 'embedding_hnsw_%%'"
    await harness.say(*crowd(20))
    await harness.update()
    assert len(await harness.rows(indexes)) == 1
    many = (
        analysis(f"b{nth}", f"company:B{nth}", f"near {TOPICS[nth % 6]} {nth}", day(nth / 500)) for nth in range(500)
    )
    await harness.say(*many)
    harness.embedder = Tired()
    with pytest.raises(StoreUnavailable):
        await harness.update()
    assert await harness.rows(indexes) == []
    harness.embedder = Directions()
    done = await harness.update()
    assert (done.analyses, done.more) == (500, False)
    assert len(await harness.rows(indexes)) == 1
    assert agree(await harness.lists(), await exact(harness)) >= 0.95


async def test_an_import_is_compared_once_its_events_are_in_the_graph(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it leaves the processor to them: not one vector is made."""
    monkeypatch.setattr(index, "DUE_ROWS", 4)
    await harness.say(*(analysis(f"a{nth}", f"company:C{nth}", "Near oil.", day(nth + 1)) for nth in range(6)))
    looked_again = asked_twice(monkeypatch, "delivery_behind")
    comparing = asyncio.create_task(update(harness.pipelines, harness.embedder, until=NEVER))
    await asyncio.wait_for(looked_again.wait(), TIMEOUT_S)
    assert not comparing.done()
    assert isinstance(harness.embedder, Directions)
    assert harness.embedder.texts == []
    harness.owner("UPDATE delivery SET state = 'applied'")

    assert (await comparing).vectors == 6
    assert len(await harness.lists()) == 6


async def test_links_of_what_is_due_itself_follow_with_its_own_page(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page of an import changes lists of the pages to come, and the graph would be written for each."""

    class Stopped(Exception):
        pass

    def stop(*_: object) -> int:
        raise Stopped

    monkeypatch.setattr(index, "DUE_ROWS", 4)
    monkeypatch.setattr(index, "IMPORT_PAGE", 10)
    await harness.say(*crowd(30))
    with monkeypatch.context() as first:
        first.setattr(index, "_next_most", stop)
        with pytest.raises(Stopped):
            await harness.update()

    async def due(queue: str, kind: str) -> set[str]:
        found = await harness.rows("SELECT key FROM due_row WHERE queue = %s AND kind = %s", queue, kind)
        return {row["key"] for row in found}

    waiting = await due("similar", "Analysis")
    assert len(waiting) == 20
    assert (await harness.lists()).keys() & waiting
    linked = await due("graph", "similar_to")
    assert len(linked) == 10
    assert not linked & waiting

    await harness.update()
    assert await due("graph", "similar_to") == (await harness.lists()).keys()


@pytest.mark.parametrize(
    ("most", "taken_s", "wanted"),
    [(640, 2.0, 1280), (1600, 2.0, 2560), (2560, 2.0, 2560), (640, 7.0, 640), (640, 11.0, 320), (200, 11.0, 160)],
)
def test_pages_of_an_import_take_a_few_seconds(most: int, taken_s: float, wanted: int) -> None:
    """However fast the machine is: each list is written once a page, and others may wait for its lock."""
    assert index._next_most(most, taken_s) == wanted


async def test_a_correction_moves_an_analysis(harness: SimilarityHarness) -> None:
    """It leaves the lists in which it fell back, and those get whoever stood behind it."""
    lines = crowd(40)
    await harness.say(*lines)
    await harness.update()
    line = next(one for one in lines if one.get("record") == "Analysis" and "oil" in one["core"]["summary"])
    key = line["core"]["id"]
    before = await harness.lists()
    await harness.say(corrected(line, day(5), summary="near steel 12345"))
    done = await harness.update()
    assert done.vectors == 1

    found, wanted = await harness.lists(), await exact(harness)
    assert {one for one, _ in found[key]} != {one for one, _ in before[key]}
    assert agree(found, wanted) >= 0.95
    rows = await harness.rows("SELECT corrects, standing FROM embedding WHERE key = %s ORDER BY corrects", key)
    assert [(row["corrects"], row["standing"]) for row in rows] == [(False, False), (True, True)]


async def test_claims_make_alike(harness: SimilarityHarness) -> None:
    """A finding that comes later changes what the analysis is compared by; without a metric it does not."""
    await harness.say(
        analysis("a", "company:A", "near oil 1"), analysis("b", "company:B", "near oil 2"),
        finding("fa", "a", "company:A", "revenue"), finding("fb", "b", "company:B", "eps"),
    )  # fmt: skip
    await harness.update()
    before = dict((await harness.lists())["a"])["b"]
    await harness.say(finding("fb2", "b", "company:B", "revenue"))
    await harness.update()
    lists = await harness.lists()
    assert dict(lists["a"])["b"] > before
    assert dict(lists["b"])["a"] == dict(lists["a"])["b"]


@pytest.mark.spec("PF-9")
async def test_what_is_new_waits_for_a_page_of_a_rebuild_and_no_longer(harness: SimilarityHarness) -> None:
    """Another process that holds the lock of a page does not send what is new to the next turn of the clock."""
    await harness.say(*crowd(10))
    with psycopg.connect(harness.admin_url) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('imem.similarity', 0))")
        updating = asyncio.create_task(harness.update())
        waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await harness.rows(waiting):
            assert not updating.done(), updating
            await asyncio.sleep(0.01)
    done = await updating
    assert (done.analyses, done.busy) == (10, False)


async def test_what_is_said_of_an_analysis_while_it_is_compared_counts_in_the_same_run(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page, and the one that is prepared behind it, know nothing of it yet."""
    await harness.say(
        analysis("a", "company:A", "near oil 1"), analysis("b", "company:B", "near oil 2"),
        finding("fa", "a", "company:A", "revenue"), finding("fb", "b", "company:B", "revenue"),
    )  # fmt: skip

    async def interrupted(*given: Any) -> set[str]:
        monkeypatch.setattr(index, "place", place)
        await harness.say(finding("fb2", "b", "company:B", "eps"))
        return await place(*given)

    monkeypatch.setattr(index, "place", interrupted)
    assert (await harness.update()).analyses == 3
    assert not await harness.rows("SELECT FROM due_row WHERE queue = 'similar'")
    assert agree(await harness.lists(), await exact(harness)) == 1


async def test_what_is_recorded_today_while_an_import_is_compared_comes_next(
    harness: SimilarityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the page that was prepared meanwhile, the vectors of which count all the same."""
    placed: list[list[str]] = []

    async def noting(conn: Any, build: Any, keys: Sequence[str], *given: Any) -> set[str]:
        placed.append(list(keys))
        if len(placed) == 1:
            today = analysis("today", "company:T", "near oil 3")
            del today["known_at"]
            await harness.say(today, actor=Actor("ann", Role.KNOWLEDGE_BASE_AGENT))
        return await place(conn, build, keys, *given)

    monkeypatch.setattr(index, "place", noting)
    monkeypatch.setattr(index, "DUE_ROWS", 4)
    monkeypatch.setattr(index, "IMPORT_PAGE", 10)
    await harness.say(*(analysis(f"a{nth:02}", f"company:C{nth}", f"near oil {nth}", day(nth)) for nth in range(30)))
    done = await harness.update()
    assert placed[1][0] == "today"
    assert sorted(key for keys in placed for key in keys) == [*(f"a{nth:02}" for nth in range(30)), "today"]
    assert (done.analyses, done.vectors, done.more) == (31, 31, False)


async def test_a_run_whose_time_is_over_makes_nothing(harness: SimilarityHarness) -> None:
    await harness.say(*crowd(10))
    done = await update(harness.pipelines, harness.embedder, until=Deadline.after_ms(0), loading=0.0)
    assert (done.analyses, done.vectors, done.more) == (0, 0, True)
    assert isinstance(harness.embedder, Directions)
    assert harness.embedder.texts == []


async def test_another_sector_makes_others_alike(harness: SimilarityHarness) -> None:
    """A company that is said to be in another sector is compared anew, on both sides; another name changes nothing."""
    await harness.say(
        company("A", sector="energy"), company("B", sector="energy"),
        analysis("a", "company:A", "near oil 1"), analysis("b", "company:B", "near oil 2"),
    )  # fmt: skip
    await harness.update()
    before = dict((await harness.lists())["a"])["b"]

    await harness.say(company("B", day(1), sector="energy", name="Beth"))
    assert (await harness.update()).analyses == 0
    await harness.say(company("B", day(2), sector="banks"), company("C", day(2), sector="banks"))
    assert (await harness.update()).analyses == 1
    lists = await harness.lists()
    assert dict(lists["a"])["b"] < before
    assert dict(lists["b"])["a"] == dict(lists["a"])["b"]


async def test_patterns_count_while_they_are_active(harness: SimilarityHarness) -> None:
    """A pattern that nobody may see makes nobody alike."""
    await harness.say(
        analysis("a", "company:A", "near oil 1"), analysis("b", "company:B", "near oil 2"),
        *({"link": "IDENTIFIED_PATTERN", "known_at": day(0).isoformat(), "from": {"Analysis": key},
           "to": {"Pattern": "p"}, "props": {"strength": 0.5}} for key in "ab"),
    )  # fmt: skip
    await harness.update()
    hidden = dict((await harness.lists())["a"])["b"]
    for at, status in ((1, "active"), (2, "deprecated")):
        await harness.say(
            {"record": "Pattern", "known_at": day(at).isoformat(),
             "core": {"pattern_id": "p", "name": "P", "category": "c"},
             "groups": {"status": {"status": status, "quarantined": False}}},
        )  # fmt: skip
        await harness.update()
        found = dict((await harness.lists())["a"])["b"]
        assert found > hidden if status == "active" else found == hidden


@pytest.mark.spec("RS-1")
async def test_an_endpoint_that_is_away_leaves_the_work_due(harness: SimilarityHarness) -> None:
    """New items wait, and what was compared before still answers."""
    await harness.say(*crowd(20))
    await harness.update()
    before = await harness.lists()
    assert isinstance(harness.embedder, Directions)
    harness.embedder.away = True
    await harness.say(analysis("late", "company:LATE", "near oil 77"))
    with pytest.raises(StoreUnavailable):
        await harness.update()
    assert await harness.lists() == before
    harness.embedder.away = False
    assert (await harness.update()).analyses == 1
    assert "late" in await harness.lists()


@dataclass
class Choosy(Directions):
    """Refuses a whole call for one word in it, and everything where its key is wrong."""

    word: str = "forbidden"
    wrong_key: bool = False

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        if self.wrong_key or any(self.word in text or not text.strip() for text in texts):
            raise StatementRejected("The endpoint for vectors refused with status 400.")
        return await super().embed(texts, deadline=deadline, purpose=purpose)


async def test_a_text_that_is_refused_holds_up_nobody(harness: SimilarityHarness) -> None:
    """The others are compared; where everything is refused, nothing is done, and all of it stays due."""
    empty = analysis("blank", "company:BLANK", "   ", kind="")
    await harness.say(*crowd(20), analysis("bad", "company:BAD", "near forbidden things"), empty)
    embedder = Choosy(wrong_key=True)
    harness.embedder = embedder
    with pytest.raises(StatementRejected):
        await harness.update()
    assert await harness.rows("SELECT FROM embedding") == []
    assert await harness.rows("SELECT FROM due_row WHERE queue = 'similar' AND key = 'bad'")

    embedder.wrong_key = False
    assert (await harness.update()).vectors == 21
    assert await harness.rows("SELECT FROM due_row WHERE queue = 'similar'") == []
    lists = await harness.lists()
    assert "blank" in lists
    assert "bad" not in lists
    embedder.word = "nothing at all"
    assert (await harness.rebuild()).vectors == 1
    assert "bad" in await harness.lists()


async def test_an_analysis_about_a_question_is_read_with_it(harness: SimilarityHarness) -> None:
    """What a market asks is part of what its analyses say, from when it was known; texts are bounded."""
    market: dict[str, Any] = {
        "record": "Market", "known_at": day(0).isoformat(),
        "core": {"market_id": "q", "question": "Will it rain in May?", "sector": "weather"},
    }  # fmt: skip
    later = {**market, "core": {**market["core"], "market_id": "r"}, "known_at": day(9).isoformat()}
    await harness.say(market, later)
    await harness.say(
        analysis("a", "market:q", "Median 0.4.", day(1)), analysis("b", "market:r", "Median 0.6.", day(1)),
        {"record": "Analysis", "known_at": day(1).isoformat(), "body": "x" * 9000,
         "core": {"id": "c", "subject_id": "company:C", "date": day(1).isoformat(), "kind": "note"}},
        {"record": "Analysis", "known_at": day(1).isoformat(),
         "core": {"id": "d", "subject_id": "company:D", "date": day(1).isoformat(), "kind": "forecast_round",
                  "recommendation": "strong_buy"}},
    )  # fmt: skip
    await harness.update()
    assert isinstance(harness.embedder, Directions)
    texts = sorted(text[:40] for text in harness.embedder.texts)
    asked = ["Will it rain in May? Median 0.4.", "Will it rain in May? Median 0.6."]
    assert texts == ["Median 0.6.", *asked, "forecast round strong buy", "x" * 40]
    assert max(map(len, harness.embedder.texts)) == 2000


VECTORS = """
    SELECT known_at, recorded_at, corrects, standing, sole, question > 0 AS late FROM embedding WHERE key = 'a'
    ORDER BY known_at, corrects, question
"""


async def test_a_question_that_is_stated_late_counts_from_then(harness: SimilarityHarness) -> None:
    """What was said before is compared without it as of the days before, on both clocks, corrections included."""
    [first] = await harness.say(analysis("a", "market:q", "Median 0.4.", day(1)))
    await harness.say(corrected(analysis("a", "market:q", "Median 0.4.", day(1)), day(3), summary="Median 0.5."))
    await harness.update()
    market = {"market_id": "q", "question": "Will it rain in May?", "sector": "weather"}
    said = await harness.say({"record": "Market", "known_at": day(2).isoformat(), "core": market})
    assert (await harness.update()).vectors == 2
    assert isinstance(harness.embedder, Directions)
    asked = "Will it rain in May?"
    assert harness.embedder.texts == ["Median 0.4.", "Median 0.5.", f"{asked} Median 0.4.", f"{asked} Median 0.5."]
    rows = await harness.rows(VECTORS)
    assert [(row["known_at"], row["corrects"], row["standing"], row["late"]) for row in rows] == [
        (day(1), False, False, False),
        (day(2), False, False, True),
        (day(3), True, False, False),
        (day(3), True, True, True),
    ]
    assert not any(row["sole"] for row in rows)
    recorded = {row["recorded_at"] for row in rows if row["late"]}
    assert recorded == {said[0].recorded_at}
    assert first.recorded_at is not None
    assert said[0].recorded_at is not None
    assert min(row["recorded_at"] for row in rows) == first.recorded_at < said[0].recorded_at
    assert (await harness.update()).vectors == 0
