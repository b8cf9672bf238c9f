"""
Plans made before anybody waits for them.

Neo4j plans a statement when it first meets its text, which takes longer than a question may. So the process that
writes the graph asks the questions of a briefing once, about nothing, when it starts.
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

TEXT_SIZES: Final = (10, 100, 200)
"""
Characters of a text in each class of size that the server keeps plans apart by: measured, a plan made for one of up to
10 does not serve one of 11 to 100, nor that a longer one.
"""

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


async def warm(graph: Graph) -> int:
    """Have every query that answers as of a day planned, for texts of every size; trouble is only noted."""
    done = 0
    for query in named_queries().values():
        if not query.as_of:
            continue
        for size in TEXT_SIZES:
            nobody, kinds = "-" * size, query.parameters.items()
            values: dict[str, Any] = {name: 1 if kind.startswith("int") else nobody for name, kind in kinds}
            values |= dict.fromkeys(AS_OF, _LONG_AGO)
            try:
                await graph.read(query.name, values, deadline=Deadline.after_ms(BUDGET_MS))
                done += 1
            except ImemError as error:
                log.info("graph.not_warmed", query=query.name, reason=str(error))
    return done
