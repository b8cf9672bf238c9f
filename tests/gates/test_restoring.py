"""Patterns that come back from the archive: what brings them, people who object, new cases, Gate 6; on real servers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from imem.archives.access import Archives
from imem.gates.learning.gate import open_due_package
from imem.gates.restoring import RESTORATION, restore
from imem.journal.actors import Actor
from imem.journal.clock import months_after
from imem.journal.errors import BadInput, ObjectsUnavailable
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.life import ask_for_status
from imem.review import inbox
from imem.review.kinds import Task
from imem.review.states import TaskState
from imem.services.task_kinds import TASK_KINDS
from tests.archives.conftest import Vault, became, cited, late, pattern, validated, vault
from tests.credibility.conftest import World, reading, world
from tests.gates.parts import LONG_AGO, ROW, kept
from tests.patterns.parts import DAY, ENOUGH, NOW, Lab, curators_of, definition, weeks

__all__ = ["vault", "world"]

ANN = Actor("ann", Role.HUMAN_ADMIN)


class Attic(Lab):
    """A journal with a deprecated pattern whose archive is complete."""

    vault: Vault

    def runtime(self) -> Any:
        return SimpleNamespace(**vars(super().runtime()), objects=self.vault.objects)

    async def have(self, key: str, confidence: float = 0.9, **changes: Any) -> None:
        """Have an archived pattern that was active under low rates."""
        at = LONG_AGO
        await self.vault.say(
            pattern(key, "active", at, confidence_score=confidence), validated(f"v-{key}", key, at=at),
            *cited(f"d-{key}", key, at), late(key, at, performance={"success_rate": 0.8, "occurrence_count": 9}),
        )  # fmt: skip
        await self.vault.say(became(key, "deprecated", at + DAY))
        self.world.owner(ROW, key, key, kept(**changes))
        await self.vault.settle()

    async def look_up(self, key: str, folder: Path, *people: str) -> None:
        for name in people:
            archives = Archives(Gateway(self.world.curators, Actor(name, Role.HUMAN_ADMIN)), self.vault.objects)
            await archives.retrieve(key, folder / name, deadline=ENOUGH)

    async def restore(self) -> dict[str, Any]:
        return dict(await restore(self.runtime(), until=ENOUGH))

    async def tasks(self, *states: TaskState) -> list[Task[Any]]:
        return await inbox.list_tasks(
            self.world.database, TASK_KINDS, kind=RESTORATION.name, states=states or tuple(TaskState), deadline=ENOUGH
        )

    async def answer(self, action: str, task_id: str | None = None, **fields: str) -> None:
        task_id = task_id or (await self.tasks())[0].task_id
        await inbox.answer_task(
            self.world.database, TASK_KINDS, task_id, action, fields=fields, rationale="It was a holiday.", by=ANN,
            deadline=ENOUGH,
        )  # fmt: skip
        await self.test()

    async def rates(self, *said: tuple[float, float]) -> None:
        """Read the policy rate, so many days ago each."""
        lines = [reading(f"r-{ago}-{rate}", NOW - ago * DAY, "BULL_HIGH_RATES", fed_funds=rate) for ago, rate in said]
        await self.world.say(*lines)


@pytest_asyncio.fixture
async def attic(world: World, vault: Vault, stack: Any) -> Attic:
    made = Attic(world)
    made.vault, made.curators = vault, curators_of(stack.settings, world)
    # Tests ran, and were passed, while rates were high.
    await world.say(reading("then", LONG_AGO - 10 * DAY, "BULL_HIGH_RATES"))
    return made


@pytest.mark.spec("AR-25")
async def test_a_veto_demotes_and_blocks_the_same_trigger_for_six_months(attic: Attic, tmp_path: Path) -> None:
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob")
    assert await attic.restore() == {"restored": 0, "damaged": 0}
    await attic.look_up("p", tmp_path, "eve")
    assert await attic.restore() == {"restored": 1, "damaged": 0}
    assert await attic.statuses() == {"p": "active_from_archive"}
    assert await attic.restore() == {"restored": 0, "damaged": 0}
    [task] = await attic.tasks(TaskState.OPEN)
    assert task.due_at is not None
    assert task.due_at - task.opened_at == timedelta(hours=48)
    assert task.package.measured == "3 people retrieved its archive within 30 days."
    assert (task.package.confidence, task.package.accuracy, task.package.together) == (0.9, 0.8, 1)
    async with attic.later(timedelta(hours=47)):
        await attic.answer("reject", why="pattern_obsolete")
        assert await attic.statuses() == {"p": "deprecated"}
        await attic.vault.settle()
        assert await attic.restore() == {"restored": 0, "damaged": 0}, "the three still ask for it"
    async with attic.later(5 * DAY):
        # Another trigger is not blocked.
        await attic.rates((100, 3.0), (1, 5.5))
        assert await attic.restore() == {"restored": 1, "damaged": 0}
        [again] = await attic.tasks(TaskState.OPEN)
        assert again.package.trigger == "policy_rate"
        await attic.answer("reject", again.task_id, why="false_regime_signal")
        await attic.vault.settle()
        assert await attic.restore() == {"restored": 0, "damaged": 0}
    for months, restored in ((5.9, 0), (6.1, 1)):
        async with attic.later(months_after(NOW, int(months)) - NOW + (months % 1) * 30 * DAY):
            await attic.look_up("p", tmp_path / str(months), "ann", "bob", "eve")
            assert (await attic.restore())["restored"] == restored


async def test_who_looked_it_up_before_it_was_deprecated_does_not_bring_it_back(attic: Attic, tmp_path: Path) -> None:
    """A person who demotes one that is back is not overruled by those who looked it up before."""
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob", "eve")
    assert (await attic.restore())["restored"] == 1
    await ask_for_status(
        attic.world.curators, "p", PatternStatus.DEPRECATED, by=ANN, reason="No.", deadline=ENOUGH
    )  # fmt: skip
    await attic.test()
    await attic.vault.settle()
    assert await attic.statuses() == {"p": "deprecated"}
    assert (await attic.restore())["restored"] == 0
    await attic.look_up("p", tmp_path / "again", "ann", "bob", "eve")
    assert (await attic.restore())["restored"] == 1


async def test_silence_keeps_it(attic: Attic, tmp_path: Path) -> None:
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob", "eve")
    await attic.restore()
    async with attic.later(timedelta(hours=49)):
        await attic.test()
        assert [task.state for task in await attic.tasks()] == [TaskState.DEFAULTED]
        assert await attic.statuses() == {"p": "active_from_archive"}
        # A default may still be overridden.
        await attic.answer("reject", why="other")
        assert await attic.statuses() == {"p": "deprecated"}


async def test_a_rejection_says_why(attic: Attic, tmp_path: Path) -> None:
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob", "eve")
    await attic.restore()
    for fields in ({}, {"why": "boredom"}):
        with pytest.raises(BadInput, match="why"):
            await attic.answer("reject", **fields)
    await attic.answer("approve")
    assert await attic.statuses() == {"p": "active_from_archive"}


@pytest.mark.parametrize(
    ("said", "restored"),
    [
        (((100, 3.0), (1, 5.1)), 1),
        (((100, 3.0), (1, 5.0)), 0),  # not more than two points
        (((200, 3.0), (1, 5.1)), 0),  # not within six months
        (((100, 7.5), (50, 3.0), (1, 5.4)), 1),  # from the highest, downwards
        ((), 0),
    ],
)
async def test_the_policy_rate(attic: Attic, said: tuple[tuple[float, float], ...], restored: int) -> None:
    await attic.have("p")
    await attic.rates(*said)
    assert await attic.restore() == {"restored": restored, "damaged": 0}


async def test_a_move_brings_back_nothing_that_it_ended_or_that_is_weak(attic: Attic) -> None:
    """Deprecated after the move, of another regime, or little sure: each stays."""
    await attic.have("p")
    await attic.vault.say(became("p", "active", NOW - 90 * DAY), became("p", "deprecated", NOW - 50 * DAY))
    await attic.vault.settle()
    await attic.have("unsure", confidence=0.59)
    await attic.rates((100, 3.0), (1, 5.5))
    assert await attic.restore() == {"restored": 0, "damaged": 0}
    await attic.world.say(reading("now", NOW - DAY / 2, "BEAR_HIGH_RATES", fed_funds=5.5))
    await attic.have("other")
    assert await attic.restore() == {"restored": 0, "damaged": 0}


async def test_ten_of_one_trigger_are_told_at_once_and_rejected_together(attic: Attic) -> None:
    for number in range(10):
        await attic.have(f"p{number}", name=f"Pattern {number}")
        if number == 8:
            await attic.rates((100, 3.0), (1, 5.5))
            assert await attic.restore() == {"restored": 9, "damaged": 0}
            tasks = await attic.tasks()
            assert {task.rank for task in tasks} == {1}
            alike = await inbox.tasks_alike(
                attic.world.database, TASK_KINDS, tasks[0].task_id, "reject", deadline=ENOUGH
            )
            assert len(alike) == 8
            for task in tasks:
                await attic.answer("reject", task.task_id, why="false_regime_signal")
    async with attic.later(200 * DAY):
        await attic.vault.settle()
        await attic.world.say(
            reading("a", NOW + 100 * DAY, "BULL_HIGH_RATES", fed_funds=3.0),
            reading("b", NOW + 199 * DAY, "BULL_HIGH_RATES", fed_funds=5.5),
        )
        assert await attic.restore() == {"restored": 10, "damaged": 0}
        assert {task.rank for task in await attic.tasks(TaskState.OPEN)} == {0}


async def test_a_damaged_archive_brings_nothing_back(attic: Attic, tmp_path: Path) -> None:
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob", "eve")
    path = attic.vault.folder / "pattern_archives/p/tier2/all_tier1_content/metadata.json"
    content = path.read_bytes()
    path.write_bytes(content[:-2] + b" \n")
    assert await attic.restore() == {"restored": 0, "damaged": 1}
    assert await attic.statuses() == {"p": "deprecated"}
    assert [row["kind"] for row in await attic.world.rows("SELECT kind FROM workflow.alert")] == ["ARCHIVE_CORRUPT"]
    path.unlink()
    path.write_bytes(content)
    assert await attic.restore() == {"restored": 1, "damaged": 0}


async def test_what_is_asked_for_waits_for_the_store(attic: Attic, tmp_path: Path) -> None:
    await attic.have("p")
    await attic.look_up("p", tmp_path, "ann", "bob", "eve")
    away = attic.vault.folder.rename(tmp_path / "away")
    with pytest.raises(ObjectsUnavailable):
        await attic.restore()
    assert await attic.statuses() == {"p": "deprecated"}
    away.rename(attic.vault.folder)
    assert (await attic.restore())["restored"] == 1


# New cases


async def _back(attic: Attic, tmp_path: Path) -> str:
    """Have a pattern back whose condition forecasts of the crowd meet."""
    key = definition().key
    await attic.have(key)
    assert await open_due_package(attic.runtime()) == {}
    await attic.look_up(key, tmp_path, "ann", "bob", "eve")
    assert (await attic.restore())["restored"] == 1
    return key


async def _forecasts(attic: Attic, first: int, last: int, effect: float) -> None:
    said, happened = weeks(first, last, start=NOW + DAY, effect=effect, seed=3)
    await attic.world.say(*said, *happened)
    await attic.world.settle()


def _months(number: int) -> timedelta:
    """Return when the so manieth month is over, a day later."""
    return months_after(NOW, number) - NOW + DAY


@pytest.mark.parametrize(("action", "status"), [("approve", "active"), ("reject", "deprecated")])
async def test_two_quarters_confirm_it_and_a_person_decides(
    attic: Attic, tmp_path: Path, action: str, status: str
) -> None:
    key = await _back(attic, tmp_path)
    async with attic.later(_months(3)):
        await _forecasts(attic, 0, 12, 0.4)
        await attic.test()
        assert [one["confirmed"] for one in (await attic.row()).data["restored"]["quarters"]] == [True]
        assert not (await open_due_package(attic.runtime())).get("items"), "one quarter does not suffice"
    async with attic.later(_months(6)):
        await _forecasts(attic, 14, 24, 0.4)
        await attic.test()
        assert await attic.statuses() == {key: "active_from_archive"}
    async with attic.later(_months(7)):
        assert (await open_due_package(attic.runtime()))["items"] == 1
        [task] = await inbox.list_tasks(
            attic.world.database, TASK_KINDS, kind="learning", states=(TaskState.OPEN,), deadline=ENOUGH
        )
        [item] = task.package.items
        assert item.seen["status"] == "active_from_archive"
        assert item.seen["new_cases"] > 20
        answer = {"item": "1", "action": action, "rationale": "It holds."}
        await inbox.answer_task(
            attic.world.database, TASK_KINDS, task.task_id, "decide", fields={"items": [answer]}, by=ANN,
            deadline=ENOUGH,
        )  # fmt: skip
        await attic.test()
        assert await attic.statuses() == {key: status}
        row = await attic.row()
        assert (row.due_at is not None) == (status == "active"), "it is watched"
        assert ("access" in row.data.get("cooldowns", {})) == (status == "deprecated")


@pytest.mark.parametrize(("first", "second"), [(-0.5, -0.5), (0.4, -0.5), (-0.5, 0.4), (0.4, None)])
async def test_half_a_year_without_two_confirmations_ends_it(
    attic: Attic, tmp_path: Path, first: float, second: float | None
) -> None:
    """And nothing does before."""
    key = await _back(attic, tmp_path)
    async with attic.later(_months(3)):
        await _forecasts(attic, 0, 12, first)
        await attic.test()
        assert await attic.statuses() == {key: "active_from_archive"}
    async with attic.later(_months(6)):
        if second is not None:
            await _forecasts(attic, 14, 24, second)
        await attic.test()
        assert await attic.statuses() == {key: "deprecated"}
