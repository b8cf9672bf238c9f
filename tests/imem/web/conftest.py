"""The pages as a browser gets them: tasks of every kind, and people who are signed in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import pytest_asyncio

from imem.alerts.store import raise_alert
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.review.tasks import open_task
from imem.services.task_kinds import TASK_KINDS
from tests.imem.api.conftest import ADMIN, Face, face, harness
from tests.servers import as_pipelines, asked

__all__ = ["face", "harness"]

AT: Final = datetime(2026, 6, 1, 10, tzinfo=UTC).isoformat()
ORIGIN: Final = "http://face"

_ITEM: Final = {
    "contradiction_id": "c-1", "point_a": None, "point_b": None, "metric": "revenue",
    "data_point": "revenue of 2026-Q1 in USD", "value_a": 9_530_000_000.0, "value_b": 95_300_000_000.0,
    "differ_by": 0.9, "priority": "CRITICAL", "fallback_value": 9_530_000_000.0, "fallback_side": "a",
    "fallback_confidence": 0.5, "differential": 0.05,
}  # fmt: skip
_SIDE: Final = {"text": "Margins shrink.", "value": 80.0, "evidence": ["f-1"]}
_SCORE: Final = {"n": 21, "score": 0.7, "lower": 0.5, "upper": 0.86}

PACKAGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "contradiction": {
        "subject_id": "company:MU",
        "documents": [
            {"source": "edgar", "document": "10-Q", "filed_at": AT, "score": 0.82},
            {"source": "vendor", "document": None, "filed_at": None, "score": 0.6},
        ],
        "items": [_ITEM],
    },
    "debate": {
        "debate_id": "d-1", "topic": "Gross margin of 2026-Q3", "subject_id": "company:MU", "priority": "valuation",
        "metric": "gross_margin", "finding_id": "f-2", "escalated": "missing_evidence", "default_side": "challenger",
        "challenger": {**_SIDE, "agent": "bear", "score": _SCORE}, "default_reason": "It is the more cautious one.",
        "challenged": {**_SIDE, "agent": "bull", "value": 100.0, "score": None}, "dependants": ["a-7"],
    },
    "postmortem": {
        "case_id": "case-1", "decision_id": "mu-1", "subject_id": "company:MU", "decided_at": AT, "action": "buy",
        "stance": "bullish", "agents": ["pm"], "reviewed_as_of": AT, "patterns": ["p-1"], "cause": "timing",
        "checkpoints": [
            {"days": 90, "metric": "close", "predicted": 0.2, "actual": -0.1, "deviation": 1.5, "outcome_id": "o"},
        ],
    },
    "similarity": {"pattern_id": "p-2/1", "says": "Inventories lead margins.", "pairs": 20, "equal": 20},
    "restoration": {
        "pattern_id": "p-3/1", "name": "Rates", "says": "Cuts lift multiples.", "trigger": "policy_rate",
        "measured": "the policy rate fell by 0.50", "restored_at": AT, "together": 1, "confidence": 0.7,
        "accuracy": None, "deprecated_at": AT, "last_accessed": None, "tested_at": AT, "old_evidence": False,
        "gaps": [],
    },
    "learning": {
        "number": 1, "urgency": "normal", "outcomes": 3, "days": 30.0, "minutes": 12.0, "left": 0,
        "items": [
            {
                "kind": "credibility", "key": f"{agent}/flu", "headline": f"{agent} in flu: 0.700 to 0.680",
                "priority": "normal", "minutes": 6.0, "actions": ["approve", "override"], "bulk": None,
                "seen": {"agent": agent, "domain": "flu", "old": 0.7, "new": 0.68, "reason": "none", "n": 20},
            }
            for agent in ("vera", "pat")
        ],
    },
}  # fmt: skip
"""Kind of a task → what its reviewer sees, as it is stored."""


@dataclass
class Office:
    """
    An application with people and tasks.

    Attributes:
        face: the application.
        pipelines: the journal under the pipelines' login, which opens tasks.
    """

    face: Face
    pipelines: Database
    task_kinds = TASK_KINDS

    async def open(self, kind: str, task_id: str | None = None, **changes: Any) -> str:
        """Open a task; return its id."""
        of, key = TASK_KINDS[kind], task_id or f"{kind}-1"
        package = of.package.model_validate({**PACKAGES[kind], **changes})
        runtime: Any = self
        async with self.pipelines.transaction(Deadline.after_ms(30_000)) as conn:
            _, effects = await open_task(runtime, conn, of, package, task_id=key, rank=1, subject_ids=["company:MU"])
            for alert in effects.alerts:
                await raise_alert(conn, alert)
        return key

    async def link(self, person: str, role: Role = Role.REVIEWER) -> str:
        """Create a link with which a person signs in; return its secret."""
        made = await self.face.server.sessions.create_link(
            person, role, actor=ADMIN, deadline=Deadline.after_ms(10_000)
        )
        return made.secret

    async def roster(self, *people: str) -> None:
        """Put people on the roster."""
        for person in people:
            await self.face.server.memory_of(ADMIN).tasks.set_reviewer(person, deadline_ms=10_000)

    def browser(self, **headers: str) -> httpx2.AsyncClient:
        """Return a browser without a session."""
        transport = httpx2.ASGITransport(self.face.app)
        return httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Origin": ORIGIN, **headers})

    async def signed_in(self, person: str = "dana", role: Role = Role.REVIEWER) -> httpx2.AsyncClient:
        """Return a browser in which a person is signed in."""
        browser = self.browser()
        done = await browser.post("/sign-in", data={"link": await self.link(person, role)})
        assert done.status_code == 303
        return browser

    def make_late(self, task_id: str) -> None:
        """Let the time of a task be over, before any pipeline has noticed."""
        query = "UPDATE lifecycle SET due_at = imem_now() - interval '1 minute' WHERE kind = 'task' AND key = %s"
        asked(self.face.harness.admin_url, query, (task_id,))


@pytest_asyncio.fixture
async def office(face: Face) -> AsyncIterator[Office]:
    pipelines = Database(as_pipelines(face.harness.settings, face.harness.url), size=2)
    yield Office(face, pipelines)
    await pipelines.close()
