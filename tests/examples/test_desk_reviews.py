"""Post-mortems on the desk: none opens, and what a review quotes of two decisions; nothing that became known later."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.trading_desk import reviews
from imem.journal.settings import Role
from imem.kg.kinds.enums import RootCause
from tests.credibility.conftest import World, world
from tests.examples.conftest import Lines
from tests.postmortem.cases.conftest import Clinic
from tests.servers import in_database

__all__ = ["world"]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "post-mortems.md"
EXAMPLES = Path(reviews.__file__).parents[1]
ORCL, NKE = reviews.DECISIONS
PORTION = 500


async def say(world: World, lines: Lines) -> None:
    for start in range(0, len(lines), PORTION):
        await world.say(*lines[start : start + PORTION])
    await world.settle()


async def test_no_case_opens_and_a_review_knows_nothing_later(world: World, desk_lines: Lines, stack: Any) -> None:
    """Each review, made when no later line is there, is the same after the last line; and as the page shows it."""
    made, start = {}, 0
    for decision_id, at in sorted(reviews.DECISIONS.items(), key=lambda one: one[1]):
        known = [line for line in desk_lines if datetime.fromisoformat(line["known_at"]) <= at]
        assert known == desk_lines[: len(known)]
        await say(world, desk_lines[start : len(known)])
        made[decision_id], start = await reviews.reviewed(world.database, decision_id, at), len(known)
    await say(world, desk_lines[start:])
    clinic = Clinic(world)
    await clinic.advance()
    assert await clinic.cases() == {}
    for decision_id, at in reviews.DECISIONS.items():
        assert await reviews.reviewed(world.database, decision_id, at) == made[decision_id]
    assert [made[one].cause for one in (ORCL, NKE)] == [RootCause.DATA_QUALITY, RootCause.MODEL_ASSUMPTIONS]
    values = {**in_database(stack.settings, world.url), "actor": "ann", "role": Role.HUMAN_ADMIN}
    said = "\n".join(await reviews.report(stack.settings.model_copy(update=values)))
    assert said.startswith("132 decisions without a forecast, 0 checkpoints, 0 cases\n")
    assert said in PAGE.read_text("utf-8")


def table(path: str) -> list[dict[str, str]]:
    with gzip.open(EXAMPLES / path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def objects(path: str) -> list[dict[str, Any]]:
    with gzip.open(EXAMPLES / path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_what_the_page_says_of_the_raw_files() -> None:
    """The two closes, what the reports call these figures, and what the claims and the contradiction rest on."""
    closes = {(row["ticker"], row["session"]): row for row in table("trading_desk/source/closes.csv.gz")}
    reports = {
        (row["run_id"], row["analyst"]): row["conclusion"]
        for row in objects("trading_desk/source/analyst_conclusions.jsonl.gz")
    }
    claims = {
        (row["run_id"], row["analyst"], row["metric"], row["value"]): row["context"]
        for row in table("trading_desk/source/metric_claims.csv.gz")
    }
    oracle = closes["ORCL", "2026-06-03"]
    assert (oracle["close"], oracle["quoted_in"], oracle["confirmed"]) == ("205.94", "ORCL-20260604", "0")
    said = reports["ORCL-20260604", "market"]
    assert "| **Close Price** | $230.33 |" in said
    assert "| **200 SMA** | $205.94 |" in said
    assert "$230.33 — continuation pullback" in claims["ORCL-20260605", "market", "last_close", "236.34"]
    assert round(230.33 / float(closes["ORCL", "2026-06-02"]["close"]) - 1, 3) == -0.058
    for analyst, value in (("market", "173.26"), ("fundamentals", "174.86")):
        assert ("ORCL-20260603", analyst, "sma_50", value) in claims
    nike = closes["NKE", "2026-05-29"]
    assert (nike["close"], nike["confirmed"]) == ("41.5", "1")
    assert "(May 29) closed at **$46.23**" in claims["NKE-20260531", "market", "last_close", "46.23"]
    assert "| **Close Price** | $45.82 |" in reports["NKE-20260601", "market"]
    june = float(closes["NKE", "2026-06-01"]["close"])
    assert [round(june / close - 1, 3) for close in (46.23, 45.82)] == [-0.006, 0.002]


def test_neither_example_states_what_it_expects_by_when() -> None:
    """Targets of the desk have no day, and those of holds lie on both sides; no reason of a trade states a return."""
    decided = objects("trading_desk/source/decisions.jsonl.gz")
    managers = [(row["last_close"], row["portfolio_manager"]) for row in decided]
    with_target = [(close, said) for close, said in managers if said["price_target"]]
    sides = Counter(
        (said["rating"], (said["price_target"] > close) - (said["price_target"] < close))
        for close, said in with_target
        if close
    )
    assert (len(decided), len(with_target)) == (132, 129)
    assert sides == {
        ("Hold", -1): 44, ("Hold", 0): 4, ("Hold", 1): 29, ("Overweight", 1): 28, ("Underweight", -1): 14,
        ("Underweight", 1): 3,
    }  # fmt: skip
    trades = table("llm_traders/source/actions.csv.gz")
    stated = re.compile(r"target|expect|forecast|predict|upside|by end of", re.IGNORECASE)
    assert (len(trades), sum(bool(stated.search(row["reason"])) for row in trades)) == (533, 2)
    assert {row["reason"][:81] for row in trades if stated.search(row["reason"])} == {
        "Since we don't have enough cash for another full share of any of our target stock"
    }
