"""Lessons and the learning report, for people; patterns: proposals, plans of tests, statuses: a part of ``Memory``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.texts.spelling import says_nothing
from imem.kg.asof import AsOfClock, parse_as_of
from imem.kg.kinds.enums import LessonState, PatternStatus
from imem.recall.read_horizon import fetch_read_horizon
from imem.services.connections import Part
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.gates.learning.report import LearningReport
    from imem.patterns.mining import Mined
    from imem.patterns.planning import TestPlan
    from imem.patterns.reading import ListedPattern
    from imem.postmortem.lessons.effect import LessonEffect
    from imem.postmortem.lessons.reading import ListedLesson


MINE_MS: Final = 60_000.0
"""Default budget of a mining run, in milliseconds."""

ACT_MS: Final = 10_000.0
"""Default budget of a proposal, or of a request, in milliseconds."""


E = TypeVar("E", bound=StrEnum)


def _one_of(values: type[E], name: str, stated: str) -> E:
    """Return the value that the argument *name* states; BadInput if it is none."""
    try:
        return values(stated)
    except ValueError:
        raise BadInput(name, f"{stated!r:.60} is none of {', '.join(values)}.") from None


@checks_arguments
class LessonsApi(ActorApi):
    """Reads lessons in every state; proposes patterns, and reads them; see :class:`imem.memory.Memory`."""

    async def all_lessons(
        self, *, state: LessonState | str | None = None, deadline_ms: float | None = None
    ) -> list[ListedLesson]:
        """
        Return the lessons in *state*, or in any, the newest first; at most 200.

        Raises:
            BadInput: there is no such state.
        """
        from imem.postmortem.lessons.reading import lessons_listed  # noqa: PLC0415 - who asks for none needs none of it

        of = None if state is None else _one_of(LessonState, "state", state)
        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.LESSONS, "all")
        return await self._allowed(resource, Action.READ, lambda: lessons_listed(database, of, deadline=due), due)

    async def lesson_effect(self, lesson_id: str, *, deadline_ms: float | None = None) -> LessonEffect:
        """
        Return whether a lesson worked: the accuracy of its agents' decisions, in its scope and outside it.

        Without ten decisions in each of the four cells the verdict is ``insufficient``.

        Raises:
            BadInput: there is no such lesson.
        """
        from imem.postmortem.lessons.reading import lesson_effect  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.LESSONS, lesson_id)
        return await self._allowed(resource, Action.READ, lambda: lesson_effect(database, lesson_id, deadline=due), due)

    async def learning_report(
        self, *, since: datetime | None = None, deadline_ms: float | None = None
    ) -> LearningReport:
        """
        Return whether what is learned helps: decisions at Gate 6, use of the memory, lessons that worked, calibration.

        Args:
            since: of what happened from then on; aware.

        Raises:
            BadInput: *since* names no zone.
        """
        from imem.gates.learning.report import learning_report  # noqa: PLC0415 - as above

        if since is not None and since.utcoffset() is None:
            raise BadInput("since", "must name its zone; a time without one is ambiguous.")
        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.LESSONS, "report")
        return await self._allowed(resource, Action.READ, lambda: learning_report(database, since, deadline=due), due)

    async def plan_pattern_test(
        self, definition: Mapping[str, Any], *, as_of: datetime | None = None, deadline_ms: float | None = None
    ) -> TestPlan:
        """
        Return what a test of a pattern would have to go by, and when there can be a verdict; nothing is proposed.

        ::

            plan = await memory.plan_pattern_test({
                "name": "Crowds overshoot", "category": "financial", "metric": "resolves_yes", "reference": "manifold",
                "condition": [{"feature": "drift", "comparison": "at_least", "value": 0.2}], "claim": "lower",
                "mechanism": "News is overweighted.",
            })
            print(plan.test, plan.verdict_at, plan.missing)

        Outcomes of the parts that validate and test are not looked at.

        Args:
            definition: the fields of :class:`imem.patterns.definition.PatternDefinition`.
            as_of: of the cases known then; aware; now by default.

        Raises:
            BadInput: a field is wrong; named.
        """
        from imem.patterns.cases import cases  # noqa: PLC0415 - as above
        from imem.patterns.definition import definition_of  # noqa: PLC0415 - as above
        from imem.patterns.planning import plan  # noqa: PLC0415 - as above

        stated = definition_of(definition)
        asked, on = parse_as_of(as_of, "known")
        due = await self._due(deadline_ms)

        async def read() -> TestPlan:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on).at
            found = await cases(database, stated, until=at, deadline=due)
            return await asyncio.to_thread(plan, stated, found, at)

        return await self._allowed(Resource(ResourceType.PATTERNS, stated.key), Action.PROPOSE, read, due)

    async def mine_patterns(
        self,
        metric: str,
        reference: str,
        *,
        category: str,
        period: str = "month",
        propose: bool = False,
        deadline_ms: float | None = None,
    ) -> Mined:
        """
        Return the patterns that the training part of settled questions bears out; later parts are not looked at.

        Args:
            metric: of the questions.
            reference: the agent whose recorded forecasts are the best that existed.
            category: of the proposals; names the domain whose table judges them.
            period: what cases are compared within: ``week``, ``month`` or ``quarter``.
            propose: whether to propose all of them, as one mining run, whose tests are judged together.

        Raises:
            BadInput: a field is wrong; named.
        """
        from imem.patterns.cases import featured_cases  # noqa: PLC0415 - as above
        from imem.patterns.definition import Period  # noqa: PLC0415 - as above
        from imem.patterns.life import proposal, run_of  # noqa: PLC0415 - as above
        from imem.patterns.mining import mine  # noqa: PLC0415 - as above

        of = _one_of(Period, "period", period)
        due = self._write_due(deadline_ms, MINE_MS)
        gateway, database, actor = self._stores.gateway, self._stores.database, self._actor
        await self._stores.connections.wait(Part.POSTGRES)

        async def mined() -> Mined:
            at = (await fetch_read_horizon(database, AsOfClock.KNOWN, deadline=due)).resolve(None, AsOfClock.KNOWN).at
            found = await featured_cases(database, metric, reference, of, until=at, deadline=due)
            made = await asyncio.to_thread(
                mine, found, metric=metric, reference=reference, category=category, period=of
            )
            if propose and made.proposals:
                run = run_of(metric, reference, of, at)
                entries = [
                    proposal(one, actor.id, run=run, search_space_size=made.search_space) for one in made.proposals
                ]
                await gateway.append(entries, actor=actor, deadline=due)
            return made

        return await self._allowed(
            Resource(ResourceType.PATTERNS, f"{metric} by {reference}"), Action.PROPOSE, mined, due
        )

    async def propose_pattern(self, definition: Mapping[str, Any], *, deadline_ms: float | None = None) -> str:
        """
        Propose a pattern, and return its key, which follows from condition and claim.

        It is tested on data that it did not shape, and no agent sees it before a person approved it. A proposal that is
        repeated is the same one; of what others proposed, nothing is said.

        Args:
            definition: the fields of :class:`imem.patterns.definition.PatternDefinition`.

        Raises:
            BadInput: a field is wrong; named.
        """
        from imem.patterns.definition import definition_of  # noqa: PLC0415 - as above
        from imem.patterns.life import proposal  # noqa: PLC0415 - as above

        stated = definition_of(definition)
        due = self._write_due(deadline_ms, ACT_MS)
        gateway, actor = self._stores.gateway, self._actor

        async def append() -> str:
            await gateway.append([proposal(stated, actor.id)], actor=actor, deadline=due)
            return stated.key

        return await self._allowed(Resource(ResourceType.PATTERNS, stated.key), Action.PROPOSE, append, due)

    async def all_patterns(
        self, *, status: PatternStatus | str | None = None, deadline_ms: float | None = None
    ) -> list[ListedPattern]:
        """
        Return the patterns of *status*, or of any, refuted ones with their reasons, the newest first; at most 200.

        For people, and for those that validate patterns; agents read active ones by the briefing and by search.

        Raises:
            BadInput: there is no such status.
        """
        from imem.patterns.reading import patterns_listed  # noqa: PLC0415 - as above

        of = None if status is None else _one_of(PatternStatus, "status", status)
        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.PATTERNS, "all")
        read = partial(patterns_listed, database, of, None, deadline=due)
        return await self._allowed(resource, Action.VALIDATE, read, due)

    async def pattern_tests(self, pattern_id: str, *, deadline_ms: float | None = None) -> ListedPattern:
        """
        Return a pattern whatever its status, with what its tests said; for whom :meth:`all_patterns` is.

        Raises:
            BadInput: there is no such pattern.
        """
        from imem.patterns.reading import pattern_listed  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.PATTERNS, pattern_id)
        read = partial(pattern_listed, database, pattern_id, deadline=due)
        return await self._allowed(resource, Action.VALIDATE, read, due)

    async def set_pattern_status(
        self, pattern_id: str, status: PatternStatus | str, *, reason: str, deadline_ms: float | None = None
    ) -> None:
        """
        Withdraw a pattern (``rejected_human_override``), or deprecate or hold an active one (``probationary``).

        It has its effect within seconds; what is refused leaves a row in the audit. Approval is at Gate 6.

        Raises:
            BadInput: there is no such pattern or status, or *reason* is blank.
            TransitionRefused: the status does not follow from the present one, or not for this role.
        """
        from imem.patterns.life import ask_for_status  # noqa: PLC0415 - as above

        wanted = _one_of(PatternStatus, "status", status)
        if says_nothing(reason):
            raise BadInput("reason", "is required: say why.")
        due = self._write_due(deadline_ms, ACT_MS)
        gateway, database, actor = self._stores.gateway, self._stores.database, self._actor
        resource = Resource(ResourceType.PATTERNS, pattern_id)

        async def ask() -> None:
            try:
                await ask_for_status(database, pattern_id, wanted, by=actor, reason=reason, deadline=due)
            except TransitionRefused:
                await gateway.audit_denial(resource, Action.DEPRECATE, deadline=due, actor=actor)
                raise

        await self._allowed(resource, Action.DEPRECATE, ask, due)
