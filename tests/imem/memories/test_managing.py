"""Memories are listed, read by id, corrected, retired and deleted: in Python, on the command line and over MCP."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role, Settings
from imem.langgraph import MemoryStore
from imem.mcp.server import listed_tool
from imem.mcp.tools import TOOLS_BY_NAME
from imem.memory import Memory
from imem.recall.memories import store as table
from imem.recall.memories.model import MemoriesPage, StoreStatus
from imem.recall.memories.namespaces import segment_of
from imem.recall.memories.upkeep import UpkeepRules, consolidate
from tests.imem.memories.conftest import Places, make_vectors, memory_of, round_of
from tests.imem.memories.test_long_texts import LONG
from tests.imem.memory.conftest import MemoryHarness

NEVER = "00000000-0000-4000-8000-000000000000"
"""An id that no memory has."""

TABLES = ("memory", "memory_assertion", "memory_part", "memory_decay", "memory_use")


def texts(page: MemoriesPage) -> list[str]:
    return [item.content for item in page.items]


def left(harness: MemoryHarness) -> dict[str, int]:
    """How many rows each table has, and how many of what is due."""
    found = {name: harness.rows(f"SELECT count(*) FROM recall.{name}")[0]["count"] for name in TABLES}
    return {**found, "due": harness.rows("SELECT count(*) FROM due_row WHERE queue = 'memories'")[0]["count"]}


@pytest.mark.usefixtures("places")
async def test_a_list_in_pages(harness: MemoryHarness) -> None:
    """The last recorded first; nothing twice and nothing left out, and as of a moment as it was then."""
    async with memory_of(harness) as memory:
        for nth in range(7):
            await memory.remember(f"Note {nth}.", namespace=f"symbol/{'AB'[nth % 2]}")
        first = (await memory.memories.list(limit=3)).items[0]
        then = datetime.now(UTC)
        pages = []
        for offset in (0, 3, 6):
            page = await memory.memories.list(namespace="symbol/*", limit=3, offset=offset, as_of=then)
            pages += texts(page)
            assert (page.total, page.more) == (len(page.items), offset < 6)
            if offset == 0:
                await memory.remember("Another note.", namespace="symbol/A")
                await memory.memories.retire(first.id, reason="It is over.")
        assert pages == [f"Note {nth}." for nth in reversed(range(7))]
        now = await memory.memories.list(namespace="symbol/*")
        assert texts(now) == ["Another note.", *[f"Note {nth}." for nth in reversed(range(6))]]
        assert texts(await memory.memories.list(namespace="symbol/B", limit=1)) == ["Note 5."]
        assert (await memory.memories.list(as_of=datetime(2020, 1, 1, tzinfo=UTC))).items == []
        wrong: list[dict[str, Any]] = [{"limit": 0}, {"limit": 201}, {"offset": -1}, {"memory_type": "vague"}]
        for given in [*wrong, {"user": ""}, {"agent": ""}]:
            with pytest.raises(BadInput):
                await memory.memories.list(**given)
        assert harness.rows("SELECT count(*) FROM recall.memory_use") == [{"count": 0}], "a list is no access"


@pytest.mark.usefixtures("places")
async def test_a_list_of_one_user_type_or_agent(harness: MemoryHarness) -> None:
    """A user's are those with its id, wherever they are, and those below its name; an agent's are what it holds."""
    async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
        await ann.remember("a", user_id="ann@x.org", namespace="symbol/MU", memory_type="procedural")
        await ann.remember("b", namespace="user/ann.40.x.2e.org/notes")
        await ann.remember("c", namespace="user/ann", user_id="another")
        await ann.remember("d")
        await bob.remember("d")
        await bob.remember("a", user_id="ann@x.org", namespace="symbol/MU", memory_type="procedural")
        assert texts(await ann.memories.list(user="ann@x.org")) == ["b", "a"]
        assert texts(await ann.memories.list(user="ann@x.org", namespace="symbol/*")) == ["a"]
        assert texts(await ann.memories.list(user="ann")) == ["c"]
        assert texts(await ann.memories.list(memory_type="procedural")) == ["a"]
        assert texts(await ann.memories.list(agent="bob")) == ["a"], "what it may not read is not listed"
        assert texts(await bob.memories.list(agent="bob")) == ["d", "a"]
        for name in ("john.doe", "j.d.doe"):
            await ann.remember(f"Of {name}.", namespace=f"user/{name}")
            await ann.remember(f"Imported of {name}.", namespace=f"user/{segment_of(name)}/notes")
            both = [f"Imported of {name}.", f"Of {name}."]
            assert texts(await ann.memories.list(user=name)) == both, "in both spellings of the name"
        assert texts(await ann.memories.list(user="ann.40.x.2e.org")) == [], "another user's name, as imports write it"
        assert texts(await ann.memories.list(user="a.ffffffff.b")) == [], "the code of no character"
        assert (await ann.memories.delete_all(user="john.doe")).count == 2
        assert texts(await ann.memories.list(user="%")) == texts(await ann.memories.list(user="x" * 200)) == []


@pytest.mark.usefixtures("places")
async def test_one_by_its_id(harness: MemoryHarness) -> None:
    """As it is, or was; an ended one says so, and what may not be read or is none is refused."""
    async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
        early = datetime.now(UTC)
        stored = await ann.remember("The plant opens in May.", metadata={"source": "call"})
        then = datetime.now(UTC)
        assert (await ann.memories.get(stored.id)).metadata == {"source": "call"}
        new = await ann.memories.supersede(str(stored.id), "The plant opens in July.", reason="It is late.")
        ended = await ann.memories.get(stored.id)
        assert (ended.superseded_by, ended.reason) == (new.id, "It is late.")
        was = await ann.memories.get(stored.id, as_of=then)
        assert (was.content, was.superseded_at, was.superseded_by, was.reason) == (ended.content, None, None, None)
        for known, as_of in ((uuid4(), None), (stored.id, early), (new.id, then)):
            with pytest.raises(BadInput, match="there is no memory"):
                await ann.memories.get(known, as_of=as_of)
        with pytest.raises(PermissionDenied):
            await bob.memories.get(stored.id)


async def test_deleted_is_gone(harness: MemoryHarness, places: Places) -> None:
    """With every version, vector, count and what it had taken the place of; found as of then neither."""
    places.cosines = {"Demand is strong.": 1.0, "Strong demand.": 0.93}
    async with memory_of(harness) as memory:
        kept = await memory.remember("Prices rose.", namespace="symbol/MU")
        empty = left(harness)
        old = await memory.remember(LONG, namespace="symbol/MU", metadata={"secret": 1})
        await memory.remember(LONG, namespace="symbol/MU", metadata={"secret": 2})
        new = await memory.memories.supersede(old.id, f"{LONG} So far.", reason="The end was missing.")
        for text in ("Demand is strong.", "Strong demand."):
            await memory.remember(text, namespace="symbol/MU")
        assert (await round_of(harness, consolidate, places, UpkeepRules()))["merged"] == 1
        places.away = True
        waiting = await memory.remember("It waits for its vector.", namespace="symbol/MU")
        places.away = False
        [merged] = [one for one in (await memory.memories.list(namespace="symbol/MU")).items if "emand" in one.content]
        then = datetime.now(UTC)
        await memory.memories.search("plains", deadline_ms=30_000)
    async with memory_of(harness) as memory:
        counts = [(await memory.memories.delete(one)).count for one in (new.id, merged.id, waiting.id)]
        assert counts == [2, 2, 1]
        assert texts(await memory.memories.list(namespace="symbol/*", as_of=then)) == ["Prices rose."]
        for gone in (old.id, new.id, merged.id, waiting.id):
            for call in (memory.memories.get, memory.memories.history, memory.memories.delete):
                with pytest.raises(BadInput, match="there is no memory"):
                    await call(gone)
    assert {**left(harness), "memory_use": 0} == {**empty, "memory_use": 0}
    uses = harness.rows("SELECT id FROM recall.memory_use")
    assert {row["id"] for row in uses} <= {kept.id}
    [space] = harness.rows("SELECT memories, lexemes FROM recall.memory_namespace")
    assert space == {"memories": 1, "lexemes": 2}
    assert [row[1:] for row in harness.audited(authorized=True)] == [("memories", "delete")] * 3


@pytest.mark.usefixtures("places")
async def test_who_deletes_what(harness: MemoryHarness) -> None:
    """An agent what nobody else ever said, the knowledge base what no person did, a person any."""
    async with (
        memory_of(harness) as ann,
        memory_of(harness, "bob") as bob,
        memory_of(harness, "kb", Role.KNOWLEDGE_BASE_AGENT) as base,
        memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate,
    ):
        said = {"own": [ann], "agents": [ann, bob], "people": [ann, bob, kate]}
        ids = {}
        for text, actors in said.items():
            for actor in actors:
                ids[text] = (await actor.remember(text, namespace="symbol/MU")).id
        refused = {ann: {"agents", "people"}, bob: {"own", "agents", "people"}, base: {"people"}, kate: set[str]()}
        for actor, texts_ in refused.items():
            for text in texts_:
                with pytest.raises(PermissionDenied):
                    await actor.memories.delete(ids[text])
        # What somebody says no longer is its own all the same.
        await bob.memories.retire(ids["agents"], reason="No.")
        with pytest.raises(PermissionDenied):
            await ann.memories.delete(ids["agents"])
        for actor, text in ((ann, "own"), (base, "agents"), (kate, "people")):
            assert (await actor.memories.delete(ids[text])).count == 1


@pytest.mark.parametrize("page", [500, 2])
async def test_all_at_once(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """Of a namespace or a user, ended ones and items included; what others say, and what is elsewhere, stays."""
    monkeypatch.setattr(table, "DELETED", page)
    async with memory_of(harness) as ann, memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        for nth in range(5):
            await ann.remember(f"Note {nth}.", namespace=f"user/bob/{nth}")
        ended = await ann.remember("Ended.", namespace="user/bob")
        await ann.memories.retire(ended.id, reason="No.")
        await ann.remember("Elsewhere.", namespace="symbol/MU", user_id="bob")
        await ann.remember("Of another.", namespace="symbol/MU", user_id="bobby")
        await ann.remember("Of ann.", namespace="user/bobby")
        await kate.remember("Note 0.", namespace="user/bob/0")
        await MemoryStore(ann, root="user/bob").aput(("notes",), "k", {"text": "An item."})

        assert (await ann.memories.delete_all(namespace="user/bob/*")).count == 6
        assert texts(await ann.memories.list(user="bob")) == ["Note 0.", "Elsewhere."]
        assert (await ann.memories.delete_all(user="bob")).count == 1
        assert (await kate.memories.delete_all(user="bob")).count == 1
        assert (await kate.memories.delete_all(user="bob")).count == 0
        assert texts(await kate.memories.list()) == ["Of ann.", "Of another."]
        with pytest.raises(BadInput, match="must be named"):
            await ann.memories.delete_all()
        for namespace in ("agent/bob/*", "global/*"):
            with pytest.raises(PermissionDenied):
                await ann.memories.delete_all(namespace=namespace)
    await make_vectors(harness, places)
    assert left(harness)["memory"] == left(harness)["memory_assertion"] == 2


@pytest.mark.usefixtures("places")
def test_without_await(harness: MemoryHarness) -> None:
    with Memory.sync(harness.of()) as memory:
        stored = memory.remember("Margins rise.", namespace="user/u")
        assert texts(memory.memories.list(user="u")) == ["Margins rise."]
        assert memory.memories.get(stored.id).content == "Margins rise."
        assert memory.memories.delete(stored.id).count == 1
        assert memory.memories.delete_all(user="u").count == 0


@pytest.fixture
def run(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what runs a command as an agent."""
    del places
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("ann"))

    def ran(*words: str, code: int = 0, answer: str | None = None) -> str:
        done = CliRunner().invoke(app, words, input=answer)
        assert done.exit_code == code, done.output
        return done.output

    return ran


def test_on_the_command_line(harness: MemoryHarness, run: Callable[..., str]) -> None:
    """``list`` is no query, and each id that is shown can be used."""
    ids = [json.loads(run("remember", f"Note {nth}.", "--namespace", "symbol/MU", "--json"))["id"] for nth in range(3)]
    listed = run("memories", "list", "--namespace", "symbol/*", "--limit", "2")
    assert [line.split('"')[3] for line in listed.splitlines()[:2]] == ["Note 2.", "Note 1."]
    assert "--offset 2" in listed
    assert "Note 0." in run("memories", "list", "--offset", "2")
    assert ids[2] in listed
    assert ids[0] in run("memories", "Note 0.", "--limit", "3")
    assert json.loads(run("memories", "list", "--json"))["total"] == 3
    assert "Nothing is remembered there." in run("memories", "list", "--user", "nobody")
    assert '"Note 0."' in run("memories", "list of notes"), "a query that only begins like a command"

    done = json.loads(run("memories", "correct", ids[0], "Note 0, mended.", "--reason", "A slip.", "--json"))
    assert (done["status"], done["remains"]) == ("superseded", False)
    shown = run("memories", "show", done["id"])
    assert [line.split('"')[3] for line in shown.splitlines()] == ["Note 0.", "Note 0, mended."]
    assert "ended" in shown.splitlines()[0]
    assert "retired" in run("memories", "retire", ids[1], "--reason", "It is over.")
    assert "Note 1." in run("memories", "show", ids[1])
    assert run("memories", "delete", done["id"], ids[1]) == "3 deleted\n"
    asked = run("memories", "delete", "--namespace", "symbol/MU", code=1, answer="n\n")
    assert "Delete all memories of symbol/MU" in asked
    assert run("memories", "delete", "--namespace", "symbol/*", "--yes") == "1 deleted\n"
    assert left(harness)["memory"] == 0

    for wrong in (
        ("show", str(uuid4())),
        ("show", "x"),
        ("correct", ids[0], "x"),
        ("retire", ids[0]),
        ("delete",),
        ("delete", ids[0], "--user", "u"),
        ("list", "--limit", "0"),
        ("list", "--as-of", "soon"),
    ):
        run("memories", *wrong, code=2)


async def test_over_mcp(harness: MemoryHarness, places: Places) -> None:
    """As the identity may: what another says stays, and the text of a result has the ids that changes take."""
    del places
    ann, bob = Actor("ann", Role.AGENT), Actor("bob", Role.AGENT)

    async with memory_of(harness) as memory, memory_of(harness, "bob") as other:

        async def call(name: str, *, by: Actor = ann, **given: Any) -> Any:
            tool = TOOLS_BY_NAME[name]
            answer = await tool.call(memory if by is ann else other, by, given)
            assert tool.json(answer)["notice"]
            return answer, tool.text(answer)

        for nth in range(3):
            await call("store_memory", text=f"Note {nth}.", namespace="symbol/MU")
        page, text = await call("search_memories", namespace="symbol/*", limit=2)
        assert texts(page) == ["Note 2.", "Note 1."]
        first = page.items[0].id
        assert str(first) in text
        assert "raise the offset" in text
        one, text = await call("search_memories", id=str(first))
        assert (one.content, '"Note 2."' in text) == ("Note 2.", True)

        await call("store_memory", by=bob, text="Note 2.", namespace="symbol/MU")
        done, text = await call("change_memory", action="correct", id=str(first), text="Note two.", reason="In words.")
        assert (done.status, done.remains) == (StoreStatus.SUPERSEDED, True)
        assert "remains" in text
        with pytest.raises(PermissionDenied):
            await call("change_memory", by=bob, action="retire", id=str(done.id), reason="No.")
        done, text = await call("change_memory", by=bob, action="retire", id=str(first), reason="It is over.")
        assert "retired" in text
        gone, text = await call("change_memory", action="delete", id=str(page.items[1].id))
        assert (gone.count, "deleted: 1" in text) == (1, True)
        gone, _ = await call("change_memory", action="delete", namespace="symbol/MU")
        assert gone.count == 2, "what was corrected is the other's as well"
        assert [UUID(str(row["id"])) for row in harness.rows("SELECT DISTINCT id FROM recall.memory")] == [first]


def test_clients_are_told_which_tool_can_delete() -> None:
    """By the protocol's hints, of which it assumes the worst where none is given."""
    hints = {tool.name: listed_tool(tool).annotations for tool in TOOLS_BY_NAME.values()}
    unsafe = [
        name
        for name, hint in hints.items()
        if hint is None or (hint.read_only_hint is not True and hint.destructive_hint is not False)
    ]
    assert unsafe == ["change_memory"]


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("name", "given", "argument"),
    [
        ("search_memories", {"limit": 0}, "limit"),
        ("search_memories", {"offset": -1}, "offset"),
        ("search_memories", {"namespace": "user/../agent/bob"}, "namespace"),
        ("search_memories", {"id": "x"}, "memory_id"),
        ("search_memories", {"id": NEVER, "limit": 1}, "limit"),
        ("change_memory", {}, "action"),
        ("change_memory", {"action": "forget"}, "action"),
        ("change_memory", {"action": ["delete"], "user": "u"}, "action"),
        ("change_memory", {"action": "retire", "reason": "x"}, "id"),
        ("change_memory", {"action": "correct", "text": "x", "reason": "x", "namespace": "symbol/T0"}, "id"),
        ("change_memory", {"action": "delete"}, "namespace"),
        ("change_memory", {"action": "delete", "id": NEVER, "text": "x"}, "text"),
        ("change_memory", {"action": "retire", "id": NEVER}, "reason"),
        ("change_memory", {"action": "delete", "id": NEVER}, "memory_id"),
    ],
)
async def test_wrong_arguments_over_mcp_are_named(
    harness: MemoryHarness, name: str, given: dict[str, Any], argument: str
) -> None:
    async with memory_of(harness) as memory:
        with pytest.raises(BadInput) as refused:
            await TOOLS_BY_NAME[name].call(memory, Actor("ann", Role.AGENT), given)
    assert refused.value.field == argument
