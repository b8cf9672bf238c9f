"""The pipeline of search: texts of records that changed, and their vectors."""

from __future__ import annotations

from typing import Final

from imem.jobs.due import DueRule
from imem.jobs.pipeline import Every, Pipeline
from imem.kg.pipelines import BUDGET_MS, SimilarityRuntime
from imem.recall.search.projection import QUEUE, project_due

PROJECT_TEXTS: Final[Pipeline[SimilarityRuntime]] = Pipeline(
    "recall.project_texts",
    lambda runtime, until: project_due(runtime.database, runtime.embedder, until=until),
    Every(15.0),
    budget_ms=BUDGET_MS,
    retry_max_s=60,
    due=(
        # What is part of an analysis or a debate stands there ...
        *(
            DueRule(QUEUE, "Analysis", f"{verb}.{kind}", "$analysis")
            for kind in ("Finding", "Decision")
            for verb in ("record", "correct")
        ),
        *(
            DueRule(QUEUE, "Decision", f"{verb}.Decision", "$key ? ($analysis == null && exists($.core))")
            for verb in ("record", "correct")
        ),
        *(
            DueRule(QUEUE, "Debate", f"{verb}.{kind}", "$.core.debate_id")
            for kind in ("DebateResolution", "DebateTurn")
            for verb in ("record", "correct")
        ),
        # ... everything else by itself.
        *(
            DueRule(QUEUE, kind, f"{verb}.{kind}", "$key")
            for kind in ("Analysis", "Debate", "Company", "Market", "DataContradiction", "Lesson", "Pattern")
            for verb in ("record", "correct")
        ),
    ),
)
