"""Search over everything from end to end: recorded, projected, found by words and by meaning, dated, refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.credibility.settling import ACTOR
from imem.journal.actors import AUTHORIZATION, Action, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, UnknownSubject
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.model import (
    Analysis,
    Company,
    DataContradiction,
    Debate,
    Decision,
    Finding,
    Lesson,
    Market,
    Pattern,
    Turn,
)
from imem.kg.similarity.index import update
from imem.kg.similarity.sentence_models import Purpose
from imem.memory import Memory
from imem.recall.answers import Quality
from imem.recall.memories.model import MemoryMatch
from imem.recall.memories.parts import PART_CHARS
from imem.recall.search.model import FoundText, SearchKind, SearchSection
from imem.recall.search.projection import vector_text
from imem.services.embedders import embedder_of
from imem.services.stores import Stores
from tests.imem.memories.conftest import Places
from tests.imem.search.conftest import MemoryHarness, as_worker, memory_of, project
from tests.servers import as_pipelines

E5 = embedder_of(Settings.read({}))


def day(month: int, of: int = 1) -> datetime:
    return datetime(2026, month, of, 12, tzinfo=UTC)


def keys(found: SearchSection) -> list[str]:
    return [item.key for item in found.items]


def one(found: SearchSection, key: str) -> FoundText:
    return next(item for item in found.items if item.key == key)


def company(ticker: str, name: str) -> Company:
    return Company(ticker=ticker, profile=Company.Profile(name=name, sector="Technology", industry="Semiconductors"))


async def load_trading_desk(harness: MemoryHarness) -> None:
    """Record a little of everything, each known on its day."""
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    async with Memory.open(settings) as memory:
        at: dict[str, Any] = {"known_at": day(1)}
        await memory.record(company("MU", "Micron Technology"), **at)
        await memory.record(company("DUK", "Duke Energy"), **at)
        await memory.record(Market(market_id="rate", question="Will the central bank cut rates in June?"), **at)
        await memory.record(
            Analysis(
                id="mu-1", subject_id="company:MU", date=day(2), kind="equity_research", summary="Memory prices rise."
            ),
            known_at=day(2),
        )
        for key, said, when in (
            ("f-1", "High-bandwidth memory is sold out until 2027.", day(2)),
            ("f-2", "Inventories at distributors have grown for two quarters.", day(2)),
        ):
            await memory.record(
                Finding(
                    id=key, analysis_id="mu-1", subject_id="company:MU", agent="ann", domain="supply", statement=said
                ),
                known_at=when,
            )
        await memory.record(
            Decision(
                id="d-1", analysis_id="mu-1", subject_id="company:MU", type="portfolio", agents_involved=["ann"],
                decided_at=day(2), action="BUY", stance="long",
            ),
            body="The order book is full, and nobody else can deliver.",
            known_at=day(2),
        )  # fmt: skip
        await memory.record(
            Debate(
                id="b-1", subject_id="company:MU", analysis_id="mu-1", topic="Peak margins?", challenger_agent="bob",
                challenged_agent="ann", participants=["ann", "bob"], timestamp=day(3),
            ),
            turns=[
                Turn(number=1, speaker="bob", text="Every cycle ended with a glut of chips."),
                Turn(number=2, speaker="ann", text="This one has contracts with prepayment."),
            ],
            known_at=day(3),
        )  # fmt: skip
        await memory.record(
            DataContradiction(
                id="c-1", subject_id="company:MU", data_point="gross margin", source_a="filing", source_b="vendor",
                value_a=0.39, value_b=0.41, timestamp=day(3),
            ),
            known_at=day(3),
        )  # fmt: skip
        await memory.record(
            Lesson(
                id="l-1", source="human_insight", category="cycles", insight="Cyclical peaks look like growth.",
                recommended_action="Ask for utilisation.", affected_domains=["supply"], priority="high",
            ),
            known_at=day(4),
        )  # fmt: skip
        await enter_state(memory._stores, "l-1", "approved", day(4))
        await memory.remember("The utility is cutting its dividend.", namespace="symbol/DUK")
        await memory.remember("Micron is a customer of the institute.", namespace="symbol/MU/notes")
        await memory.remember("Kate keeps the keys.", namespace="agent/kate")


async def enter_state(stores: Stores, key: str, state: str, at: datetime) -> None:
    """Record a state of a lesson, as the pipeline does."""
    groups = {"state": {"state": state, "reviewed": False, "applied": False, "effectiveness_tracked": False}}
    line = orjson.dumps({"record": "Lesson", "key": key, "known_at": at, "groups": groups})
    entry = entry_of(parse_line(line, writer="postmortem"))
    await stores.gateway.append([entry], action=Action.APPEND_POSTMORTEM, deadline=Deadline.after_ms(5_000))


async def test_everything_is_found(harness: MemoryHarness) -> None:
    """By words and by meaning, with the encoder that is the default; each hit states where it stands and why."""
    await load_trading_desk(harness)
    async with memory_of(harness) as memory:
        waiting = await memory.search("memory supply", deadline_ms=5_000)
        assert waiting.quality is Quality.PARTIAL
        assert "is not searched yet" in (waiting.reason or "")
        report = await project(harness, E5)
        assert (report["vectors"], report["more"]) == (report["texts"], False)
        waiting_pages = harness.rows("SELECT gin_clean_pending_list('recall.record_text_words') AS pages")
        assert waiting_pages == [{"pages": 0}], "a search reads each page that waits to be merged"

        found = await memory.search("Is there enough HBM supply for AI chips?", deadline_ms=5_000)
        assert (found.quality, found.reason) == (Quality.EXACT, None)
        best = found.items[0]
        assert (best.kind, best.key, best.subject_id) == (SearchKind.FINDING, "f-1", "company:MU")
        assert (best.part_of, best.author, best.title) == ("Analysis/mu-1", "ann", "Micron Technology (MU)")
        assert (best.text, best.known_at) == ("High-bandwidth memory is sold out until 2027.", day(2))
        assert MemoryMatch.MEANING in best.found_by
        for question, kind, key in (
            ("full order book", SearchKind.DECISION, "d-1"),
            ("a glut after each cycle", SearchKind.DEBATE, "b-1#1"),
            ("growth at the top of a cycle", SearchKind.LESSON, "l-1"),
            ("do sources disagree on gross margin", SearchKind.CONTRADICTION, "c-1"),
            ("interest rates central bank", SearchKind.SUBJECT, "rate"),
            ("Duke Energy", SearchKind.SUBJECT, "DUK"),
        ):
            first = (await memory.search(question, deadline_ms=5_000)).items[0]
            assert (question, first.kind, first.key) == (question, kind, key)
        dividend = (await memory.search("dividend cut", deadline_ms=5_000)).items[0]
        assert (dividend.kind, dividend.part_of) == (SearchKind.MEMORY, "symbol/DUK")

        # Of one kind, of one subject, of both; another's memories are nobody else's.
        found = await memory.search("memory", kinds=["analysis", "memory"], subject="MU", deadline_ms=5_000)
        assert {(item.kind.value, item.part_of) for item in found.items} == {
            ("analysis", "Analysis/mu-1"),
            ("memory", "symbol/MU/notes"),
        }
        assert not [
            item
            for item in (await memory.search("Kate keeps the keys", deadline_ms=5_000)).items
            if "Kate" in item.text
        ]
        assert keys(await memory.search("prices", kinds=["finding"], subject="DUK", deadline_ms=5_000)) == []


async def test_analyses_of_an_import_are_compared_first(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of texts wait for them, for an hour; words find the texts meanwhile."""
    monkeypatch.setattr("imem.recall.search.projection.DUE_ROWS", 1)
    await load_trading_desk(harness)
    waiting = await project(harness, places)
    assert waiting["texts"] > 0
    assert (waiting["vectors"], waiting["more"]) == (0, False)
    async with memory_of(harness) as memory:
        found = one(await memory.search("order book", kinds=["decision"]), "d-1")
        assert found.found_by == [MemoryMatch.WORDS]
    harness.rows("UPDATE due_row SET created_at = created_at - interval '1 hour' WHERE queue = 'similar' RETURNING 1")
    assert (await project(harness, places))["vectors"] == waiting["texts"]


async def test_texts_get_their_vectors_once_an_import_is_compared(
    harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imem.recall.search.projection.DUE_ROWS", 1)
    await load_trading_desk(harness)
    waiting = await project(harness, places)
    assert waiting["vectors"] == 0
    async with as_worker(harness) as database:
        assert (await update(database, places, until=Deadline.never())).analyses == 1
    assert (await project(harness, places))["vectors"] == waiting["texts"]


@pytest.mark.usefixtures("places")
async def test_as_of_a_day_nothing_later_shows(harness: MemoryHarness, places: Places) -> None:
    """Neither what was said later, nor a later correction or name, not even in what the words weigh."""
    await load_trading_desk(harness)
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    async with Memory.open(settings) as memory:
        await memory.correct(
            Finding(
                id="f-2",
                analysis_id="mu-1",
                subject_id="company:MU",
                agent="ann",
                domain="supply",
                statement="Inventories fell.",
            ),
            reason="misread",
            known_at=day(5),
        )
        await memory.record_groups(Company, "MU", {"profile": Company.Profile(name="Micron Group")}, known_at=day(6))
        await project(harness, places)
        before = [item.model_dump() for item in (await memory.search("Micron inventories glut", as_of=day(4))).items]
        assert {item["key"] for item in before} >= {"f-2", "mu-1", "MU", "b-1#1"}
        [finding] = [item for item in before if item["key"] == "f-2"]
        assert "have grown" in finding["text"]
        assert finding["title"] == "Micron Technology (MU)"
        now = one(await memory.search("Micron inventories", kinds=["finding"]), "f-2")
        assert (now.text, now.title, now.known_at) == ("Inventories fell.", "Micron Group (MU)", day(6))
        assert keys(await memory.search("inventories", kinds=["finding"], as_of=day(1))) == []
        assert keys(await memory.search("Micron", as_of=datetime(2020, 1, 1, tzinfo=UTC))) == []
        with pytest.raises(UnknownSubject):
            await memory.search("Micron", subject="MU", as_of=datetime(2020, 1, 1, tzinfo=UTC))

        # What comes later changes nothing of it.
        for nth in range(30):
            await memory.record(
                Finding(
                    id=f"g-{nth}", analysis_id="mu-1", subject_id="company:MU", agent="bob", domain="supply",
                    statement=f"A glut of inventories, number {nth}.",
                ),
                known_at=day(7),
            )  # fmt: skip
        await project(harness, places)
        again = [item.model_dump() for item in (await memory.search("Micron inventories glut", as_of=day(4))).items]
        assert again == before


async def test_a_question_is_found_by_its_answer_once_there_is_one(harness: MemoryHarness, places: Places) -> None:
    await load_trading_desk(harness)
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    async with Memory.open(settings) as memory:
        answer = Market.Resolution(resolved_at=day(7), resolution="No, rates were held unchanged.")
        await memory.record_groups(Market, "rate", {"resolution": answer}, known_at=day(7))
        await project(harness, places)
        now = one(await memory.search("held unchanged", kinds=["subject"]), "rate")
        assert now.text == "Will the central bank cut rates in June?\nAnswer: No, rates were held unchanged."
        assert MemoryMatch.WORDS in now.found_by
        before = one(await memory.search("central bank rates", kinds=["subject"], as_of=day(6)), "rate")
        assert before.text == "Will the central bank cut rates in June?"


async def test_the_outcome_of_a_decision_leaves_its_text_where_it_stands(
    harness: MemoryHarness, places: Places
) -> None:
    """The decision's event names no analysis, in which the text stands all the same."""
    await load_trading_desk(harness)
    await project(harness, places)
    query = "SELECT place, ordinal, version, content FROM recall.record_text WHERE kind = 'Decision'"
    [before] = harness.rows(query)
    assert harness.settings.postgres_url is not None
    database = Database(as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value()), size=1)
    groups = {"outcome": {"outcome": "success"}}
    line = orjson.dumps({"record": "Decision", "key": "d-1", "known_at": day(8), "groups": groups})
    entry = entry_of(parse_line(line, writer="credibility"))
    deadline = Deadline.after_ms(5_000)
    await Gateway(database, ACTOR).append([entry], action=Action.APPEND_CREDIBILITY, deadline=deadline)
    await database.close()
    assert (await project(harness, places))["texts"] == 0
    assert (harness.rows(query), before["place"]) == ([before], "Analysis/mu-1")


@pytest.mark.usefixtures("places")
async def test_patterns_are_found_while_they_are_active(harness: MemoryHarness, places: Places) -> None:
    """In quarantine, and after they are withdrawn, they are not; as of a day its status counts."""
    settings = harness.of("kate", Role.KNOWLEDGE_BASE_AGENT).model_copy(update={"may_import": True})
    async with Stores.open(settings) as stores:
        memory = Memory(stores)
        await memory.record(
            Pattern(pattern_id="p-1", name="Prepayment precedes shortage", category="supply"), known_at=day(1)
        )
        await project(harness, places)
        assert keys(await memory.search("prepayment shortage")) == []
        for status, at in (("active", day(3)), ("deprecated", day(5))):
            groups = {"status": {"status": status, "quarantined": False}}
            line = orjson.dumps({"record": "Pattern", "key": "p-1", "known_at": at, "groups": groups})
            entry = entry_of(parse_line(line, writer="patterns"))
            await stores.gateway.append([entry], action=Action.APPEND_PATTERNS, deadline=Deadline.after_ms(5_000))
            assert keys(await memory.search("prepayment shortage")) == ["p-1"] * (status == "active")
        assert keys(await memory.search("prepayment shortage")) == []
        assert keys(await memory.search("prepayment shortage", as_of=day(4))) == ["p-1"]
        assert keys(await memory.search("prepayment shortage", as_of=day(2))) == []


async def test_a_part_is_read_to_its_end() -> None:
    """The default encoder reads all of a part and its title: the vectors of two that end in other words differ."""
    said = "Inventories at distributors have grown for two quarters, and lead times have shortened again. " * 20
    title = "Taiwan Semiconductor Manufacturing Company (TSM)"
    parts = [f"{said[: PART_CHARS - len(end)]}{end}" for end in (" Margins fall.", " Wheat rises.")]
    one, other = await E5.embed(
        [vector_text("Finding", None, title, part) for part in parts],
        deadline=Deadline.after_ms(60_000),
        purpose=Purpose.PASSAGE,
    )
    assert not (one == other).all()


async def test_what_is_long_is_found_in_its_parts(harness: MemoryHarness) -> None:
    """A record is shown once, by its best part; a text of other words takes its place at its correction."""
    paragraphs = [f"Paragraph {nth} speaks of {word}. " + "And so on and so forth. " * 40 for nth, word in enumerate(
        ("copper", "zinc", "helium", "lithium", "cobalt")
    )]  # fmt: skip
    async with memory_of(harness) as memory:
        analysis = Analysis(id="a", subject_id="company:MU", date=day(2), kind="equity_research")
        await memory.record(analysis, body="\n\n".join(paragraphs))
        await project(harness, E5)
        [found] = (await memory.search("helium and lithium")).items
        assert (found.key, found.part > 0) == ("a", True)
        assert "helium" in found.text or "lithium" in found.text
        recent = await memory.search("copper", recent_days=1.0)
        assert recent.items[0].score > (await memory.search("copper")).items[0].score


@pytest.mark.usefixtures("places")
async def test_what_is_wrong_is_refused(harness: MemoryHarness) -> None:
    """By the name of the argument; who may not read something is told, unless it was not asked for."""
    async with memory_of(harness) as memory:
        for name, wrong in (
            ("query", {"query": " "}),
            ("kinds", {"query": "x", "kinds": ["rumour"]}),
            ("kinds", {"query": "x", "kinds": []}),
            ("limit", {"query": "x", "limit": 0}),
            ("recent_days", {"query": "x", "recent_days": -1.0}),
            ("subject", {"query": "x", "subject": 5}),
        ):
            with pytest.raises(BadInput) as refused:
                await memory.search(**wrong)
            assert refused.value.field == name
        for odd in ("50 % _ * ' \" \\ : & | ! <-> (", "النفط والغاز", "\u202e evil", "x" * 10_000):
            assert (await memory.search(odd)).items == []


def test_on_the_command_line(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines a hit, JSON for programs; 0 done, 2 wrong usage, 3 in part."""
    import asyncio

    asyncio.run(load_trading_desk(harness))
    asyncio.run(project(harness, E5))
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("ann"))
    runner = CliRunner()
    done = runner.invoke(app, ["ask", "glut of chips", "--kind", "debate", "--limit", "1"])
    assert done.exit_code == 0, done.output
    assert 'debate "b-1#1" on "company:MU" by "bob", in "Debate/b-1" (found by words' in done.output
    assert '"Every cycle ended with a glut of chips."' in done.output
    [found] = json.loads(runner.invoke(app, ["ask", "sold out", "--kind", "finding", "--limit", "1", "--json"]).output)[
        "items"
    ]
    assert (found["kind"], found["key"], found["part_of"]) == ("finding", "f-1", "Analysis/mu-1")
    assert "Nothing was found." in runner.invoke(app, ["ask", "glut", "--as-of", "2020-01-01"]).output
    for wrong in (["ask", " "], ["ask", "x", "--kind", "rumour"], ["ask", "x", "--limit", "0"]):
        assert runner.invoke(app, wrong).exit_code == 2


async def test_who_may_not(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to memories the rest is found, and who names them is refused; without the graph, likewise."""
    await load_trading_desk(harness)
    await project(harness, places)
    every_role_may = dict(AUTHORIZATION)
    for resource, kind, other in (
        (ResourceType.MEMORIES, SearchKind.MEMORY, SearchKind.LESSON),
        (ResourceType.GRAPH, SearchKind.LESSON, SearchKind.MEMORY),
    ):
        without = {cell: scope for cell, scope in every_role_may.items() if cell[1] is not resource}
        monkeypatch.setattr("imem.journal.actors.AUTHORIZATION", without)
        async with memory_of(harness) as memory:
            found = {item.kind for item in (await memory.search("dividend of cyclical peaks", limit=50)).items}
            assert other in found
            assert kind not in found
            with pytest.raises(PermissionDenied):
                await memory.search("dividend", kinds=[kind.value])


@pytest.mark.usefixtures("places")
async def test_as_many_as_are_asked_for(harness: MemoryHarness, places: Places) -> None:
    """Up to the limit, also beyond the candidates of a list, and where many parts of one record match best."""
    async with memory_of(harness) as memory:
        for nth in range(120):
            await memory.remember(f"copper {chr(97 + nth % 26)}{chr(97 + nth // 26)}", namespace="symbol/CU")
        for nth in range(60):
            body = "copper and copper\n\n" * (800 if nth < 2 else 1)
            analysis = Analysis(id=f"a{nth}", subject_id="company:CU", date=day(2), kind="equity_research")
            await memory.record(analysis, body=body)
        await project(harness, places)
        assert len((await memory.search("copper", kinds=["memory"], limit=120, deadline_ms=9_000)).items) == 120
        assert len((await memory.search("copper", kinds=["analysis"], limit=50, deadline_ms=9_000)).items) == 50
