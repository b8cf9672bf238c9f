"""What lines refer to and nobody has recorded is said at the end of a load."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from imem.commands.load import Waits, run
from imem.ingest import loader
from imem.ingest.line_reader import Batch, LoadSource, RefusedLine, sources_of
from imem.ingest.loader import LoadCounts, Loader, MissingReferences
from imem.journal.postgres.connection import Connection
from imem.kg.kinds.catalog import KINDS, REFERENCES, implied_links
from imem.services.stores import Stores
from tests import strategies as given_
from tests.imem.ingest.conftest import KNOWN, LoadHarness, analysis, company, finding, performed

LATE_GROUP = {
    "record": "Market",
    "key": "rain",
    "known_at": KNOWN,
    "groups": {"resolution": {"resolved_at": KNOWN, "resolution": "yes"}},
}


def found(told: dict[str, object]) -> dict[str, tuple[int, list[str]]]:
    missing = told["missing_references"]
    assert isinstance(missing, list)
    return {one["kind"]: (one["count"], one["examples"]) for one in missing}


def test_what_is_referred_to_in_vain_is_said(harness: LoadHarness) -> None:
    """Subjects, agents, analyses, link ends and records with late groups alone: counted by kind; exit code 0."""
    lines = [
        analysis("a"),
        *(finding(f"f{number}", analysis_id=f"gone{number}") for number in range(5)),
        finding("here", agent="bob"),
        performed("eve", "a"),
        LATE_GROUP,
    ]
    path = harness.file("desk.jsonl", lines)
    told = harness.load(path)
    said = harness.run("load", "--no-wait", path).stderr

    assert told["code"] == 0
    assert found(told) == {
        "Agent": (3, ["ann", "bob", "eve"]),
        "Analysis": (5, ["gone0", "gone1", "gone2"]),
        "Company": (1, ["MU"]),
        "Market": (1, ["rain"]),
    }
    assert (
        "Referred to, and not recorded: 3 Agent ('ann', 'bob', 'eve'); 5 Analysis ('gone0', 'gone1', 'gone2', …)"
        in said
    )


def test_what_turns_of_a_debate_cite_is_looked_for(harness: LoadHarness) -> None:
    """So is the analysis that a debate belongs to; a finding that is recorded is not missing."""
    agents = [{"record": "Agent", "known_at": KNOWN, "core": {"name": name}} for name in ("ann", "bob")]
    core = {
        "id": "d", "subject_id": "company:MU", "analysis_id": "nowhere", "topic": "t", "challenger_agent": "bob",
        "challenged_agent": "ann", "participants": ["ann", "bob"], "timestamp": KNOWN,
    }  # fmt: skip
    turns = [
        {"number": 1, "speaker": "ann", "text": "x", "cites": ["f", "gone"]},
        {"number": 2, "speaker": "bob", "text": "y", "cites": ["gone"]},
    ]
    debate = {"record": "Debate", "known_at": KNOWN, "core": core, "turns": turns}
    path = harness.file("desk.jsonl", [company("MU"), *agents, analysis("a"), finding("f", analysis_id="a"), debate])

    for _ in range(2):  # What is identical refers to it still.
        assert found(harness.load(path)) == {"Analysis": (1, ["nowhere"]), "Finding": (1, ["gone"])}


def test_what_another_file_has_is_there(harness: LoadHarness) -> None:
    """Files of one load, of earlier ones and calls count alike, whatever their order; then nothing is said."""
    agents = [{"record": "Agent", "known_at": KNOWN, "core": {"name": name}} for name in ("ann", "eve")]
    first = harness.load(
        harness.file("first.jsonl", [analysis("a"), finding("f", analysis_id="a"), performed("eve", "a")])
    )
    second = harness.load(harness.file("second.jsonl", [company("MU"), agents[0]]))
    again = harness.load(harness.folder / "first.jsonl")
    harness.load(harness.file("third.jsonl", [agents[1]]))
    last = harness.load(harness.folder / "first.jsonl")
    said = harness.run("load", "--no-wait", harness.folder / "first.jsonl").stderr

    assert found(first).keys() == {"Agent", "Company"}
    assert found(second) == {}
    assert found(again) == {"Agent": (1, ["eve"])}
    assert found(last) == {}
    assert "Referred to" not in said


def test_a_load_of_nothing_refers_to_nothing(harness: LoadHarness) -> None:
    """Neither a load that was refused whole nor a strict one that stopped has anything to say."""
    harness.load(harness.file("before.jsonl", [finding("f")]))
    bad = harness.file("bad.jsonl", [b"{"])

    assert found(harness.load(bad)) == {}
    assert harness.load("--strict", bad)["missing_references"] is None


class NoProgress:
    """A progress display that shows nothing."""

    def refused(self, line: RefusedLine) -> None:
        raise AssertionError(line)

    def checked(self, _source: LoadSource, _batch: Batch) -> None: ...

    def loaded(self, _source: LoadSource, _batch: Batch, _counts: LoadCounts) -> None: ...

    def waiting(self, _counts: LoadCounts) -> None: ...


async def test_a_long_load_is_looked_at_in_pages(harness: LoadHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement looks at more than a page; what several pages miss counts once, and a second look begins anew."""
    monkeypatch.setattr(loader, "REFERENCES_PAGE", 3)
    spans = []
    execute = Connection.execute

    async def noted(self: Connection, query: Any, parameters: Any = None, **more: Any) -> Any:
        if isinstance(parameters, dict) and "upto" in parameters:
            spans.append((parameters["first"], parameters["upto"]))
        return await execute(self, query, parameters, **more)

    monkeypatch.setattr(Connection, "execute", noted)
    path = harness.file(
        "desk.jsonl", [company("MU"), *(finding(f"f{nth}", analysis_id=f"gone{nth % 5}") for nth in range(9))]
    )
    async with Stores.open(harness.having(may_import=True).settings) as stores:
        loading = Loader(stores.gateway, NoProgress())
        await loading.load(sources_of([str(path)]))
        await loading.look_for_references()
        first = loading.counts.missing
        harness.load(harness.file("later.jsonl", [{"record": "Agent", "known_at": KNOWN, "core": {"name": "ann"}}]))
        await loading.look_for_references()

    assert spans == [(1, 3), (4, 6), (7, 9), (10, 10)] * 2
    analyses = MissingReferences("Analysis", 5, ("gone0", "gone1", "gone2"))
    assert first == [MissingReferences("Agent", 1, ("ann",)), analyses]
    assert (loading.counts.missing, loading.counts.unchecked_reason) == ([analyses], "")


async def test_that_nobody_looked_to_the_end_is_said(
    harness: LoadHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Silence would say that all is there: people read why it does not, and so do programs; the load stands."""
    monkeypatch.setattr(loader, "REFERENCES_BUDGET_MS", 0)
    path = harness.file("desk.jsonl", [finding("f")])
    settings = harness.having(may_import=True).settings

    waits = Waits(graph=False)
    codes = [await run(settings, sources_of([str(path)]), strict=False, waits=waits, report=None, as_json=False)]
    said = capsys.readouterr().err
    codes.append(await run(settings, sources_of([str(path)]), strict=False, waits=waits, report=None, as_json=True))
    told = json.loads(capsys.readouterr().out)

    assert codes == [0, 0]
    assert "1 new" in said
    assert "The check of the lines' references was cut short: " in said
    assert told["missing_references"] is None
    assert told["references_error"]


@pytest.mark.parametrize("kind", given_.LOADABLE_KINDS)
def test_every_implied_link_is_a_reference(kind: str) -> None:
    """What a record's own event links is looked for: a kind that is new is found here without being named."""

    @settings(max_examples=20, deadline=None)
    @given(given_.cores_of(kind, full=True))
    def check(core: dict[str, Any]) -> None:
        own = (kind, core[KINDS[kind].key])
        linked = {end for link in implied_links(kind, core) for end in (link[1:3], link[3:5])} - {own}
        fields = [name for label, name, _ in REFERENCES if label == kind]
        stated = [core[name] for name in fields if name in core]
        named = {name for value in stated for name in (value if isinstance(value, list) else [value])}
        assert {key for _, key in linked} <= named | {name.partition(":")[2] for name in named}

    check()
