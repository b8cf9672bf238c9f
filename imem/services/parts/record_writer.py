"""Recording of facts in the journal: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel

from imem.ingest.recorder import prepare, record, refusal_of
from imem.journal.arguments import LongText, checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Receipt
from imem.journal.events.tiers import AWAITED
from imem.kg.load_format.lines import Line, correction_of, groups_of, link_of, record_of
from imem.kg.model import (
    Agent,
    Analysis,
    Company,
    DataContradiction,
    Debate,
    Decision,
    Finding,
    Group,
    Kind,
    Market,
    Outcome,
    Turn,
)
from imem.services.arguments import MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.parts.actor_api import ActorApi

WRITE_BUDGET_MS: Final = 2000
"""Default budget of a write until it is durable, in milliseconds."""

Node = Kind | tuple[str, str]
"""A node: a model, or its label and key."""


@checks_arguments
class RecordWriter(ActorApi):
    """Records models, links and corrections; see :class:`imem.memory.Memory` for common arguments and errors."""

    async def record_company(
        self,
        company: Company,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record a company, or what changed in its profile."""
        return await self.record(
            company,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_market(
        self,
        market: Market,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record a prediction market's question, or its resolution."""
        return await self.record(
            market,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_agent(
        self,
        agent: Agent,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record an agent, or what changed in its profile; an agent records itself alone."""
        return await self.record(
            agent,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_analysis(
        self,
        analysis: Analysis,
        *,
        body: LongText | None = None,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record a piece of work on a subject; *body* is its long text, at most 64 kB of UTF-8."""
        return await self.record(
            analysis,
            body=body,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_finding(
        self,
        finding: Finding,
        *,
        body: LongText | None = None,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """
        Record one agent's statement inside an analysis.

        With ``metric`` and ``target_at`` it is a claim that an outcome can settle, if it is known before ``target_at``.
        """
        return await self.record(
            finding,
            body=body,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_decision(
        self,
        decision: Decision,
        *,
        body: LongText | None = None,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record a decision, taken or passed; link the findings that it rests on with ``CITES`` (:meth:`link`)."""
        return await self.record(
            decision,
            body=body,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_outcome(
        self,
        outcome: Outcome,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record the outcome of a metric; it settles claims only under the import right or from a person."""
        return await self.record(
            outcome,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_debate(
        self,
        debate: Debate,
        *,
        turns: Sequence[Turn] = (),
        body: LongText | None = None,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record a debate with all its *turns*; they replace those recorded before."""
        return await self.record(
            debate,
            body=body,
            turns=turns,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_contradiction(
        self,
        contradiction: DataContradiction,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record that two sources give different values for the same thing."""
        return await self.record(
            contradiction,
            known_at=known_at,
            occurred_at=occurred_at,
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record(
        self,
        model: Kind,
        *,
        body: LongText | None = None,
        turns: Sequence[Turn] = (),
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """
        Record a model of any kind that may be written from outside, with the groups that it holds.

        Args:
            body: long text, stored in Postgres; at most 64 kB of UTF-8.
            turns: of a debate.
        """
        return await self._write(
            record_of(model, body=body, turns=turns, known_at=known_at, occurred_at=occurred_at),
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def record_groups(
        self,
        kind: type[Kind],
        key: str,
        groups: Mapping[str, Group],
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Record property groups, by name, of the record *key*, which may itself be recorded later."""
        return await self._write(
            groups_of(kind, key, groups, known_at=known_at, occurred_at=occurred_at),
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def link(
        self,
        type_: str,
        start: Node,
        end: Node,
        props: Mapping[str, Any] | BaseModel | None = None,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """
        Link two nodes, given as models or as label and key; an end may be recorded later.

        Args:
            type_: the relationship's type, such as ``PERFORMED``.
            props: its properties.
        """
        return await self._write(
            link_of(type_, start, end, props, known_at=known_at, occurred_at=occurred_at),
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def correct(
        self,
        model: Kind,
        reason: str,
        *,
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """
        Replace the core of the record with the model's key, for *reason*; the old one stays in history.

        It takes the import right or a person. Fields that links or scores depend on cannot be corrected.
        """
        return await self._write(
            correction_of(model, reason, known_at=known_at, occurred_at=occurred_at),
            wait_visible=wait_visible,
            deadline_ms=deadline_ms,
        )

    async def _write(self, line: Line, *, wait_visible: bool, deadline_ms: float) -> Receipt:
        """Commit one line; a refusal of the journal is raised."""
        due_ms = budget_ms(deadline_ms, default=WRITE_BUDGET_MS, least=1, most=MOST_WRITE_BUDGET_MS)
        deadline = Deadline.after_ms(due_ms)
        visible_by = Deadline.after_ms(self._stores.settings.visible_wait_ms) if wait_visible else None
        [receipt] = await record(
            self._stores.gateway,
            [prepare(line, tier=AWAITED if wait_visible else None)],
            actor=self._actor,
            deadline=deadline,
            wait_visible=visible_by,
        )
        refusal = refusal_of(receipt.verdict, line)
        if refusal is not None:
            raise refusal
        return receipt
