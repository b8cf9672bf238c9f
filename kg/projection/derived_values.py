"""
Values of the graph that are derived from others: counters, links to outcomes, links between similar analyses.

They are no events, and outside history and hash. The applier recomputes those whose rows are due in :data:`QUEUE`; the
kind of a row names the statement ``derive_<kind>``. Pipelines make rows due for what they compute.
"""

from __future__ import annotations

from typing import Final

from imem.jobs.due import DueRule

QUEUE: Final = "graph"
"""The queue of derived values that the applier has to recompute."""

RULES: Final = (
    *(DueRule(QUEUE, "subject_counters", f"{verb}.Analysis", "$subject") for verb in ("record", "correct")),
    DueRule(QUEUE, "agent_counters", "record.Decision", "$.core.agents_involved[*]"),
)
"""The events that change a counter."""
