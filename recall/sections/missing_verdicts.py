"""Why decisions have no verdict, as of the moment of a request."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from imem.credibility.history import DatedStatement
from imem.credibility.store import citation_of, stance_of
from imem.credibility.track_record import scores_until
from imem.credibility.verdicts import CitedClaim, FindingCitation, NoVerdict, no_verdict
from imem.recall.answers import ReviewedDecision
from imem.recall.rendering.formatting import verdict_of
from imem.recall.retrievers import RetrievalRequest


async def missing_verdicts(
    request: RetrievalRequest, taken: Sequence[ReviewedDecision]
) -> dict[str, dict[str, NoVerdict | datetime | None]]:
    """Return, for each decision without a verdict, the fields that say why."""
    without = [one.decision for one in taken if verdict_of(one) is None]
    if not without:
        return {}
    until = await scores_until(request.database, request.at, deadline=request.deadline)
    decisions = {"decisions": [one.key for one in without], **request.at.limits}
    rows, stances = await asyncio.gather(
        request.database.named(
            "unsettled_citations",
            {"clock": request.at.clock.value, "until": until, **decisions},
            deadline=request.deadline,
        ),
        request.database.named("stances_until", decisions, deadline=request.deadline),
    )
    stated: dict[str, list[DatedStatement[str | None]]] = defaultdict(list)
    for row in stances:
        stated[row["decision"]].append(stance_of(row))
    cited: dict[str, dict[str, list[DatedStatement[FindingCitation]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cited[row["decision"]][row["link"]].append(citation_of(row))
    claims = {
        row["finding_id"]: CitedClaim(row["claim_known_at"], row["target_at"], row["metric"])
        for row in rows
        if row["metric"] is not None
    }
    abstained = {row["finding_id"] for row in rows if row["abstained"]}
    found: dict[str, dict[str, NoVerdict | datetime | None]] = {}
    for one in without:
        reason, due_at = no_verdict(stated[one.key], cited[one.key], claims, abstained)
        found[one.key] = {"no_verdict": reason, "due_at": due_at}
    return found
