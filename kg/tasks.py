"""
Celery shells of what the graph's floor derives: the index of similar analyses, and the materialised views.

Rows in Postgres decide what there is to do, so that a task that is lost, sent twice, or killed half-way costs a moment
at most. The worker process hands its runtime in when it starts (:data:`lent`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from celery import shared_task

import imem.jobs.runtime
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable
from imem.kg import views
from imem.kg.similarity import index
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.index import REBUILD_REST, Pace

SIMILAR = "imem.kg.similarity.index"
REBUILD_SIMILAR = "kg.rebuild_similar"
REBUILD_VIEWS = "kg.rebuild_views"

BUDGET_MS = 60_000
"""After that a task ends and asks for another one, so that no task outlives the broker's patience."""


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What the tasks need beside the journal."""

    embedder: Embedder


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(  # type: ignore[untyped-decorator]
    name=SIMILAR, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=60, max_retries=5
)
def find_similar() -> dict[str, Any]:
    """Compare new analyses with the others; where more is left at the end of the budget, ask for another run."""
    runtime = lent.get()
    done = runtime.run(lambda: index.update(runtime.database, runtime.embedder, until=Deadline.after_ms(BUDGET_MS)))
    if done.more:
        find_similar.delay()
    return asdict(done)


@shared_task(  # type: ignore[untyped-decorator]
    name=REBUILD_SIMILAR, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def rebuild_similar() -> dict[str, Any]:
    """Go on with building the index of similar analyses anew; where more is left, ask for another run."""
    runtime = lent.get()
    pace = Pace(Deadline.after_ms(BUDGET_MS), REBUILD_REST)
    done = runtime.run(lambda: index.rebuild(runtime.database, runtime.embedder, pace=pace))
    if done.more:
        rebuild_similar.delay()
    return asdict(done)


@shared_task(  # type: ignore[untyped-decorator]
    name=REBUILD_VIEWS, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def rebuild_views() -> dict[str, int]:
    """Make every materialised view anew."""
    runtime = lent.get()
    return runtime.run(lambda: views.rebuild(runtime.database, deadline=Deadline.after_ms(BUDGET_MS)))
