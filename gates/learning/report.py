"""Whether what is learned helps: what people decided, what agents cite, which lessons worked, and how forecasts did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from imem.credibility.scores.wilson import wilson
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.kinds.enums import SuccessClass
from imem.kg.kinds.forecasts import TOTAL_RETURN
from imem.postmortem.lessons.effect import EffectVerdict, LessonEffect
from imem.postmortem.lessons.reading import lesson_effect

LEAST: Final = 10
"""Below this number nothing is said of a share."""

MOST_LESSONS: Final = 50
"""Applied lessons whose effect is measured, the newest ones."""

MOST_REINFORCED: Final = 50
"""Agents, patterns and lessons that successes speak for, at most."""

BEGINNING: Final = datetime(2, 1, 1, tzinfo=UTC)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Share(_Value):
    """
    A share of *n*, with its 95 % Wilson interval; all three are fractions 0-1, and None below ten.

    Attributes:
        n, count: of how many, how many.
    """

    n: int
    count: float
    share: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, count: float, n: int) -> Share:
        """Return the share of *count* out of *n*."""
        if n < LEAST:
            return cls(n=n, count=count)
        interval = wilson(count / n, n)
        return cls(n=n, count=count, share=count / n, low=interval.lower, high=interval.upper)


class Quarter(_Value):
    """
    Checkpoints that ended in one quarter.

    Attributes:
        begins: of the quarter, in UTC.
        accurate: those inside the tolerance of their metric.
        inside: those inside the interval that was stated, of those that stated one.
    """

    begins: datetime
    accurate: Share
    inside: Share


class AppliedLesson(_Value):
    """A lesson that is applied, and its effect."""

    lesson_id: str
    effect: LessonEffect


class Reinforced(_Value):
    """
    The agent, pattern or lesson that successes speak for: an agent, a pattern or a lesson.

    Attributes:
        kind, key: ``agent``, ``pattern`` or ``lesson``, and which.
        fully: decisions that were genuine successes.
        partly: those that were partial ones; a lucky one speaks for nothing.
    """

    kind: str
    key: str
    fully: int
    partly: int


class LearningReport(_Value):
    """
    Whether what is learned helps.

    Attributes:
        since: from when on; None: from the beginning.
        packages, answered: packages of Gate 6, and those that a person answered.
        due, decided, rolled_over: items of these packages, those that were decided, and those that came up again later.
        cases: post-mortems, by state.
        citing: decisions that cite what the memory holds: lessons, patterns, debates, or findings and analyses of
            other analyses.
        lessons: applied lessons, the newest first.
        successes: decisions whose newest checkpoint was a success, by class.
        reinforced: what the genuine and the partial ones speak for, about fifty at most.
        calibration: checkpoints by quarter.
        warnings: what cannot be said, and why.
    """

    since: datetime | None
    packages: int
    answered: int
    due: int
    decided: int
    rolled_over: int
    cases: dict[str, int]
    citing: Share
    lessons: tuple[AppliedLesson, ...]
    successes: dict[str, int]
    reinforced: tuple[Reinforced, ...]
    calibration: tuple[Quarter, ...]
    warnings: tuple[str, ...]


async def learning_report(database: Database, since: datetime | None, *, deadline: Deadline) -> LearningReport:
    """
    Return the report.

    Args:
        since: of what happened from then on; the effect of lessons is always that of all decisions.
    """
    given = {"since": since or BEGINNING, "metric": TOTAL_RETURN, "limit": MOST_REINFORCED + len(SuccessClass)}

    async def read(statement: str) -> list[Any]:
        return await database.named(statement, given, deadline=deadline)

    [packages] = await read("report_packages")
    [citing] = await read("report_citing")
    cases = {row["state"]: row["count"] for row in await read("report_cases")}
    calibration = tuple(
        Quarter(
            begins=row["quarter"], accurate=Share.of(row["accurate"], row["measured"]),
            inside=Share.of(row["inside"], row["stated"]),
        )
        for row in await read("report_calibration")
    )  # fmt: skip
    spoken = await read("report_reinforced")
    successes = {row["key"]: row["decisions"] for row in spoken if row["kind"] == "class"}
    reinforced = tuple(
        Reinforced(**{name: row[name] for name in Reinforced.model_fields}) for row in spoken if row["kind"] != "class"
    )
    applied = await database.named("report_lessons", {"limit": MOST_LESSONS}, deadline=deadline)
    lessons = [
        AppliedLesson(lesson_id=row["key"], effect=await lesson_effect(database, row["key"], deadline=deadline))
        for row in applied
    ]
    share = Share.of(citing["citing"], citing["decisions"])
    return LearningReport(
        since=since, packages=packages["packages"], answered=packages["answered"], due=packages["due"],
        decided=packages["decided"], rolled_over=packages["due"] - packages["decided"] + packages["left_over"],
        cases=cases, citing=share, lessons=tuple(lessons), successes=successes,
        reinforced=reinforced, calibration=calibration,
        warnings=tuple(_warnings(share, lessons, calibration)),
    )  # fmt: skip


def _warnings(citing: Share, lessons: Sequence[AppliedLesson], calibration: Sequence[Quarter]) -> Iterator[str]:
    if citing.share is None:
        yield f"Whether decisions cite the memory cannot be said: there are {citing.n}, and {LEAST} are needed."
    too_few = sum(one.effect.verdict is EffectVerdict.INSUFFICIENT for one in lessons)
    if too_few == len(lessons):
        yield f"Whether lessons work cannot be said: of {len(lessons)} applied ones none has {LEAST} decisions a cell."
    elif too_few:
        yield f"Whether {too_few} of {len(lessons)} applied lessons work cannot be said: they have too few decisions."
    if sum(one.accurate.share is not None for one in calibration) < 2:
        yield f"Whether forecasts became better cannot be said: two quarters with {LEAST} checkpoints are needed."
