"""``imem memories import``: what other memories export, in the shapes that they document."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore
from typer.testing import CliRunner

from imem.cli import app
from imem.ingest.memory_sources.entries import moment
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role, Settings
from imem.langgraph import MemoryStore
from imem.memory import Memory
from tests.imem.memories.conftest import Places
from tests.imem.memory.conftest import MemoryHarness

Run = Callable[..., str]

MEM0: dict[str, Any] = {
    "count": 2,
    "results": [
        {
            "id": "a1", "memory": "Ann prefers short answers.", "user_id": "ann@x.org", "hash": "h", "score": None,
            "categories": ["style"], "metadata": {"source": "chat"}, "created_at": "2025-03-01T10:00:00-07:00",
            "updated_at": None,
        },
        {"id": "a2", "memory": "The desk trades in Boise.", "agent_id": "desk", "run_id": "r"},
    ],
}  # fmt: skip
ZEP_FACTS = {
    "edges": [
        {
            "uuid": "f1", "name": "LIVES_IN", "fact": "Bob lives in Lisbon.", "created_at": "2025-01-02T00:00:00Z",
            "valid_at": "2024-05-01T00:00:00Z", "invalid_at": None, "expired_at": None, "source_node_uuid": "n1",
            "target_node_uuid": "n2", "episodes": ["e1"], "attributes": {"certain": True},
        },
        {"uuid_": "f2", "fact": "Bob lived in Porto.", "created_at": "2024-01-02T00:00:00Z", "name": "LIVED_IN"},
    ]
}  # fmt: skip
ZEP_MESSAGES: list[dict[str, Any]] = [
    {"uuid": "m1", "role": "user", "name": "Ann", "content": "Where is the plant?", "thread_id": "t"},
    {"uuid": "m2", "role": "assistant", "content": "In Boise.", "thread_id": "t", "metadata": {"k": 1}},
]

ZEP_THREAD: dict[str, Any] = {
    "messages": [
        {
            "uuid": f"{nth}", "role": role, "name": None, "content": text, "metadata": None, "processed": True,
            "created_at": f"2025-03-0{nth}T10:00:00Z",
        }
        for nth, (role, text) in enumerate([("user", "Sell?"), ("assistant", "Yes."), ("assistant", "Yes.")], 1)
    ],
    "row_count": 3, "total_count": 3, "thread_created_at": "2025-03-01T10:00:00Z", "user_id": "ann", "user_uuid": "u",
}  # fmt: skip


@pytest.fixture
def run(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return what writes a file and imports it as somebody."""
    del places
    runner = CliRunner()

    def imported(content: Any, source: str, *words: str, code: int = 0, who: Settings | None = None) -> str:
        monkeypatch.setattr(Settings, "read", lambda *_, **__: who or harness.of("kate", Role.HUMAN_ADMIN))
        file = tmp_path / "export.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        done = runner.invoke(app, ["memories", "import", str(file), "--from", source, *words])
        assert done.exit_code == code, done.output
        return done.output

    return imported


def stored(harness: MemoryHarness) -> list[dict[str, Any]]:
    return harness.rows(
        "SELECT namespace, content, metadata, memory_type, user_id, author, conversation_id, ordinal, "
        "created_at::date::text FROM recall.memory WHERE superseded_at IS NULL ORDER BY namespace, ordinal, content"
    )


def test_mem0(harness: MemoryHarness, run: Run) -> None:
    """Whose they are says where they go; the time of the source is kept; what else is there stays in the metadata."""
    assert run(MEM0, "mem0") == "2 new\n"
    desk, ann = stored(harness)
    assert (desk["namespace"], desk["content"]) == ("agent/desk", "The desk trades in Boise.")
    assert desk["metadata"] == {"mem0": {"id": "a2", "agent_id": "desk", "run_id": "r"}}
    assert (ann["namespace"], ann["user_id"], ann["created_at"]) == ("user/ann.40.x.2e.org", "ann@x.org", "2025-03-01")
    assert ann["metadata"] == {"source": "chat", "mem0": {"id": "a1", "hash": "h", "categories": ["style"]}}
    assert run(MEM0["results"], "mem0") == "2 identical\n"
    assert run("\n".join(json.dumps(one) for one in MEM0["results"]), "mem0") == "2 identical\n"
    assert run(MEM0, "mem0", "--namespace", "symbol/X") == "2 new\n"


def test_users_of_mem0_in_one_namespace(harness: MemoryHarness, run: Run) -> None:
    """What two of them say alike stays two memories."""
    said = [{"id": user, "memory": "Likes tea.", "user_id": user} for user in ("ann", "bob")]
    assert run(said, "mem0", "--namespace", "symbol/X") == "2 new\n"
    assert sorted(row["user_id"] for row in stored(harness)) == ["ann", "bob"]
    assert run(said, "mem0", "--namespace", "symbol/X") == "2 identical\n"


def test_zep(harness: MemoryHarness, run: Run) -> None:
    """Facts with when they were valid, messages in their thread in order."""
    assert run(ZEP_FACTS, "zep", "--namespace", "user/bob") == "2 new\n"
    assert run(ZEP_MESSAGES, "zep", "--namespace", "user/talk") == "2 new\n"
    lived, lives, first, second = sorted(
        stored(harness), key=lambda row: (row["namespace"], row["ordinal"] or 0, row["created_at"])
    )
    assert (lives["content"], lives["created_at"], lives["memory_type"]) == (
        "Bob lives in Lisbon.",
        "2025-01-02",
        "semantic",
    )
    assert (lives["metadata"]["certain"], lives["metadata"]["zep"]["valid_at"]) == (True, "2024-05-01T00:00:00Z")
    assert lived["metadata"]["zep"] == {"uuid_": "f2", "name": "LIVED_IN"}
    assert (first["author"], first["conversation_id"], first["ordinal"]) == ("Ann", "t", 1)
    assert (second["author"], second["ordinal"], second["memory_type"]) == ("assistant", 2, "episodic")
    assert run(ZEP_FACTS, "zep", "--namespace", "user/bob") == "2 identical\n"
    assert run(ZEP_MESSAGES, "zep", "--namespace", "user/talk") == "2 identical\n"
    same = [{**ZEP_MESSAGES[0], "uuid": "m3"}, {**ZEP_MESSAGES[0], "uuid": "m4", "thread_id": "u"}]
    assert run(same, "zep", "--namespace", "user/talk") == "2 new\n", "each message has its place"


def test_a_thread_of_zep(harness: MemoryHarness, run: Run) -> None:
    """The list says whose it is and may say its thread, else the option does; what a message says comes first."""
    assert run(ZEP_THREAD, "zep", "--conversation", "t") == "3 new\n"
    assert [
        (row["namespace"], row["user_id"], row["conversation_id"], row["ordinal"], row["author"], row["content"])
        for row in stored(harness)
    ] == [
        ("user/ann", "ann", "t", 1, "user", "Sell?"),
        ("user/ann", "ann", "t", 2, "assistant", "Yes."),
        ("user/ann", "ann", "t", 3, "assistant", "Yes."),
    ]
    assert run(ZEP_THREAD, "zep", "--conversation", "t") == "3 identical\n"
    first, second, third = ZEP_THREAD["messages"]
    own = [{**first, "session_id": "own", "user_id": "bob"}, second, {**third, "thread_id": ""}]
    assert run({"messages": own, "thread_id": "all", "user_id": "eve"}, "zep", "--conversation", "t") == "3 new\n"
    assert {
        (row["user_id"], row["conversation_id"], row["ordinal"]) for row in stored(harness) if row["user_id"] != "ann"
    } == {("bob", "own", 1), ("eve", "all", 1), ("eve", "all", 2)}


def test_lines_of_one_conversation(harness: MemoryHarness, run: Run) -> None:
    """The option says it of our own lines, too: the same ones of another conversation are others."""
    lines = [{"content": "Yes."}, {"content": "Yes."}]
    for conversation in ("c", "d"):
        assert run(lines, "jsonl", "--dry-run", "--conversation", conversation) == "2 read\n"
        assert run(lines, "jsonl", "--conversation", conversation) == "2 new\n"
        assert run(lines, "jsonl", "--conversation", conversation) == "2 identical\n"
    assert sorted((row["conversation_id"], row["ordinal"]) for row in stored(harness)) == [
        ("c", 1), ("c", 2), ("d", 1), ("d", 2)
    ]  # fmt: skip


def test_a_store_of_langgraphs(harness: MemoryHarness, run: Run) -> None:
    """What its items say of themselves becomes items of ours; what is there already stays."""
    before = InMemoryStore()
    before.put(("docs", "ü b"), "k", {"text": "oil", "n": [1, None]})
    before.put(("docs",), "", {})
    items = [item.dict() for item in before.search(())]
    assert run(items, "langgraph") == "2 new\n"
    with MemoryStore.open(harness.of("kate", Role.HUMAN_ADMIN)) as store:
        assert store.get(("docs", "ü b"), "k").dict()["value"] == {"text": "oil", "n": [1, None]}  # type: ignore[union-attr]
        assert store.get(("docs",), "").created_at == before.get(("docs",), "").created_at  # type: ignore[union-attr]
        store.put(("docs",), "", {"new": 1})
        assert run({"items": items}, "langgraph") == "2 identical\n"
        assert store.get(("docs",), "").value == {"new": 1}  # type: ignore[union-attr]
        store.delete(("docs",), "")
        assert run({"items": items}, "langgraph") == "2 identical\n", "what was deleted stays so"
        assert store.get(("docs",), "") is None


def test_our_own_lines(harness: MemoryHarness, run: Run) -> None:
    """With and without an id; equal texts are one memory, whose own metadata come first; twice is once, ever after."""
    lines = [
        {"content": "Oil is scarce.", "metadata": {"a": 1}, "importance": 0.9, "namespace": "symbol/OIL"},
        {"id": "x", "content": "Oil is scarce.", "metadata": {"a": 2, "b": 2}, "namespace": "symbol/OIL"},
        {"content": "Gas is not.", "memory_type": "episodic", "author": "Ann", "created_at": 1_700_000_000},
    ]
    text = "".join(f"{json.dumps(line)}\n\n" for line in lines)
    assert run(text, "jsonl") == "2 new, 1 updated\n"
    gas, oil = stored(harness)
    assert (gas["namespace"], gas["created_at"], gas["author"]) == ("agent/kate", "2023-11-14", "Ann")
    assert oil["metadata"] == {"a": 1, "b": 2}
    versions = harness.rows("SELECT count(*) FROM recall.memory")
    assert run(text, "jsonl") == "3 identical\n"
    assert harness.rows("SELECT count(*) FROM recall.memory") == versions
    with Memory.sync(harness.of("kate", Role.HUMAN_ADMIN)) as memory:
        [known] = memory.memories.search("gas", namespace="agent/kate").items
        memory.memories.supersede(known.id, "Gas is scarce, too.", reason="It is.")
    assert run(text, "jsonl") == "3 identical\n"


def test_what_another_imported_keeps_nothing_out(harness: MemoryHarness, run: Run) -> None:
    """An id that somebody used first is no text: what is said otherwise is stored, and what is the same both hold."""
    line: dict[str, Any] = {"id": "x", "content": "Oil is scarce.", "namespace": "user/desk"}
    talk: list[dict[str, Any]] = [
        {"id": str(nth), "content": text, "conversation_id": "c", "author": "Ann", "namespace": "user/desk"}
        for nth, text in enumerate(("Sell?", "Yes."))
    ]
    agent = harness.of("bob")
    assert run({**line, "content": "Oil is plentiful."}, "jsonl", who=agent) == "1 new\n"
    assert run([talk[0], {**talk[1], "content": "No."}], "jsonl", who=agent) == "2 new\n"
    assert run(line, "jsonl") == "1 new\n"
    assert run(talk, "jsonl") == "1 new, 1 updated\n"
    assert [(row["content"], row["ordinal"]) for row in stored(harness)] == [
        ("Sell?", 1), ("No.", 2), ("Yes.", 3), ("Oil is plentiful.", None), ("Oil is scarce.", None)
    ]  # fmt: skip
    for who in (agent, None):
        assert run(line, "jsonl", who=who) == "1 identical\n"
        assert run(talk, "jsonl", who=who) == "2 identical\n"
    with Memory.sync(agent) as memory:
        squatted = next(one for one in memory.memories.list().items if one.content == "Oil is plentiful.")
        memory.memories.retire(squatted.id, reason="No.")
        said = next(one for one in memory.memories.list().items if one.content == "Sell?")
        assert (said.agent_id, [one.agent_id for one in said.also_said_by]) == ("kate", ["bob"])
    assert run(line, "jsonl", who=agent) == "1 identical\n"


def test_messages_without_an_id(harness: MemoryHarness, run: Run) -> None:
    """Who said it, in which conversation and how often tell equal texts apart; twice is once, and one more is new."""
    lines: list[dict[str, Any]] = [
        {"content": "Sell?", "author": "Ann", "conversation_id": "c"},
        {"content": "Yes.", "author": "Bob", "conversation_id": "c"},
        {"content": "Yes.", "author": "Ann", "conversation_id": "c"},
        {"author": "Bob", "conversation_id": "c", "content": "Yes."},
        {"content": "Yes.", "author": "Bob", "conversation_id": "d"},
        {"content": "Yes.", "metadata": {"a": 1}},
        {"content": "Yes.", "metadata": {"b": 2}},
    ]
    assert run(lines, "jsonl") == "6 new, 1 updated\n"
    [plain] = [row for row in stored(harness) if row["conversation_id"] is None]
    assert plain["metadata"] == {"a": 1, "b": 2}

    def said(conversation: str) -> list[tuple[str, str]]:
        return [(row["author"], row["content"]) for row in stored(harness) if row["conversation_id"] == conversation]

    assert said("c") == [("Ann", "Sell?"), ("Bob", "Yes."), ("Ann", "Yes."), ("Bob", "Yes.")]
    assert said("d") == [("Bob", "Yes.")]
    assert run(lines, "jsonl") == "7 identical\n"
    assert run([dict(reversed(line.items())) for line in lines], "jsonl") == "7 identical\n"
    assert run([*lines, lines[1]], "jsonl") == "7 identical, 1 new\n"
    assert said("c")[-1] == ("Bob", "Yes.")
    assert len(said("c")) == 5


def test_what_an_import_states_is_known_from_then_on(harness: MemoryHarness, run: Run) -> None:
    """As of its own day it is found in every way; a text that the source changed later, from that moment on."""
    entries = [
        {"id": "1", "memory": "Gas was cheap.", "user_id": "ann", "created_at": "2024-01-05T10:00:00Z"},
        {
            "id": "2", "memory": "Gas was dear.", "user_id": "ann", "created_at": "2024-01-05T10:00:00Z",
            "updated_at": "2024-03-01T10:00:00Z",
        },
        {"id": "3", "memory": "Gas has no date.", "user_id": "ann"},
    ]  # fmt: skip
    run(entries, "mem0")
    item = {"namespace": ["docs"], "key": "k", "value": {"text": "Gas is an item."}}
    run([{**item, "created_at": "2024-01-05T10:00:00Z", "updated_at": "2024-02-01T10:00:00Z"}], "langgraph")
    before, early, later = (datetime(2024, month, day, tzinfo=UTC) for month, day in ((1, 5), (1, 6), (3, 2)))

    with Memory.sync(harness.of("kate", Role.HUMAN_ADMIN)) as memory:

        def known(at: datetime | None) -> list[str]:
            found = memory.memories.search("gas", as_of=at, deadline_ms=10_000).items
            listed = memory.memories.list(as_of=at).items
            of_kate = memory.memories.list(as_of=at, agent="kate").items
            ids = sorted(str(one.id) for one in found)
            assert sorted(str(one.id) for one in listed) == sorted(str(one.id) for one in of_kate) == ids
            assert all(memory.memories.get(one.id, as_of=at).content == one.content for one in found)
            return sorted(one.content for one in found)

        assert known(before) == []
        assert known(early) == ["Gas was cheap."]
        assert len(known(later)) == 3
        assert "Gas was dear." in known(later)
        assert len(known(None)) == 4
        old = next(one for one in memory.memories.list().items if one.content == "Gas was cheap.")
        memory.memories.supersede(old.id, "Gas was not cheap.", reason="It was not.")
        assert known(early) == ["Gas was cheap."], "what it said then"
        assert memory.memories.list(as_of=early).items[0].by_person


def test_what_is_remembered_with_its_day(harness: MemoryHarness, run: Run) -> None:
    """With the import right alone, and never ahead."""
    del run
    at = datetime(2024, 1, 5, tzinfo=UTC)
    with Memory.sync(harness.of("kate", Role.HUMAN_ADMIN)) as memory:
        memory.remember("Gas was cheap.", namespace="symbol/GAS", occurred_at=at)
        assert len(memory.memories.search("gas", as_of=at, deadline_ms=10_000).items) == 1
        assert memory.memories.search("gas", as_of=at - timedelta(days=1), deadline_ms=10_000).items == []
        for wrong in (datetime(2999, 1, 1, tzinfo=UTC), at.replace(tzinfo=None)):
            with pytest.raises(BadInput, match="occurred_at"):
                memory.remember("Gas.", occurred_at=wrong)
    who = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": False})
    with Memory.sync(who) as memory, pytest.raises(PermissionDenied):
        memory.remember("Gas.", occurred_at=at)


@pytest.mark.parametrize(
    ("stated", "read_as"),
    [
        ("2024-01-01", "2024-01-02T12:00:00+00:00"),
        ("20240101", "2024-01-02T12:00:00+00:00"),
        ("2024-01-01T10:00:00", "2024-01-01T22:00:00+00:00"),
        ("2024-01-01 10:00", "2024-01-01T22:00:00+00:00"),
        ("2024-01-01T10:00:00+02:00", "2024-01-01T08:00:00+00:00"),
        (1_700_000_000, "2023-11-14T22:13:20+00:00"),
    ],
)
def test_times_are_read_as_the_page_on_time_says(stated: str | int, read_as: str) -> None:
    """Where they are ambiguous, as late as possible."""
    found = moment({"created_at": stated}, "created_at")
    assert found is not None
    assert found.isoformat() == read_as


def test_a_day_that_is_not_over_is_now() -> None:
    """A time that is ahead nowhere is none of the future, and nothing is known later than now."""
    now = datetime.now(UTC)
    for stated in (now.date().isoformat(), now.replace(tzinfo=None).isoformat()):
        found = moment({"created_at": stated}, "created_at")
        assert found is not None
        assert now <= found <= datetime.now(UTC)
    with pytest.raises(BadInput, match="future"):
        moment({"created_at": (now + timedelta(days=2)).date().isoformat()}, "created_at")


def test_without_the_import_right(harness: MemoryHarness, run: Run) -> None:
    """The time of the source is in the metadata, and not the memory's own."""
    who = harness.of("ann").model_copy(update={"may_import": False})
    run({"content": "Gas is not.", "created_at": "2024-01-01"}, "jsonl", who=who)
    [row] = stored(harness)
    assert row["metadata"] == {"created_at": "2024-01-02T12:00:00+00:00"}
    assert row["created_at"] > "2024-01-01"
    assert harness.rows("SELECT count(*) FROM recall.memory WHERE recorded_at - created_at < '1 s'") == [{"count": 1}]


def test_when_it_was_said(harness: MemoryHarness, run: Run) -> None:
    """The date that the source states is the memory's with the import right, and in the metadata without."""
    line = {"content": "Gas is not.", "occurred_at": "2024-01-01"}
    run(line, "jsonl")
    run(line, "jsonl", who=harness.of("ann").model_copy(update={"may_import": False}))
    rows = harness.rows("SELECT occurred_at::date::text AS day, metadata FROM recall.memory ORDER BY 1")
    assert rows == [
        {"day": "2024-01-01", "metadata": {}},
        {"day": None, "metadata": {"occurred_at": "2024-01-01T23:59:59.999999+00:00"}},
    ]
    assert "in the future" in run({**line, "occurred_at": "2999-01-01"}, "jsonl", code=1)


WRONG = """[
  {"id": "1", "memory": "good"},
  {"id": "2"},
  {"id": 3, "memory": "x"},
  {"id": "4", "memory": "x", "metadata": []},

  {"id": "5", "memory": "x", "created_at": "soon"}, {"id": "6", "memory": " "},
  {"id": "7", "memory": "x", "created_at": "2999-01-01"},
  "text",
  {"id": "8", "memory": "good too", "user_id": null, "metadata": null}
]"""


def test_refusals(harness: MemoryHarness, run: Run) -> None:
    """Each says line, field and reason; the others are imported, and a dry run says the same and stores nothing."""
    told = run(WRONG, "mem0", "--dry-run", code=1)
    assert harness.rows("SELECT count(*) FROM recall.memory") == [{"count": 0}]
    assert told.endswith("2 read\n")
    shown = json.loads(run(WRONG, "mem0", "--json", code=1))
    assert shown["counts"] == {"new": 2}
    refused = [(one["line"], one["field"]) for one in shown["refused"]]
    assert refused == [
        (3, "memory"), (4, "id"), (5, "metadata"), (7, "created_at"), (7, "text"), (8, "created_at"), (9, "line")
    ]  # fmt: skip
    assert all(f"line {line}: {field}: " in told for line, field in refused)
    lines = run('{"content": "x", "note": 1}\n{broken\n{"content": "y"}\n[]\n', "jsonl", code=1)
    assert "line 1: note: is unknown" in lines
    assert "line 2: line: is no JSON" in lines
    assert "line 4: line: is no object" in lines
    for wrong in (
        {"namespace": ["a.b"], "key": "k", "value": {}},
        {"namespace": "a", "key": "k", "value": {}},
        {"key": "k"},
    ):
        assert "namespace: " in run([wrong], "langgraph", code=1)
    assert "value: " in run([{"namespace": ["a"], "key": "k", "value": 1}], "langgraph", code=1)
    for beyond in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert "created_at: " in run([{"id": "1", "memory": "x", "created_at": beyond}], "mem0", code=1)
    assert "importance" in run([{"content": "x", "importance": 2}], "jsonl", code=1)
    assert "namespace" in run([{"content": "x", "namespace": "a%"}], "jsonl", code=1)
    assert run("", "jsonl") == "Nothing to import.\n"
    assert "is no JSON" in run("[" * 200_000, "jsonl", code=1)


def test_wrong_usage(run: Run, harness: MemoryHarness, tmp_path: Path) -> None:
    run([], "notion", code=2)
    run([{"content": "x"}], "jsonl", "--namespace", "a%", code=1)
    for source, conversation in (("mem0", "c"), ("langgraph", "c"), ("zep", "")):
        for more in ([], ["--dry-run"]):
            assert "--conversation" in run([], source, "--conversation", conversation, *more, code=2)
    done = CliRunner().invoke(app, ["memories", "import", str(tmp_path / "none.json")])
    assert "cannot be read" in str(done.exception)
    with pytest.raises(BadInput):
        MemoryStore.open(harness.of("import:x")).__enter__()


def test_a_query_needs_no_command(run: Run) -> None:
    """``imem memories QUERY`` as before; options may come first."""
    run([{"content": "Margins rise."}], "jsonl")
    for words in (["margins"], ["search", "margins"], ["--limit", "1", "margins"]):
        assert "Margins rise." in CliRunner().invoke(app, ["memories", *words]).output
