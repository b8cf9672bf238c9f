"""The commands about scores: what they print, draw and record, and who may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import BadInput
from imem.journal.settings import Role
from imem.kg.kinds.enums import BiasStatus
from imem.kg.kinds.fields import NAME_CHARS
from imem.kg.model import BiasCorrection
from imem.terminal.intervals import WIDTH, IntervalRow, interval_lines
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.test_existence import environment
from tests.recall.test_scores import DOMAIN, ENOUGH_MS, at, season
from tests.servers import as_pipelines

Run = Callable[..., Any]


@pytest.fixture
def run(harness: RecallHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name, value in environment(harness.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IMEM_POSTGRES_PIPELINE_URL", as_pipelines(harness.settings, harness.journal.url))
    monkeypatch.setenv("IMEM_HOME", str(tmp_path))
    return CliRunner().invoke


async def asked(run: Run, *words: str, code: int = 0) -> str:
    done = await asyncio.to_thread(run, app, list(words))
    assert done.exit_code == code, done.output
    return str(done.stdout)


def test_intervals_are_drawn_to_scale() -> None:
    lines = interval_lines([IntervalRow("ann", 0.25, 0.5, 0.75, "n 3"), IntervalRow("bo", 0.0, 0.0, 1.0)])

    assert lines[0].strip() == "0" + "0.5".center(WIDTH - 2) + "1"
    assert lines[1] == "ann  " + (" " * 10 + "-" * 10 + "o" + "-" * 10).ljust(WIDTH) + "  n 3"
    assert lines[2] == "bo   o" + "-" * 40
    assert interval_lines([]) == []


async def test_agents_are_listed_drawn_and_explained(harness: RecallHarness, run: Run, tmp_path: Path) -> None:
    await harness.know([*season("ann", [True] * 4), *season("bob", [False] * 4)])
    picture, own = tmp_path / "all.svg", tmp_path / "ann.svg"

    listed = await asked(run, "agents", "--svg", str(picture))
    shown = await asked(run, "agents", "ann", "--svg", str(own))
    document = json.loads(await asked(run, "agents", "ann", "--json"))
    nobody = await asked(run, "agents", "nobody")

    assert [line.split(" in ")[0] for line in listed.splitlines() if " in flu  " in line] == ["ann", "bob"]
    assert "ann in flu" in picture.read_text("utf-8")
    assert own.read_text("utf-8").startswith("<svg ")
    for part in (
        "ann in flu: 0.", "rests on 4 observations, 4 claims", "posterior: Beta(", "as designed (comprehensive)",
        "by metric type: binary 1.000 of 4", "calibration: stated 0.800, came true 1.000",
        "by probability: 0.800 came true 1.000 of 4", "flags: none",
        "the newest of 4 claims:", "stated 0.8, came 1, right",
    ):  # fmt: skip
        assert part in shown, shown
    assert document["scores"][0]["score"]["record"]["n"] == 4
    assert nobody.strip() == "No claim of nobody was ever settled."
    await asked(run, "agents", "ann", "--context", "colour=red", code=2)
    await asked(run, "agents", "ann", "--svg", str(tmp_path), code=2)


async def test_a_panel_on_one_question(harness: RecallHarness, run: Run) -> None:
    await harness.know(season("ann", [True]))
    words = ["panel", "market:ann-1-0", "--metric"]

    assert "ann: 0.80, weight 1.000" in (await asked(run, *words, "up", "--target-at", facts.day(7))).replace('"', "")
    assert "No agent answered" in await asked(run, *words, "up", "--target-at", facts.day(8))
    assert "No agent answered" in await asked(run, *words, "eps")
    await asked(run, *words, "up", "--target-at", "soon", code=2)


async def test_a_person_pins_unpins_and_overrides(
    harness: RecallHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.know(season("ann", [True] * 4))

    pinned = json.loads(await asked(run, "credibility", "pin", "ann", DOMAIN, "0.3", "--reason", "A review.", "--json"))
    for words in (["pin", "ann", DOMAIN, "0.3"], ["unpin", pinned["id"]]):
        await asked(run, "credibility", *words, "--reason", "", code=2)
    told = await asked(run, "agents", "ann")
    listed = await asked(run, "agents")
    for _ in range(2):
        await asked(run, "credibility", "unpin", pinned["id"], "--reason", "It is over.")
    listed_again = await asked(run, "agents")
    words = ["credibility", "override", "ann", DOMAIN, "--reason", "other"]
    await asked(run, *words, "--finding", "f/market:ann-4-0")
    await asked(run, *words, code=2)
    await asked(run, "credibility", "pin", "ann", DOMAIN, "1.3", "--reason", "Too much.", code=2)
    table = await harness.memory.credibility(["ann"], deadline_ms=ENOUGH_MS)
    overridden = await asked(run, "agents", "ann")

    assert "overridden 1 of 4 (0.250), right 0.000 of 1: other 1" in overridden
    assert "overridden by metric type: binary 1 of 4" in overridden
    assert f"pinned at 0.3 ({pinned['id']}): A review." in told
    assert '"ann" (pinned at 0.3)' in listed
    assert "pinned" not in listed_again
    people = table.items[0].people
    assert people.pin is None
    assert (people.overrides.counts.overrides, people.overrides.known, people.overrides.right) == (1, 1, 0)
    monkeypatch.setenv("IMEM_ROLE", Role.AGENT.value)
    monkeypatch.setenv("IMEM_ACTOR", "ann")
    done = await asyncio.to_thread(run, app, ["credibility", "pin", "ann", DOMAIN, "0.9", "--reason", "I am good."])
    assert type(done.exception).__name__ == "PermissionDenied"


async def test_a_person_speaks_of_what_is_recorded(harness: RecallHarness, run: Run) -> None:
    """A mistyped pin or finding, and the finding of another agent or domain, are refused by name; the pin stays."""
    await harness.know([*season("ann", [True]), *season("bob", [True])])
    pinned = json.loads(await asked(run, "credibility", "pin", "ann", DOMAIN, "0.3", "--reason", "A review.", "--json"))
    override = ["credibility", "override", "--reason", "other", "--finding"]
    for words, reason in (
        (["credibility", "unpin", pinned["id"] + "0", "--reason", "It is over."], "key: no CredibilityPin"),
        ([*override, "g", "ann", DOMAIN], "core.finding_id: no Finding 'g' is recorded"),
        (
            [*override, "f/market:bob-1-0", "ann", DOMAIN],
            "core.finding_id: is of agent 'bob', not of core.agent, 'ann'",
        ),
        ([*override, "f/market:ann-1-0", "ann", "tides"], "core.finding_id: is of domain"),
    ):
        done = await asyncio.to_thread(run, app, words)
        assert done.exit_code == 2, done.output
        assert reason in " ".join(done.output.replace("│", " ").split()), done.output
    decided = {"state": BiasCorrection.State(status=BiasStatus.APPROVED, decided_at=at(9))}
    with pytest.raises(BadInput, match="no BiasCorrection 'b' is recorded") as refused:
        await harness.memory.record_groups(BiasCorrection, "b", decided)

    assert refused.value.field == "key"
    people = (await harness.memory.credibility(["ann"], deadline_ms=ENOUGH_MS)).items[0].people
    assert people.pin is not None
    assert people.pin.id == pinned["id"]
    assert people.overrides.counts.overrides == 0


async def test_the_longest_names_can_be_pinned_and_overridden(harness: RecallHarness, run: Run) -> None:
    """An id has no room for both: it is short, and still one of its own each time."""
    name, domain = "n" * NAME_CHARS, "d" * NAME_CHARS
    words = ["credibility", "override", name, domain, "--reason", "other", "--analysis", "a", "--json"]

    pinned = json.loads(await asked(run, "credibility", "pin", name, domain, "0.3", "--reason", "A review.", "--json"))
    ids = {json.loads(await asked(run, *words))["id"] for _ in range(2)}
    await asked(run, "credibility", "unpin", pinned["id"], "--reason", "It is over.")

    assert len(ids) == 2
    people = (await harness.memory.credibility([name], [domain], deadline_ms=ENOUGH_MS)).items[0].people
    assert (people.overrides.counts.overrides, people.pin) == (1, None)


async def test_everything_is_recomputed_at_once(harness: RecallHarness, run: Run) -> None:
    await harness.know(season("ann", [True] * 4))

    assert "scores 4, track records 1, decisions 0, differing 0" in await asked(run, "credibility", "rebuild")
    harness.journal.owner("UPDATE track_step SET weight = weight + 1")
    assert "differing 1" in await asked(run, "credibility", "rebuild", code=3)
    assert "differing 0" in await asked(run, "credibility", "rebuild")


async def test_a_person_writes_a_lesson_by_hand(
    harness: RecallHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same again is the same lesson; what is missing is refused, and so is an agent."""
    words = ["learning", "add", "--category", "timing", "--insight", "Orders fall first.", "--do", "Ask for orders."]
    first = json.loads(await asked(run, *words, "--domain", DOMAIN, "--json"))
    again = json.loads(await asked(run, *words, "--domain", DOMAIN, "--json"))
    assert (first["verdict"], again) == ("new", {**first, "verdict": "identical"})
    rows = await harness.journal.rows(
        "SELECT payload -> 'core' AS core, actor_role FROM event WHERE kind = 'record.Lesson'"
    )
    core = rows[0]["core"]
    assert (core["source"], core["priority"], core["affected_domains"]) == ("human_insight", "high", [DOMAIN])
    assert [row["actor_role"] for row in rows] == ["human_admin"]
    await asked(run, *words[:-1], "", code=2)
    monkeypatch.setenv("IMEM_ROLE", Role.AGENT.value)
    monkeypatch.setenv("IMEM_ACTOR", "ann")
    done = await asyncio.to_thread(run, app, [*words[:-1], "Ask for more."])
    assert type(done.exception).__name__ == "PermissionDenied"
