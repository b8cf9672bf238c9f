"""A package from a terminal: what a person reads, and how items are answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.settings import Role, Settings
from tests.servers import in_database

from .conftest import DAY, Desk, bias
from .test_changed_items import PATTERN, revises

Said = Callable[..., Awaitable[str]]


@pytest.fixture
def said(light_stack: Any, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Run ``imem tasks`` as a person, and return what it prints."""
    addresses = {**in_database(light_stack.settings, desk.world.url), "neo4j_url": "bolt://127.0.0.1:1"}
    given: Settings = light_stack.settings
    settings = given.model_copy(update={**addresses, "deadline_ms": 30_000, "actor": "ann", "role": Role.HUMAN_ADMIN})
    monkeypatch.setattr(Settings, "read", lambda *_, **__: settings)

    async def said(*words: str, code: int = 0) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["tasks", *words])
        assert done.exit_code == code, done.output
        return done.output

    return said


async def test_a_package_is_read_and_answered_in_a_terminal(desk: Desk, said: Said, tmp_path: Path) -> None:
    await desk.started()
    await desk.changed("vera", "valuation", -0.02)
    await desk.changed("ann", "flu", -0.04)
    await desk.changed("pat", "flu", 0.1)
    await desk.world.say(bias("b-1", "pat"))
    await desk.later(30 * DAY)

    listed = await said()
    assert "learning-1  learning  open  nobody" in listed
    assert "Package 1, normal urgency, after 0 outcomes in 30 days: 4 items, about 24 minutes." in listed
    assert "nothing is approved" in listed
    text = await said("show", "learning-1")
    assert "1. credibility, high: vera in valuation: 0.700 → 0.680 (-0.020), 20 observations, none of them new" in text
    assert "may be approved in bulk: a change below 0.05 on at least 20 observations, without a trend" in text
    assert text.count("may be approved in bulk:") == 1
    assert "   agent vera; domain valuation; old 0.7; new 0.68; reason none of them new" in text
    assert "; lower 0.48; upper 0.88; time weighted score 0.68; stable\n" in text
    assert "pat in flu errs by +20.0% on close" in text
    assert "override score=… days=…: Another score counts" in text
    assert "About 24 minutes. Answer with `imem tasks answer learning-1 ACTION`:" in text
    numbers = {item.split(": ")[1].split(" ")[0]: item[0] for item in text.splitlines() if item[:1].isdigit()}

    refused = await said("answer", "learning-1", "decide", "--item", f"{numbers['vera']}=override", code=2)
    assert "fields.items.0.rationale" in refused
    await said("answer", "learning-1", "decide", "--item", "7=approve", code=2)
    await said("answer", "learning-1", "decide", "--item", "approve", code=2)
    stated = tmp_path / "answers.json"
    await said("answer", "learning-1", "decide", "--from", str(stated), code=2)
    rejected = {"item": "bias:b-1", "action": "reject", "rationale": "Too few."}
    stated.write_text(json.dumps({"items": [rejected], "bulk": True}), encoding="utf-8")
    override = f"{numbers['vera']}=override score=0.69 rationale='One bad quarter.'"
    answer = ("answer", "learning-1", "decide", "--from", str(stated), "--item", override)
    assert await said(*answer) == "learning-1: decide, by ann.\n"
    assert await said(*answer) == "learning-1: decide, by ann.\n"
    await said("answer", "learning-1", "decide", "--set", "bulk=true", code=1)
    await desk.advance()

    [pin] = await desk.pins()
    assert (pin["agent"], pin["score"], pin["reason"]) == ("vera", 0.69, "One bad quarter.")
    reviews = [await desk.group("AgentCredibility", key, "review") for key in ("ann/flu", "pat/flu")]
    assert [review and review["review_action"] for review in reviews] == ["approve", None]
    document = json.loads(await said("show", "learning-1", "--json"))
    assert (document["state"], document["answer"]["answered"], document["estimated_minutes"]) == ("answered", 3, 24.0)
    assert await said() == "No task waits.\n"


async def test_what_a_lesson_revises_is_read_and_what_was_not_decided_is_told(desk: Desk, said: Said) -> None:
    await desk.started()
    await desk.world.say(PATTERN)
    await desk.lesson("alpha")
    await desk.lesson("bravo")
    await desk.world.say(revises("alpha"))
    await desk.later(30 * DAY)
    assert "; patterns p (Inventories); " in await said("show", "learning-1")

    await desk.world.say(revises("bravo"))
    await said("answer", "learning-1", "decide", "--item", "lesson:alpha=approve", "--item", "lesson:bravo=approve")
    await desk.advance()
    told = "lesson:bravo is not decided and comes up again: it says something else than was shown: patterns."
    text = await said("show", "learning-1")
    assert told in text
    assert text.count("is not decided") == 1
