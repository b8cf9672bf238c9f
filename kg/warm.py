"""
Plans made before anybody waits for them.

Neo4j plans a statement when it first meets its text, and again when the graph has grown to several times its size;
either takes longer than a question may. So the process that writes the graph asks the questions of a briefing, about
nothing, when it starts and after the graph has grown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import structlog

from journal.deadline import Deadline
from journal.errors import ImemError
from kg.engine import Graph
from kg.queries import AS_OF, named_queries

log = structlog.get_logger()

BUDGET_MS: Final = 20_000
"""How long one plan may take, in milliseconds."""

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NOBODY: Final = "-"
_EXAMPLES: Final[dict[str, Any]] = {"int": 1, "list": []}
"""By type, where a parameter is no text."""


async def worth_warming(graph: Graph) -> bool:
    """Return whether the graph holds anything that one may ask about; one that does not answer is not."""
    try:
        return bool((await graph.read("holds_analyses", deadline=Deadline.after_ms(BUDGET_MS)))[0]["holds"])
    except ImemError as error:
        log.info("graph.not_warmed", reason=str(error))
        return False


async def warm(graph: Graph) -> int:
    """Have every query that answers as of a day planned, and return how many were; trouble is only noted."""
    done = 0
    for query in named_queries().values():
        if not query.as_of:
            continue
        kinds = query.parameters.items()
        values: dict[str, Any] = {name: _EXAMPLES.get(kind.split()[0].rstrip(","), _NOBODY) for name, kind in kinds}
        values |= dict.fromkeys(AS_OF, _LONG_AGO)
        try:
            await graph.read(query.name, values, deadline=Deadline.after_ms(BUDGET_MS))
            done += 1
        except ImemError as error:
            log.info("graph.not_warmed", query=query.name, reason=str(error))
    return done
