"""Panels of the examples in which evidence is thin: weights near the equal one, and the text says how near."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
import pytest_asyncio

from examples.llm_traders.replay import EXCHANGE, SOURCE
from imem.credibility.panels.evidence import weights_as_of
from imem.credibility.store import TrackRecordKey
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf
from imem.kg.kinds.metrics import unit_of
from imem.recall.sections.panels import PanelItem, Question, domain_of, panel_of, panel_text
from tests.credibility.conftest import World, finding, opened, outcome
from tests.examples.conftest import read
from tests.servers import cloned

CLOSE = time(20, tzinfo=UTC)


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made


async def panels(world: World, subjects: set[str], at: datetime) -> list[PanelItem]:
    """Return the panels of several agents on the questions about *subjects* that are open at a moment."""
    found = []
    for subject in sorted(subjects):
        given = {"subject_id": subject, "metric": None, "target_at": None, "limit": 200, **AsOf(at).limits}
        questions: dict[Question, dict[str, Any]] = {}
        for row in await world.database.named("claims_of_subject", given, deadline=Deadline.never()):
            unit = unit_of(row["metric"], row["unit"])
            asked = Question(row["metric"], unit, row["period_start"], row["target_at"])
            if row["direction"] in {"positive", "negative"} and row["target_at"] > at:
                questions.setdefault(asked, {})[row["agent"]] = row
        for asked, claims in questions.items():
            panel = [TrackRecordKey(agent, domain_of(claims.values())) for agent in sorted(claims)]
            weights, _ = await weights_as_of(world.database, [panel], [AsOf(at)], deadline=Deadline.never())
            found.append(panel_of(asked, claims, weights[0][0][0]))
    return [item for item in found if len(item.answers) > 1]


def said_near(item: PanelItem) -> bool:
    """Return whether the text says how near to the equal ones the weights are."""
    times = [one.weight * len(item.answers) for one in item.answers]
    if item.evidence == "none":
        return times == pytest.approx([1.0] * len(times)) and "the weights are equal" in panel_text(item)
    least, most = re.findall(r"little evidence, so the weights are ([\d.]+) to ([\d.]+) times", panel_text(item))[0]
    return [float(least), float(most)] == pytest.approx([min(times), max(times)], abs=0.006)


async def test_the_trading_desk_stays_near_equal_weights(world: World) -> None:
    """Some twenty companies on a handful of days: hardly more than three observations."""
    lines = [line for line in read("trading_desk") if line.get("record") in {"Finding", "Outcome"}]
    await world.say(*lines)
    await world.settle()
    subjects = {line["core"]["subject_id"] for line in lines}
    days = sorted({line["core"]["target_at"] for line in lines if line["core"].get("target_at")})
    found = [
        item for day in days for item in await panels(world, subjects, datetime.fromisoformat(day) - timedelta(hours=1))
    ]
    assert {item.evidence for item in found} == {"none", "little"}
    assert all(map(said_near, found))
    times = [one.weight * len(item.answers) for item in found for one in item.answers]
    assert 0.5 < min(times) < max(times) < 1.6


async def test_the_traders_stay_near_equal_weights(world: World) -> None:
    """Who buys says up and who sells says down, until the next day on which somebody trades the share."""
    with gzip.open(SOURCE / "actions.csv.gz", "rt", encoding="utf-8") as file:
        actions = [row for row in csv.DictReader(file) if row["action"] in {"buy", "sell"}]
    prices: dict[str, dict[Any, float]] = {}
    for row in actions:
        at = datetime.fromisoformat(row["ts"]).replace(tzinfo=EXCHANGE)
        prices.setdefault(row["symbol"], {})[at.date()] = float(row["price"])
    lines = []
    for number, row in enumerate(actions):
        at = datetime.fromisoformat(row["ts"]).replace(tzinfo=EXCHANGE)
        later = [day for day in sorted(prices[row["symbol"]]) if day > at.date()]
        if later:
            target = datetime.combine(later[0], CLOSE)
            subject = {"subject_id": f"company:{row['symbol']}", "metric": "return_1s"}
            direction = "positive" if row["action"] == "buy" else "negative"
            lines.append(
                finding(f"a{number}", at, target, agent=row["agent"], domain="stocks", direction=direction, **subject)
            )
            change = prices[row["symbol"]][later[0]] / prices[row["symbol"]][at.date()] - 1.0
            lines.append(outcome(f"o-{row['symbol']}-{later[0]}", target, target, change, **subject))
    once = {line["core"]["id"]: line for line in lines}
    await world.say(*once.values())
    await world.settle()
    subjects = {line["core"]["subject_id"] for line in lines}
    found = []
    for number in (7, 14, 21, 28, 35):
        found += await panels(world, subjects, datetime(2025, 10, 1, 19, 30, tzinfo=UTC) + timedelta(days=number))
    thin = [item for item in found if item.evidence != "enough"]
    assert len(thin) > 30
    assert all(map(said_near, thin))
    times = [one.weight * len(item.answers) for item in found for one in item.answers]
    assert 0.4 < min(times) < max(times) < 1.6
