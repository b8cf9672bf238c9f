"""The pages of agents: their records with intervals, and what each number rests on."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from imem.web.visitors import PAGE_MS, Visitor


async def listed(request: Request, visitor: Visitor) -> Response:
    """Show the scores of agents, of one domain or of all."""
    domain = request.query_params.get("domain", "").strip()
    table = await visitor.memory.scores.credibility(domains=[domain] if domain else None, deadline_ms=PAGE_MS)
    return visitor.page("agents.html", table=table, domain=domain)


async def explained(request: Request, visitor: Visitor) -> Response:
    """Show how the score of an agent in a domain follows from its settled claims."""
    name, domain = request.query_params.get("name", ""), request.query_params.get("domain", "")
    found = await visitor.memory.scores.explain(name, domain, deadline_ms=PAGE_MS)
    return visitor.page("agent.html", found=found, score=found.score)
