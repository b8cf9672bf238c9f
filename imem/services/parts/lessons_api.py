"""Lessons and the learning report, for people, and plans of tests of patterns: a part of ``Memory``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput
from imem.kg.asof import parse_as_of
from imem.kg.kinds.enums import LessonState
from imem.recall.read_horizon import fetch_read_horizon
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.gates.learning.report import LearningReport
    from imem.patterns.planning import TestPlan
    from imem.postmortem.lessons.effect import LessonEffect
    from imem.postmortem.lessons.reading import ListedLesson


@checks_arguments
class LessonsApi(ActorApi):
    """Reads lessons in every state, and plans tests of patterns; see :class:`imem.memory.Memory`."""

    async def all_lessons(
        self, *, state: LessonState | str | None = None, deadline_ms: float | None = None
    ) -> list[ListedLesson]:
        """
        Return the lessons in *state*, or in any, the newest first; at most 200.

        Raises:
            BadInput: there is no such state.
        """
        from imem.postmortem.lessons.reading import lessons_listed  # noqa: PLC0415 - who asks for none needs none of it

        if state is not None and state not in set(LessonState):
            raise BadInput("state", f"{state!r:.60} is none of {', '.join(LessonState)}.")
        of = None if state is None else LessonState(state)
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
