"""A worker killed before any of its statements loses no test of a pattern, and records none twice."""

from __future__ import annotations

import asyncio

import pytest

from tests.killed_programs import printed
from tests.patterns.parts import DAY, Lab, definition
from tests.servers import ahead

OTHER = definition(claim="lower")


async def killed(lab: Lab, days: int) -> int:
    """Run workers that are killed until one ends by itself; return how many were."""
    options = ahead(lab.world.admin_url, days * DAY)
    return int(await printed("tests.patterns.killed", given=f"{lab.world.pipeline_url}\n{options}\n"))


async def ended(lab: Lab) -> list[tuple[str, bool]]:
    """Return the records of tests, once each, by their ids."""
    return [(one["id"].removeprefix("pattern:")[37:], one["passed"]) for one in await lab.validations()]


@pytest.mark.spec("PV-2", "PV-30")
async def test_killed_before_every_statement(lab: Lab) -> None:
    await lab.history()
    await lab.propose(definition(), OTHER)
    assert await killed(lab, 0) >= 10
    assert await lab.statuses() == {definition().key: "candidate", OTHER.key: "rejected_holdout"}
    assert sorted(await ended(lab)) == [("holdout/1", False), ("holdout/1", True)]
    assert (await lab.row(definition().key)).data["stage"] == "blind"

    await lab.half_a_year()
    assert await killed(lab, 187) >= 8
    assert (await lab.statuses())[definition().key] == "statistically_validated"
    assert (await ended(lab))[2:] == [("blind_test/1", True), ("control_group/1", True)]

    async with lab.later(187 * DAY):
        before = await lab.world.written()
        assert await lab.test() == {}
        assert await lab.world.written() == before


@pytest.mark.spec("PV-2", "PV-30")
async def test_workers_beside_each_other_test_once(lab: Lab) -> None:
    await lab.history()
    await lab.propose(definition(), OTHER)
    await asyncio.gather(*(lab.test() for _ in range(4)))
    assert await lab.statuses() == {definition().key: "candidate", OTHER.key: "rejected_holdout"}
    assert len(await ended(lab)) == 2
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        await asyncio.gather(*(lab.test() for _ in range(4)))
    assert (await lab.statuses())[definition().key] == "statistically_validated"
    assert len(await ended(lab)) == 4
