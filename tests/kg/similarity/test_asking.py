"""Asking for similar analyses: of now from what is stored, as of a day from what was known then, and never more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.journal.errors import BadInput, UnknownSubject
from imem.memory import Memory
from imem.recall.model import Quality, SimilarSection
from tests.kg.similarity.conftest import (
    SimilarityHarness,
    analysis,
    company,
    corrected,
    day,
    finding,
    opened,
    without_a_graph,
)
from tests.servers import as_pipelines, cloned, in_database

Ask = Callable[..., Awaitable[SimilarSection]]


@pytest_asyncio.fixture
async def memory(harness: SimilarityHarness, light_stack: Any) -> AsyncIterator[Memory]:
    async with Memory.open(without_a_graph(light_stack.settings, harness)) as opened:
        yield opened


def keys(section: SimilarSection) -> list[str]:
    return [item.analysis.key for item in section.items]


async def apply(harness: SimilarityHarness) -> None:
    """Say of every event that the graph holds it: here there is none, and the horizon must pass."""
    harness.owner("UPDATE delivery SET state = 'applied'")


async def world(harness: SimilarityHarness) -> None:
    await harness.say(
        company("A", sector="energy"), company("B", sector="energy"), company("C", sector="energy"),
        company("D", sector="banks"),
        analysis("a1", "company:A", "near oil 1", day(1), recommendation="buy"),
        analysis("b1", "company:B", "near oil 2", day(2), recommendation="sell"),
        analysis("c1", "company:C", "near oil 3", day(3)),
        analysis("d1", "company:D", "near water 4", day(3)),
        {"record": "Decision", "known_at": day(2).isoformat(),
         "core": {"id": "b1/decision", "analysis_id": "b1", "subject_id": "company:B", "type": "portfolio",
                  "agents_involved": ["ann"], "decided_at": day(2).isoformat(), "action": "sell"}},
    )  # fmt: skip
    await apply(harness)


async def test_neighbours_with_what_was_decided(harness: SimilarityHarness, memory: Memory) -> None:
    """By subject and by analysis, most alike first, those of the subject itself left out; without a graph."""
    await world(harness)
    await harness.update()
    by_subject, by_analysis = await memory.similar("A"), await memory.similar("a1")
    assert by_subject.quality is Quality.EXACT
    assert set(keys(by_subject)) == {"b1", "c1"}
    assert by_subject.model_dump() == by_analysis.model_dump()
    assert by_subject.model_version == "directions/64/2"
    found = {item.analysis.key: item for item in by_subject.items}
    assert [one.decision.key for one in found["b1"].decisions] == ["b1/decision"]
    assert (found["b1"].subject_id, found["b1"].like) == ("company:B", "a1")
    scores = [round(item.score, 2) for item in by_subject.items]
    assert scores == sorted(scores, reverse=True)
    assert keys(await memory.similar("A", limit=1)) == keys(by_subject)[:1]
    assert "d1" in keys(await memory.similar("A", min_score=0.0))
    assert keys(await memory.similar("A", min_score=1.0)) == []


def market(key: str, question: str, series: str | None = None) -> dict[str, Any]:
    core = {"market_id": key, "question": question} | ({"series_id": series} if series else {})
    return {"record": "Market", "known_at": day(0).isoformat(), "core": core}


async def test_the_same_question_at_another_time_is_not_similar(harness: SimilarityHarness, memory: Memory) -> None:
    """Neither of its series nor of the same words with other numbers; of equals the newest comes first."""
    await harness.say(
        market("tx-1", "Will flu rise in Texas within week 1 of 2025-01-04?", "tx"),
        market("tx-3", "Will it be so again?", "tx"),
        market("tx-4", "Will flu rise in Texas within week 3 of 2025-02-15?"),
        market("ca-1", "Will flu rise in California within week 1 of 2025-01-04?"),
        market("ca-2", "Will flu rise in California within week 1 of 2025-01-04?"),
        analysis("own", "market:tx-1", "near flu 1", day(1)),
        analysis("horizon", "market:tx-4", "near flu 1", day(2)),
        analysis("series", "market:tx-3", "near flu 1", day(2)),
        analysis("older", "market:ca-1", "near flu 1", day(2)),
        analysis("newer", "market:ca-2", "near flu 1", day(3)),
    )
    await apply(harness)
    await harness.update()
    for moment in (None, day(4)):
        # The words of the others' question lead the test's vectors elsewhere: whatever the score.
        section = await memory.similar("market:tx-1", as_of=moment, min_score=0.0)
        assert (keys(section), section.total) == (["newer", "older"], 2)


async def tell(harness: SimilarityHarness, *lines: dict[str, Any]) -> None:
    """State facts, and do what the applier does with them."""
    await harness.say(*lines)
    await apply(harness)


SERIES = 60
"""More questions of one series than candidates are looked at, and far more than neighbours are kept."""


async def test_a_long_series_has_neighbours_of_other_questions(harness: SimilarityHarness, memory: Memory) -> None:
    """Its own questions are all nearer by text, and not alike; they take no place, now or as of a day."""
    states = {"tx": "Texas", "ca": "California", "ny": "New York"}
    many = {"tx": SERIES, "ca": 3, "ny": 3}
    lines = [
        line
        for state, name in states.items()
        for nth in range(many[state])
        for line in (
            market(f"{state}-{nth}", f"Will flu rise in {name} within week {nth} of 2025?", state if nth % 2 else None),
            analysis(f"{state}{nth:02}", f"market:{state}-{nth}", "near flu", day(1)),
        )
    ]
    await tell(harness, *lines)
    await harness.update()
    others = {f"{state}{nth:02}" for state in ("ca", "ny") for nth in range(3)}
    lists = await harness.lists()
    assert all({key for key, _ in near} <= others for analysed, near in lists.items() if analysed.startswith("tx"))
    assert {key[:2] for key, _ in lists["ca00"]} <= {"tx", "ny"}
    section = await memory.similar("market:tx-5", min_score=0.0, deadline_ms=30_000)
    assert section.total == len(section.items) > 0
    assert set(keys(section)) <= others

    # Who was placed before them is looked at once more when the index is built anew.
    await harness.rebuild()
    assert all(
        {key for key, _ in near} == others for key, near in (await harness.lists()).items() if key.startswith("tx")
    )
    for moment in (None, day(4)):
        section = await memory.similar("market:tx-5", as_of=moment, min_score=0.0, limit=10)
        assert (set(keys(section)), section.total) == (others, len(others))


async def test_a_question_whose_words_are_corrected_is_compared_as_what_it_asks(
    harness: SimilarityHarness, memory: Memory
) -> None:
    """What it asked before is that question's history all the same: neither is a neighbour of the other."""
    first, second = market("q1", "Will it rain in week 1?"), market("q2", "Will it snow in week 2?")
    lines = (analysis("one", "market:q1", "near rain", day(1)), analysis("two", "market:q2", "near rain", day(1)))
    await tell(harness, first, second, *lines)
    await harness.update()
    lists = await harness.lists()
    assert {key: [one for one, _ in near] for key, near in lists.items()} == {"one": ["two"], "two": ["one"]}
    await tell(harness, corrected(second, day(3), question="Will it rain in week 2?"))
    await harness.update()
    assert await harness.lists() == {}
    assert keys(await memory.similar("market:q1", as_of=day(2), min_score=0.0)) == ["two"]
    assert keys(await memory.similar("market:q1", as_of=day(4), min_score=0.0)) == []


async def test_briefings_show_them(harness: SimilarityHarness, memory: Memory) -> None:
    await world(harness)
    await harness.update()
    briefing = await memory.brief("A", deadline_ms=30_000)
    assert keys(briefing.similar_analyses) == keys(await memory.similar("A"))
    text = briefing.to_markdown()
    assert "## Similar analyses of other subjects" in text
    assert "company:B" in text


async def test_what_is_not_compared_yet_is_said(harness: SimilarityHarness, memory: Memory) -> None:
    """The answer is labelled until the index knows the subject's own analyses; others have a minute."""
    await world(harness)
    waiting = await memory.similar("A")
    assert (waiting.quality, keys(waiting)) == (Quality.PARTIAL, [])
    assert "not all compared yet" in str(waiting.reason)
    await harness.update()
    await harness.say(analysis("e1", "company:E", "near oil 9", day(4)))
    assert (await memory.similar("A")).quality is Quality.EXACT
    harness.owner("UPDATE due_row SET created_at = created_at - interval '61 seconds' WHERE queue = 'similar'")
    late = await memory.similar("A")
    assert (late.quality, late.reason) == (Quality.PARTIAL, "1 statements about analyses are not compared yet")
    assert set(keys(late)) == {"b1", "c1"}


async def test_as_of_a_day(harness: SimilarityHarness, memory: Memory) -> None:
    """Who was not known yet is no neighbour, and takes nobody's place."""
    await world(harness)
    await harness.update()

    async def asked(number: float, clock: str = "known") -> list[str]:
        section = await memory.similar("A", as_of=day(number), clock=clock)
        assert section.quality is Quality.EXACT, section.reason
        return keys(section)

    assert await asked(0.5) == await asked(1.5) == []
    assert await asked(2.5) == ["b1"]
    assert set(await asked(3.5)) == {"b1", "c1"}
    section = await memory.similar("A", as_of=day(2.5))
    assert [one.decision.key for one in section.items[0].decisions] == ["b1/decision"]
    for unknown in (memory.similar("nobody"), asked(-1.0), asked(3.5, "recorded")):
        with pytest.raises(UnknownSubject):
            await unknown


async def test_where_very_many_were_known_the_index_is_asked(
    harness: SimilarityHarness, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then not every vector is looked at, and the answer says so; an estimate that is too old leaves none out."""
    await world(harness)
    await harness.update()
    await apply(harness)
    whole = await memory.similar("A", as_of=day(4))
    assert whole.quality is Quality.EXACT
    monkeypatch.setattr("imem.recall.sections.similar_analyses.MOST_EXACT", 3)
    by_index = await memory.similar("A", as_of=day(4.1))
    assert by_index.quality is Quality.PARTIAL
    assert by_index.reason is not None
    assert "an approximate index was searched" in by_index.reason
    assert keys(by_index) == keys(whole)
    harness.owner("UPDATE pg_class SET reltuples = 1 WHERE oid = 'embedding'::regclass")
    assert (await memory.similar("A", as_of=day(4.2))).items == whole.items


async def test_a_correction_counts_from_when_it_was_made(harness: SimilarityHarness, memory: Memory) -> None:
    await world(harness)
    line = analysis("b1", "company:B", "near oil 2", day(2), recommendation="sell")
    await harness.say(corrected(line, day(6), summary="near steel 800"))
    await apply(harness)
    await harness.update()
    assert keys(await memory.similar("A", as_of=day(2.5))) == ["b1"]
    assert keys(await memory.similar("A", as_of=day(6.5))) == ["c1"]
    assert keys(await memory.similar("A")) == ["c1"]


@pytest.mark.parametrize(
    "wrong",
    [{"min_score": 1.5}, {"min_score": -0.1}, {"min_score": "x"}, {"min_score": float("nan")}, {"limit": 0},
     {"limit": 201}, {"limit": True}, {"deadline_ms": 9}, {"deadline_ms": 30_001}],
)  # fmt: skip
async def test_bad_questions(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        await memory.similar("A", **wrong)
    assert caught.value.field == next(iter(wrong))


SUMMARIES = st.sampled_from([f"near {topic} {number}" for topic in ("oil", "water") for number in range(4)])
TICKERS = st.sampled_from(["A", "B", "C", "D", "E"])
LINES = st.lists(
    st.one_of(
        st.tuples(st.just("analysis"), TICKERS, SUMMARIES, st.integers(1, 20)),
        st.tuples(st.just("company"), TICKERS, st.sampled_from(["energy", "banks"]), st.integers(1, 20)),
        st.tuples(st.just("claim"), TICKERS, st.sampled_from(["revenue", "eps"]), st.integers(1, 20)),
        st.tuples(st.just("correction"), TICKERS, SUMMARIES, st.integers(5, 20)),
    ),
    max_size=12,
)


def told(facts: list[tuple[str, str, str, int]]) -> list[tuple[int, dict[str, Any]]]:
    """Return the facts as lines, each with the day from which it could be known."""
    base = {name: (number + 1, f"near oil {number}") for number, name in enumerate("ABCDE")}
    lines = [
        (first, analysis(f"{name}/0", f"company:{name}", text, day(first))) for name, (first, text) in base.items()
    ]
    for number, (sort, name, value, at) in enumerate(facts):
        subject = f"company:{name}"
        if sort == "analysis":
            line = analysis(f"{name}/{number + 1}", subject, value, day(at))
        elif sort == "company":
            line = company(name, day(at), sector=value)
        elif sort == "claim":
            line = finding(f"{name}/f{number}", f"{name}/0", subject, value, day(at))
        else:
            first, text = base[name]
            line = corrected(analysis(f"{name}/0", subject, text, day(first)), day(at), summary=value)
        lines.append((at, line))
    return lines


@settings(max_examples=8, deadline=None)
@given(LINES, st.integers(1, 19))
async def test_nothing_later_changes_an_answer(
    light_stack: Any, light_template: str, facts: list[tuple[str, str, str, int]], cut: int
) -> None:
    """As of a day the answer is the same whether or not what came later is there at all."""
    lines = told(facts)
    before = await answers(light_stack, light_template, [line for at, line in lines if at <= cut], day(cut + 0.5))
    after = await answers(light_stack, light_template, [line for _, line in lines], day(cut + 0.5))
    assert before == after
    assert any(before.values()) or cut == 1


async def answers(stack: Any, template: str, lines: list[dict[str, Any]], at: datetime) -> dict[str, Any]:
    """Return, of each analysis of the base, who is like it as of *at*; None where it was not known."""
    with cloned(stack.settings, template) as (url, admin_url):
        given = {**in_database(stack.settings, url), "neo4j_url": "bolt://127.0.0.1:1"}
        async with opened(url, as_pipelines(stack.settings, url), admin_url) as harness:
            for line in lines:
                await harness.say(line)
            await harness.update()
            await apply(harness)
            async with Memory.open(stack.settings.model_copy(update=given)) as memory:
                return {name: await near(memory, f"{name}/0", at) for name in "ABCDE"}


async def near(memory: Memory, key: str, at: datetime) -> list[tuple[str, float]] | None:
    try:
        section = await memory.similar(key, as_of=at, min_score=0.0, deadline_ms=30_000)
    except UnknownSubject:
        return None
    assert section.quality is Quality.EXACT, section.reason
    return [(item.analysis.key, item.score) for item in section.items]
