"""What is recorded later changes no value, no contradiction and no score of a source as of an earlier day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imem.credibility.disputes.reading import difference_row, differences_at, sources_known_at, value_at
from imem.journal.errors import BadInput, TransitionRefused
from imem.kg.asof import AsOf
from imem.review import inbox
from imem.review.states import ANSWERABLE
from imem.services.task_kinds import TASK_KINDS
from tests.strategies import LONGER

from ..conftest import World, text  # noqa: TID252 - a folder of its own
from .test_arbitration import ADMIN, END, ENOUGH, advance, reviewer, tasks
from .test_detection import START, day, find, point

T = 5
"""The day as of which is asked; documents are known from day 0 to day 10."""

EXAMPLES = settings(
    max_examples=100 if LONGER else 6,
    deadline=None,
    derandomize=not LONGER,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

SUBJECTS = count()

SOURCES = ("SEC_EDGAR", "Bloomberg", "Reuters", "News", "blog")

_Document = tuple[float, int, str, str]
"""Value, day, source and metric."""

DOCUMENTS = st.lists(
    st.tuples(
        st.sampled_from([9.53, 9.6, 95.3, 100.0, 120.0]), st.integers(0, 10), st.sampled_from(SOURCES),
        st.sampled_from(["revenue", "capex"]),
    ),
    min_size=4, max_size=14,
)  # fmt: skip

ANSWERS = st.lists(
    st.sampled_from(
        [
            ("choose", {"document": "a"}), ("choose", {"document": "b", "always": True}), ("uncertain", {}),
            ("value", {"value": 9.7}), ("value", {"1": 9.7, "others": "a"}), ("confirm", {}), ("investigate", {}),
        ]
    ),
    max_size=4,
)  # fmt: skip


def lines(subject: str, documents: list[_Document]) -> list[dict[str, Any]]:
    """Return data points, no two of one document."""
    named = {(on, source, metric): value for value, on, source, metric in documents}
    return [
        point(value, on, source, metric=metric, subject_id=subject, document=f"{source} {on}")
        for (on, source, metric), value in named.items()
    ]


async def answers(world: World, subject: str, at: AsOf) -> list[Any]:
    """Return everything that is said as of a moment."""
    said: list[Any] = []
    for metric in ("revenue", "capex"):
        question = (subject, metric, END)
        counts = await value_at(world.database, at, question, unit=None, basis=None, guard=True, deadline=ENOUGH)
        said.append(counts.to_dict())
    found = await differences_at(world.database, at, subject, None, deadline=ENOUGH)
    said.append([difference_row(cell, pair) for cell, pair in found])
    said.append(await sources_known_at(world.database, at, deadline=ENOUGH))
    return said


async def act(world: World, subject: str, given_answers: list[tuple[str, dict[str, Any]]]) -> None:
    """Answer what can be answered of a subject."""
    mine = [task for task in await tasks(world, *ANSWERABLE) if task.subject_ids == (subject,)]
    for task, (action, fields) in zip(mine, given_answers, strict=False):
        try:
            await inbox.answer_task(
                world.database, TASK_KINDS, task.task_id, action, fields=fields, rationale="So.", by=ADMIN,
                deadline=ENOUGH,
            )  # fmt: skip
        except (TransitionRefused, BadInput):
            continue
    await advance(world)
    await find(world)


@pytest.mark.spec("GR-10")
@pytest.mark.longer
@EXAMPLES
@given(documents=DOCUMENTS, first=ANSWERS, second=ANSWERS)
async def test_what_is_known_later_changes_nothing_as_of_a_day(
    world: World, documents: list[_Document], first: list[Any], second: list[Any]
) -> None:
    """Over random histories: documents that are known later, answers, own values and standing rules."""
    await reviewer(world, capacity=100)
    subject = f"company:S{next(SUBJECTS)}"
    known = [line for line in lines(subject, documents) if line["known_at"] <= text(day(T))]
    later = [line for line in lines(subject, documents) if line["known_at"] > text(day(T))]
    await world.say(point(9.53, 0, metric="revenue", subject_id=subject, document="first"), *known)
    await find(world)
    on = AsOf(START + timedelta(days=T))
    before = await answers(world, subject, on)
    now = AsOf(datetime.now(UTC))
    at_once = await answers(world, subject, now)
    await act(world, subject, first)
    if later:
        await world.say(*later)
    await find(world)
    await act(world, subject, second)
    assert await answers(world, subject, on) == before
    if not later:
        assert await answers(world, subject, now) == at_once, "an answer counts from when it is given"
