"""The review of a quarter: what it proposes, once, and which contexts stand out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.credibility.review import Bias, biases, review
from imem.credibility.scores.bias import ValueClaim
from imem.credibility.scores.reading import agent_scores
from imem.ingest.recorder import prepare, record
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import BiasKind, BiasStatus, OverrideReason
from imem.kg.load_format.lines import groups_of
from imem.kg.model import BiasCorrection, HumanOverride
from tests.credibility.conftest import HALFLIFE, World, company, finding, outcome, reading

START = datetime(2024, 1, 1, tzinfo=UTC)
PERSON = Actor("pat", Role.HUMAN_ADMIN)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def prices(ticker: str, factors: Sequence[float], agent: str = "ann") -> list[dict[str, Any]]:
    """Return prices of 100 that were claimed to be a multiple of it, ten days before, a day apart."""
    lines = []
    for n, factor in enumerate(factors, start=1):
        key, of = f"{agent}/{ticker}/{n}", {"subject_id": f"company:{ticker}", "metric": "close"}
        lines.append(finding(key, day(n), day(n + 10), agent=agent, value=100.0 * factor, **of))
        lines.append(outcome(f"{ticker}/{n}", day(n + 11), day(n + 10), 100.0, **of))
    return lines


async def reviewed(world: World) -> dict[str, Any]:
    return await review(world.pipelines, world.engine, halflife_years=HALFLIFE)


async def recorded(world: World) -> list[dict[str, Any]]:
    return await world.rows(
        "SELECT actor, payload -> 'core' AS core, payload #>> '{groups,state,status}' AS status FROM event"
        " WHERE kind = 'record.BiasCorrection' AND payload ? 'core' ORDER BY position"
    )


async def decide(world: World, key: str, status: BiasStatus) -> None:
    state = groups_of(BiasCorrection, key, {"state": BiasCorrection.State(status=status, decided_at=day(300))})
    await record(world.gateway, [prepare(state)], actor=PERSON, deadline=Deadline.after_ms(30_000))


@pytest.mark.spec("CR-19")
async def test_a_bias_is_proposed_once_and_a_person_decides(world: World) -> None:
    """It changes nothing until it is approved; rejected it is not asked for again, retired it may come back."""
    await world.say(*prices("MU", [1.3] * 20))
    await world.settle()

    first = await reviewed(world)
    (made,) = await recorded(world)
    core = made["core"]
    assert (made["actor"], made["status"]) == ("credibility-review", "proposed")
    assert {name: core[name] for name in ("agent", "domain", "of_metric", "kind", "n")} == {
        "agent": "ann", "domain": "flu", "of_metric": "close", "kind": "relative", "n": 14,
    }  # fmt: skip
    assert core["bias"] == pytest.approx(0.3)
    assert (core["accuracy_before"], core["accuracy_after"]) == (0.0, 1.0)
    assert not {"sector", "regime"} & core.keys()
    assert (first["scores"], first["waiting"]) == (1, 1)
    assert first["proposed"] == [
        f"{core['id']}: ann in flu, close: +30.0%; of newer claims 0% are right, corrected 100%"
    ]
    again = await reviewed(world)
    assert (again["proposed"], again["waiting"]) == ([], 1)
    assert await corrections(world) == []

    for status, waiting, shown in ((BiasStatus.APPROVED, 0, [core["id"]]), (BiasStatus.REJECTED, 0, [])):
        await decide(world, core["id"], status)
        again = await reviewed(world)
        assert (again["proposed"], again["waiting"], await corrections(world)) == ([], waiting, shown)
    assert len(await recorded(world)) == 1

    await decide(world, core["id"], BiasStatus.RETIRED)
    assert len((await reviewed(world))["proposed"]) == 1
    assert (await reviewed(world))["proposed"] == []
    assert len({one["core"]["id"] for one in await recorded(world)}) == 2


async def corrections(world: World) -> list[str]:
    (score,), _ = await agent_scores(
        world.database, [("ann", "flu")], AsOf(datetime.now(UTC)), context=None, halflife_years=HALFLIFE,
        deadline=Deadline.after_ms(30_000),
    )  # fmt: skip
    return [one.id for one in score.people.corrections]


async def test_two_reviews_at_a_time_propose_once(world: World) -> None:
    await world.say(*prices("MU", [1.3] * 20), *prices("MU", [0.7] * 20, agent="bob"))
    await world.settle()

    done = await asyncio.gather(*(reviewed(world) for _ in range(3)))

    assert sum(len(one["proposed"]) for one in done) == 2
    made = [(one["core"]["agent"], round(one["core"]["bias"], 9)) for one in await recorded(world)]
    assert sorted(made) == [("ann", 0.3), ("bob", -0.3)]


async def test_nothing_is_proposed_of_what_is_right_or_of_no_values(world: World) -> None:
    await world.say(*prices("MU", [1.01] * 20))
    for n in range(20):
        of = {"subject_id": f"market:{n}"}
        await world.say(finding(f"f{n}", day(n), day(n + 5), probability=0.9, agent="bob", **of))
        await world.say(outcome(f"o{n}", day(n + 6), day(n + 5), 0.0, **of))
    assert (await reviewed(world))["scores"] == 0
    await world.settle()

    assert await reviewed(world) == {
        "scores": 2, "proposed": [], "waiting": 0, "override_reviews": 0, "overridden_most": [], "blind_spots": [],
    }  # fmt: skip
    assert await recorded(world) == []


async def test_a_sector_or_a_regime_of_its_own(world: World) -> None:
    """The sector of the claims is that of the company when they were made, their regime that of the market."""
    await world.say(
        company("MU", START, name="Micron", sector="Technology"),
        company("XOM", START, name="Exxon", sector="Energy"),
        reading("r", START, "NORMAL"),
        *prices("MU", [1.5] * 20),
        *prices("XOM", [1.0] * 40),
    )
    await world.settle()

    (text,) = (await reviewed(world))["proposed"]
    (made,) = await recorded(world)
    assert (made["core"]["sector"], made["core"].get("regime")) == ("Technology", None)
    assert "close, Technology: +50.0%" in text


def claims(*parts: tuple[str | None, str | None, float, int]) -> list[tuple[str | None, str | None, ValueClaim]]:
    """Return claims of 100 by sector and regime, each as often as said and off by a factor."""
    return [
        (sector, regime, ValueClaim(day(n), 100.0 * factor, 100.0, 0.15))
        for sector, regime, factor, count in parts
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("A", "R", 1.2, 20), ("B", None, 1.2, 20)], [(None, None)]),
        ([("A", "R", 1.5, 20), ("B", "R", 1.0, 40)], [("A", None)]),
        ([("A", "R", 1.5, 20), ("A", "S", 1.0, 40), ("B", "S", 1.0, 40)], [(None, "R")]),
        ([("A", None, 1.3, 60), ("B", None, 2.0, 20)], [(None, None), ("B", None)]),
        ([("A", None, 1.2, 14)], []),
    ],
    ids=["all alike", "one sector", "one regime", "one worse than all", "too few"],
)  # fmt: skip
def test_a_narrower_correction_needs_what_the_broader_leaves(
    parts: list[tuple[str | None, str | None, float, int]], expected: list[tuple[str | None, str | None]]
) -> None:
    found = [bias for bias, _ in biases("ann", "flu", "close", claims(*parts))]
    assert found == [Bias("ann", "flu", "close", *of, BiasKind.RELATIVE) for of in expected]


def override(key: str, at: datetime) -> dict[str, Any]:
    of = HumanOverride(
        id=key, agent="ann", domain="flu", reason=OverrideReason.STALE_DATA, overridden_at=at, finding_id=key
    )
    core = of.model_dump(mode="json", exclude_none=True)
    return {"record": "HumanOverride", "known_at": at.isoformat(), "core": core}


async def test_the_contexts_that_stand_out(world: World) -> None:
    """Of twenty claims of a year, which are wrong, twelve are overridden; of those of a week none, which are right."""
    now = datetime.now(UTC)
    first, lines = now - timedelta(days=100), []
    for n in range(40):
        target, of = first + timedelta(days=n), {"subject_id": f"market:{n}"}
        made = target - timedelta(days=5 if n % 2 else 60)
        lines.append(finding(f"f{n}", made, target, probability=0.9, **of))
        lines.append(outcome(f"o{n}", target + timedelta(days=1), target, float(n % 2), **of))
    await world.say(*lines, *[override(f"f{n}", now - timedelta(days=9)) for n in range(0, 24, 2)])
    await world.settle()

    report = await reviewed(world)

    assert report["overridden_most"] == [
        "ann in flu where time horizon is year: 60% of 20 overridden",
        "ann in flu where metric type is binary: 30% of 40 overridden",
    ]
    assert report["blind_spots"] == ["ann in flu where time horizon is year: 0% of 20 right, in all 50%"]
    assert (report["override_reviews"], report["proposed"]) == (1, [])
