"""Lessons: those that concern a subject, and, for people, those in every state and whether they worked."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import LessonState
from imem.recall import single_reads
from imem.recall.model import RecordsSection
from imem.recall.sections import lessons
from imem.services.arguments import one_of
from imem.services.facets.facet import Facet, ReadOptions
from imem.services.operations import declares_operations, reads

if TYPE_CHECKING:
    from imem.gates.learning.report import LearningReport
    from imem.postmortem.lessons.effect import LessonEffect
    from imem.postmortem.lessons.reading import ListedLesson


@declares_operations("lessons")
class LessonsFacet(Facet):
    """Lessons; see :attr:`imem.memory.Memory.lessons`."""

    @reads(ResourceType.GRAPH)
    async def about(self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]) -> RecordsSection:
        """
        Return the lessons that concern *subject*: those that a person approved, and advisory ones.

        An advisory lesson is in the state ``pending_gate6``: a person reviewed what it is learned from.
        """
        return await single_reads.part(self._recall, lessons.SECTION, subject, limit=limit, **await self._at(**asked))

    @reads(ResourceType.LESSONS)
    async def all(
        self, *, state: LessonState | str | None = None, deadline_ms: float | None = None
    ) -> list[ListedLesson]:
        """
        Return the lessons in *state*, or in any, the newest first; at most 200.

        Raises:
            BadInput: there is no such state.
        """
        from imem.postmortem.lessons.reading import lessons_listed  # noqa: PLC0415 - who asks for none needs none of it

        of = None if state is None else one_of(LessonState, "state", state)
        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.LESSONS, "all")
        return await self._allowed(resource, Action.READ, lambda: lessons_listed(database, of, deadline=due), due)

    @reads(ResourceType.LESSONS)
    async def effect(self, lesson_id: str, *, deadline_ms: float | None = None) -> LessonEffect:
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

    @reads(ResourceType.LESSONS)
    async def report(self, *, since: datetime | None = None, deadline_ms: float | None = None) -> LearningReport:
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
