"""
The backlog: what the pipelines and the applier still have to do, how much of it, and for how long the oldest waits.

It is counted from the rows that the pipelines themselves take their work from. ``imem load``, ``imem status`` and
``imem doctor`` show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database

LATE_S: Final = 300.0
"""Age of the oldest row from which a pipeline is far behind, in seconds; a minute is normal."""

FAILING_S: Final = 60.0
"""Age of the oldest row from which a pipeline whose last run failed is far behind: the next run may mend it."""

MANY: Final = 1_000
"""Rows from which a pipeline is far behind, however new they are: a load has just been."""

APPLIER: Final = "applier"
"""The process that writes the graph; it is no pipeline, and keeps no reports."""


class Work(NamedTuple):
    """
    One kind of work.

    Attributes:
        name: queue of its due rows, or what the statement ``pipelines_behind`` calls it.
        pipeline: who does it.
        label: what waits, as people read it behind a number.
        late_s: age of the oldest row from which the pipeline is far behind, in seconds.
    """

    name: str
    pipeline: str
    label: str
    late_s: float = LATE_S


WORK: Final = (
    Work("events", APPLIER, "events for the graph"),
    Work("graph", APPLIER, "derived values of the graph"),
    Work("credibility", "credibility.settle", "records to settle"),
    Work("tracks", "credibility.settle", "track records to compute"),
    Work("scores", "credibility.publish_scores", "scores to publish"),
    Work("similar", "kg.similar", "statements about analyses to compare"),
    Work("search", "recall.project_texts", "records to make searchable"),
    Work("vectors", "recall.project_texts", "texts without a vector"),
    Work("memories", "recall.embed_memories", "memories without a vector"),
    Work("situations", "postmortem.embed_situations", "situations without a vector"),
    Work("signals", "recall.project_signals", "analyses to make signals of"),
    Work("regimes", "credibility.detect_regime", "readings of the regime to look at"),
    Work("disputes", "credibility.find_contradictions", "values to compare"),
    Work("forecasts", "credibility.track_forecasts", "forecasts to follow"),
    Work("postmortem", "postmortem.open_cases", "outcomes to look at for post-mortems"),
    Work("lessons", "postmortem.lessons", "changes of lessons"),
    Work("successes", "postmortem.validate_successes", "successes to validate"),
    Work("reflection", "postmortem.reflect", "deployments to reflect on"),
    Work("archives", "archives.build", "archives to build"),
    # Its rounds begin every ten minutes.
    Work("patterns", "patterns.test", "patterns to test", 1_200.0),
)
"""Every kind of work, in the order in which people read it."""

_BY_NAME: Final = {work.name: work for work in WORK}
_ORDER: Final = {work.name: nth for nth, work in enumerate(WORK)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """
    Work of one kind that waits.

    Attributes:
        work: which.
        waiting: how many rows; several may be about one record.
        oldest_s: for how long the oldest has waited, in seconds; None where that is not known.
        error: how the last run of the pipeline failed; None if it did not.
    """

    work: Work
    waiting: int
    oldest_s: float | None
    error: str | None

    @property
    def far_behind(self) -> bool:
        """Whether it is too much, or has waited for too long, or fails: answers lack it meanwhile."""
        late = self.oldest_s is not None and self.oldest_s > self.work.late_s
        fails = self.error is not None and (self.oldest_s is None or self.oldest_s > FAILING_S)
        return late or fails or self.waiting >= MANY

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "work": self.work.name,
            "pipeline": self.work.pipeline,
            "waiting": self.waiting,
            "oldest_s": None if self.oldest_s is None else round(self.oldest_s, 1),
            "far_behind": self.far_behind,
            "error": self.error,
        }

    def __str__(self) -> str:
        """Return it as people read it: how much, of what, for how long, and who does it."""
        age = "" if self.oldest_s is None else f", the oldest for {duration(self.oldest_s)}"
        return f"{self.waiting:,} {self.work.label}{age} ({self.work.pipeline})"


def duration(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def backlog_parameters(model_id: str, dimension: int, *, situations: bool) -> dict[str, Any]:
    """
    Return the parameters of the statement ``pipelines_behind``.

    Args:
        model_id, dimension: of the embedder that the settings name; vectors of another are made anew.
        situations: whether vectors of situations are made.
    """
    return {
        "works": [work.name for work in WORK],
        "pipelines": [work.pipeline for work in WORK],
        "model_id": model_id,
        "dimension": dimension,
        "situations": situations,
    }


def backlog_of(rows: Iterable[Row]) -> tuple[Waiting, ...]:
    """Return rows of ``pipelines_behind`` as values, in the order of :data:`WORK`."""
    found = [
        Waiting(work=_BY_NAME[row["work"]], waiting=row["waiting"], oldest_s=row["oldest_s"], error=row["error"])
        for row in rows
    ]
    return tuple(sorted(found, key=lambda one: _ORDER[one.work.name]))


async def read_backlog(database: Database, parameters: dict[str, Any], *, deadline: Deadline) -> tuple[Waiting, ...]:
    """
    Return what waits; empty if nothing does.

    Args:
        parameters: see :func:`backlog_parameters`.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be counted in time; retryable.
    """
    return backlog_of(await database.named("pipelines_behind", parameters, deadline=deadline))


def far_behind(backlog: Sequence[Waiting], pipelines: Collection[str]) -> bool:
    """Whether one of *pipelines* is far behind."""
    return any(one.far_behind and one.work.pipeline in pipelines for one in backlog)
