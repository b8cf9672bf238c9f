"""Pipelines of the graph: the index of similar analyses, and the materialised views."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, Protocol

from imem.jobs.due import DueRule
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.jobs.throttle import LOADING_TIMES, Throttle
from imem.journal.deadline import Deadline
from imem.kg import views
from imem.kg.similarity import index
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.index import REBUILD_REST

BUDGET_MS: Final = 60_000
"""
Budget of a run, in milliseconds; then it requests another, so that no task outlives the broker's visibility timeout.
"""


class SimilarityRuntime(Runtime, Protocol):
    """A runtime with an embedder."""

    embedder: Embedder


async def _compare(runtime: SimilarityRuntime, until: Deadline) -> Report:
    return asdict(await index.update(runtime.database, runtime.embedder, until=until))


async def _rebuild(runtime: SimilarityRuntime, until: Deadline) -> Report:
    throttle = Throttle(until, REBUILD_REST, LOADING_TIMES)
    return asdict(await index.rebuild(runtime.database, runtime.embedder, throttle=throttle))


async def _views(runtime: Runtime, until: Deadline) -> Report:
    return await views.rebuild(runtime.database, deadline=until)


SIMILAR: Final = Pipeline(
    "kg.similar",
    _compare,
    Every(15.0),
    budget_ms=BUDGET_MS,
    retry_max_s=60,
    due=(
        # An analysis is compared by its text, its claims, and the active patterns that were identified in it ...
        *(DueRule(index.QUEUE, "Analysis", f"{verb}.Analysis", "$key") for verb in ("record", "correct")),
        DueRule(index.QUEUE, "Analysis", "record.Finding", "$analysis ? ($metric != null)"),
        DueRule(index.QUEUE, "Analysis", "link.IDENTIFIED_PATTERN", "$.from_key"),
        DueRule(index.QUEUE, "Pattern", "record.Pattern", "$key ? (exists($.groups.status))"),
        # ... and by its company's sector and size, or its market's question.
        DueRule(index.QUEUE, "Company", "record.Company", "$key ? (exists($.groups.profile))"),
        *(
            DueRule(index.QUEUE, "Market", f"{verb}.Market", "$key ? ($.core.question != null)")
            for verb in ("record", "correct")
        ),
    ),
)

REBUILD_SIMILAR: Final = Pipeline(
    "kg.rebuild_similar", _rebuild, Daily(4, 11, sundays=True), budget_ms=BUDGET_MS, retry_max_s=600
)

REBUILD_VIEWS: Final = Pipeline("kg.rebuild_views", _views, Every(15 * 60.0), budget_ms=BUDGET_MS, retry_max_s=600)
