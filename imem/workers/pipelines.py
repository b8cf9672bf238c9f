"""Registry of all pipelines: what the worker serves, beat sends and events wake, and what makes work for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.archives.building import BUILD_ARCHIVES
from imem.archives.pruning import PRUNE
from imem.archives.retention import RETAIN
from imem.checkpoints.pauses.human_gates import GATES_OF_ANALYSES
from imem.checkpoints.pauses.pipelines import MANAGE, RETIRE
from imem.checkpoints.pipelines import CLEANUP
from imem.credibility.forecasts.tracking import FORECASTS
from imem.credibility.pipelines import (
    DETECT_REGIME,
    FIND_CONTRADICTIONS,
    MEASURE_RETURNS,
    PUBLISH_SCORES,
    RECONCILE,
    REVIEW,
    SETTLE,
    TRACK_FORECASTS,
)
from imem.debates.running import DEBATES
from imem.gates.learning.gate import VALIDATE_LEARNING
from imem.gates.restoring import RESTORE
from imem.jobs.alert_pipelines import SEND_ALERTS, WATCH_ACCESS, WATCH_MEMORY
from imem.jobs.due import DueRule
from imem.jobs.journal_pipelines import UPKEEP
from imem.jobs.lifecycle import Lifecycle
from imem.jobs.lifecycle_pipelines import ADVANCE
from imem.jobs.pipeline import Pipeline
from imem.kg.pipelines import REBUILD_SIMILAR, REBUILD_VIEWS, SIMILAR
from imem.kg.projection.derived_values import RULES
from imem.patterns.monitoring import LIFE as PATTERNS
from imem.patterns.monitoring import TEST_PATTERNS
from imem.postmortem.cases.queue import CASES, OPEN_CASES
from imem.postmortem.lessons.life import LESSONS, LIFE
from imem.postmortem.lessons.measuring import MEASURE_LESSONS
from imem.postmortem.reflection.pipelines import REFLECT
from imem.postmortem.successes import VALIDATE_SUCCESSES
from imem.postmortem.trades.situations import EMBED_SITUATIONS
from imem.recall.memories.pipelines import CONSOLIDATE_MEMORIES, EMBED_MEMORIES, MAINTAIN_MEMORIES
from imem.recall.search.pipelines import PROJECT_TEXTS
from imem.recall.signals.pipelines import PROJECT_SIGNALS, RETAIN_SIGNALS
from imem.review.tasks import TASKS
from imem.sync.pipelines import FLUSH, SYNC_GATES, TAKE_SNAPSHOTS

PIPELINES: Final[tuple[Pipeline[Any], ...]] = (
    SETTLE,
    RECONCILE,
    DETECT_REGIME,
    PUBLISH_SCORES,
    REVIEW,
    FIND_CONTRADICTIONS,
    TRACK_FORECASTS,
    VALIDATE_LEARNING,
    TEST_PATTERNS,
    OPEN_CASES,
    MEASURE_RETURNS,
    LESSONS,
    MEASURE_LESSONS,
    SIMILAR,
    REBUILD_SIMILAR,
    REBUILD_VIEWS,
    EMBED_MEMORIES,
    CONSOLIDATE_MEMORIES,
    MAINTAIN_MEMORIES,
    PROJECT_TEXTS,
    VALIDATE_SUCCESSES,
    BUILD_ARCHIVES,
    RETAIN,
    RESTORE,
    PRUNE,
    REFLECT,
    EMBED_SITUATIONS,
    PROJECT_SIGNALS,
    RETAIN_SIGNALS,
    SEND_ALERTS,
    WATCH_MEMORY,
    WATCH_ACCESS,
    ADVANCE,
    MANAGE,
    RETIRE,
    SYNC_GATES,
    FLUSH,
    TAKE_SNAPSHOTS,
    CLEANUP,
    UPKEEP,
)

DUE_RULES: Final[tuple[DueRule, ...]] = (*RULES, *(rule for pipeline in PIPELINES for rule in pipeline.due))
"""The events that make rows due, for the pipelines and the applier; migrations store them in Postgres."""

LIFECYCLES: Final[Mapping[str, Lifecycle[Any]]] = {
    one.kind: one for one in (GATES_OF_ANALYSES, TASKS, DEBATES, FORECASTS, CASES, LIFE, PATTERNS)
}
"""Kinds of lifecycle rows, by name."""
