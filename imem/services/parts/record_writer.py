"""Recording of facts in the journal: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from pydantic import BaseModel

from imem.ingest.recorder import prepare, record_all
from imem.journal.arguments import LongText, checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.events.entry import Receipt
from imem.journal.events.tiers import AWAITED
from imem.kg.kinds.fields import parse_json_object, shown
from imem.kg.kinds.forecasts import Forecast
from imem.kg.load_format.lines import Line, correction_of, groups_of, link_of, record_of
from imem.kg.model import (
    Agent,
    Analysis,
    Company,
    DataContradiction,
    DataPoint,
    Debate,
    Decision,
    Finding,
    Group,
    Kind,
    Market,
    Outcome,
    Turn,
)
from imem.services.parts.actor_api import ActorApi

WRITE_BUDGET_MS: Final = 2000
"""Default budget of a write until it is durable, in milliseconds."""


class WriteOptions(TypedDict, total=False):
    """Options of every write; :class:`imem.memory.Memory` says what they mean."""

    known_at: datetime | None
    occurred_at: datetime | None
    wait_visible: bool
    deadline_ms: float


Node = Kind | tuple[str, str]
"""A node: a model, or its label and key."""


@checks_arguments
class RecordWriter(ActorApi):
    """Records models, links and corrections; see :class:`imem.memory.Memory` for common arguments and errors."""

    async def record_company(self, company: Company, **options: Unpack[WriteOptions]) -> Receipt:
        """Record a company, or what changed in its profile."""
        return await self.record(company, **options)

    async def record_market(self, market: Market, **options: Unpack[WriteOptions]) -> Receipt:
        """Record a prediction market's question, or its resolution."""
        return await self.record(market, **options)

    async def record_agent(self, agent: Agent, **options: Unpack[WriteOptions]) -> Receipt:
        """Record an agent, or what changed in its profile; an agent records itself alone."""
        return await self.record(agent, **options)

    async def record_analysis(
        self,
        analysis: Analysis,
        *,
        findings: Sequence[Finding] = (),
        body: LongText | None = None,
        **options: Unpack[WriteOptions],
    ) -> Receipt:
        """
        Record a piece of work on a subject, and what it found; return the analysis's receipt.

        All of it is recorded, or nothing: if a finding is refused, so is the call.

        Args:
            findings: statements of the analysis, each with its id; those that have a confidence are signals.
            body: its long text, at most 64 kB of UTF-8.
        """
        for number, finding in enumerate(findings):
            if finding.analysis_id != analysis.id:
                raise BadInput(f"findings.{number}.analysis_id", f"is {finding.analysis_id!r}, not {analysis.id!r}.")
        makers = (partial(record_of, analysis, body=body), *(partial(record_of, finding) for finding in findings))
        return await self._write(*makers, **options)

    async def record_finding(
        self, finding: Finding, *, body: LongText | None = None, **options: Unpack[WriteOptions]
    ) -> Receipt:
        """
        Record one agent's statement inside an analysis.

        With ``metric`` and ``target_at`` it is a claim that an outcome can settle, if it is known before ``target_at``.
        """
        return await self.record(finding, body=body, **options)

    async def record_decision(
        self,
        decision: Decision,
        *,
        cites: Sequence[str] = (),
        forecast: Forecast | None = None,
        body: LongText | None = None,
        **options: Unpack[WriteOptions],
    ) -> Receipt:
        """
        Record a decision, taken or passed, with the findings that it rests on: all of it or nothing.

        The outcome of the first finding decides, with the decision's stance, how the decision turned out.

        Args:
            cites: ids of findings, the most important one first; each has to be recorded, unless *known_at* is given.
            forecast: what the decision expects at its checkpoints, to be compared with outcomes; never corrected.
            body: why, at most 64 kB of UTF-8.
        """
        if forecast is not None:
            if decision.forecast is not None:
                raise BadInput("forecast", "is stated twice: with the decision, and beside it.")
            decision = decision.model_copy(update={"forecast": parse_json_object(forecast.stored())})
        links: list[Callable[..., Line]] = []
        for place, finding in enumerate(cites):
            if finding in cites[:place]:
                raise BadInput(f"cites.{place}", f"repeats {shown(finding)}.")
            props = {"at": decision.decided_at, "rank": place + 1}
            links.append(partial(link_of, "CITES", decision, ("Finding", finding), props))
        if cites and options.get("known_at") is None:
            due = self._write_due(options.get("deadline_ms"), WRITE_BUDGET_MS)
            await self._check_findings(cites, due)
            options["deadline_ms"] = max(due.left_ms(), 1)
        return await self._write(partial(record_of, decision, body=body), *links, **options)

    async def _check_findings(self, cited: Sequence[str], deadline: Deadline) -> None:
        """Refuse a citation of a finding that is not recorded: a mistyped id would never give a verdict."""
        given = {"kinds": ["Finding"] * len(cited), "keys": list(cited)}
        known = {row["key"] for row in await self._stores.database.named("recorded_cores", given, deadline=deadline)}
        for place, finding in enumerate(cited):
            if finding not in known:
                raise BadInput(f"cites.{place}", f"no Finding {shown(finding)} is recorded.")

    async def record_outcome(self, outcome: Outcome, **options: Unpack[WriteOptions]) -> Receipt:
        """Record the outcome of a metric; it settles claims only under the import right or from a person."""
        return await self.record(outcome, **options)

    async def record_debate(
        self,
        debate: Debate,
        *,
        turns: Sequence[Turn] = (),
        body: LongText | None = None,
        **options: Unpack[WriteOptions],
    ) -> Receipt:
        """Record a debate with all its *turns*; they replace those recorded before."""
        return await self.record(debate, body=body, turns=turns, **options)

    async def record_contradiction(self, contradiction: DataContradiction, **options: Unpack[WriteOptions]) -> Receipt:
        """
        Record that two sources give different values for the same thing; its priority is computed by a pipeline.

        Those between recorded data points are found by the worker.
        """
        return await self.record(contradiction, **options)

    async def record_data_point(self, point: DataPoint, **options: Unpack[WriteOptions]) -> Receipt:
        """
        Record what a document of a source states as the value of a metric.

        The worker compares it with what other documents state of the same; :meth:`value` says which value counts.
        """
        return await self.record(point, **options)

    async def record(
        self, model: Kind, *, body: LongText | None = None, turns: Sequence[Turn] = (), **options: Unpack[WriteOptions]
    ) -> Receipt:
        """
        Record a model of any kind that may be written from outside, with the groups that it holds.

        Args:
            body: long text, stored in Postgres; at most 64 kB of UTF-8.
            turns: of a debate.
        """
        return await self._write(partial(record_of, model, body=body, turns=turns), **options)

    async def record_groups(
        self, kind: type[Kind], key: str, groups: Mapping[str, Group], **options: Unpack[WriteOptions]
    ) -> Receipt:
        """
        Record property groups, by name, of the record *key*, which may itself be recorded later.

        Raises:
            BadInput: a pin that shall end, or a correction of a bias that is decided, is not recorded; with *known_at*
                it may be recorded later.
        """
        return await self._write(partial(groups_of, kind, key, groups), **options)

    async def link(
        self,
        type_: str,
        start: Node,
        end: Node,
        props: Mapping[str, Any] | BaseModel | None = None,
        **options: Unpack[WriteOptions],
    ) -> Receipt:
        """
        Link two nodes, given as models or as label and key; an end may be recorded later.

        Args:
            type_: the relationship's type, such as ``PERFORMED``.
            props: its properties.
        """
        return await self._write(partial(link_of, type_, start, end, props), **options)

    async def correct(self, model: Kind, reason: str, **options: Unpack[WriteOptions]) -> Receipt:
        """
        Replace the core of the record with the model's key, for *reason*; the old one stays in history.

        It takes the import right or a person. Fields that links or scores depend on cannot be corrected.
        """
        return await self._write(partial(correction_of, model, reason), **options)

    async def _write(
        self,
        *makers: Callable[..., Line],
        known_at: datetime | None = None,
        occurred_at: datetime | None = None,
        wait_visible: bool = False,
        deadline_ms: float = WRITE_BUDGET_MS,
    ) -> Receipt:
        """Commit a line of each maker, all or none, and return the first one's receipt; raise the first refusal."""
        lines = [maker(known_at=known_at, occurred_at=occurred_at) for maker in makers]
        deadline = self._write_due(deadline_ms, WRITE_BUDGET_MS)
        visible_by = Deadline.after_ms(self._stores.settings.visible_wait_ms) if wait_visible else None
        receipts = await record_all(
            self._stores.gateway,
            [prepare(line, tier=AWAITED if wait_visible else None) for line in lines],
            actor=self._actor,
            deadline=deadline,
            wait_visible=visible_by,
        )
        return receipts[0]
