"""Review tasks and the roster: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.credibility.disputes.rules import StandingRule
    from imem.review.admission import Reviewer
    from imem.review.kinds import Task

ANSWER_MS: Final = 5_000
"""Default budget of an answer, in milliseconds."""


@checks_arguments
class ReviewApi(ActorApi):
    """
    Questions to people, and their answers; see :class:`imem.memory.Memory`.

    Reading and answering take the role of a reviewer or an admin; who is no admin answers the kinds that the roster
    names. All raise :class:`~imem.journal.errors.PermissionDenied` if the actor may not, with one denial row written.
    """

    async def tasks(
        self,
        *,
        kind: str | None = None,
        reviewer: str | None = None,
        analysis_id: str | None = None,
        limit: int = 200,
        deadline_ms: float | None = None,
    ) -> list[Task[Any]]:
        """
        Return the tasks that can be answered: open ones first, then defaults that nobody has reviewed.

        Of each the most urgent come first, then those due first.

        Args:
            kind, reviewer, analysis_id: of these alone.
            limit: how many at most.

        Raises:
            BadInput: there is no such kind.
        """
        from imem.review import inbox  # noqa: PLC0415 - who answers no tasks needs none of it
        from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.REVIEWS),
            Action.READ,
            lambda: inbox.list_tasks(
                self._stores.database, TASK_KINDS, kind=kind, reviewer=reviewer, analysis_id=analysis_id, limit=limit,
                deadline=due,
            ),
            due,
        )  # fmt: skip

    async def task(self, task_id: str, *, deadline_ms: float | None = None) -> Task[Any]:
        """
        Return a task whole; the minutes of its answer are measured from the first time.

        Raises:
            BadInput: there is no such task.
        """
        from imem.review import inbox  # noqa: PLC0415 - as above
        from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.REVIEWS, task_id),
            Action.READ,
            lambda: inbox.read_task(self._stores.database, TASK_KINDS, task_id, shown=True, deadline=due),
            due,
        )

    async def answer(
        self,
        task_id: str,
        action: str,
        *,
        fields: Mapping[str, Any] | None = None,
        rationale: str | None = None,
        all_alike: bool = False,
        deadline_ms: float | None = None,
    ) -> list[Task[Any]]:
        """
        Answer a task, and return it as it is with the answer; its effect follows within seconds.

        The same answer again changes nothing. After the default has applied, the answer confirms or overrides it.

        Args:
            action: one of the kind's.
            fields: what the action states, such as ``{"document": "a"}``.
            rationale: why; required to override a default.
            all_alike: answer every other task of its kind that is like it in the same way; not with a stated value.

        Raises:
            BadInput: there is no such task or action, a field is wrong, or the action answers one task alone; names
                the field.
            TransitionRefused: it was answered otherwise or withdrawn, or a human gate has closed its window.
        """
        from imem.review import inbox  # noqa: PLC0415 - as above
        from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

        due = self._write_due(deadline_ms, ANSWER_MS)

        async def answer() -> list[Task[Any]]:
            database, by = self._stores.database, self._actor
            ids = [task_id]
            if all_alike:
                first = await inbox.read_task(database, TASK_KINDS, task_id, deadline=due)
                chosen = TASK_KINDS[first.kind].actions.get(action)
                if chosen is not None and chosen.alone:
                    raise BadInput("all_alike", f"{action} answers one task alone: what it states is right there.")
                ids += await inbox.tasks_alike(database, TASK_KINDS, task_id, action, deadline=due)
            return [
                await inbox.answer_task(
                    database, TASK_KINDS, one, action, fields=fields, rationale=rationale, by=by, deadline=due
                )
                for one in ids
            ]

        return await self._allowed(Resource(ResourceType.REVIEWS, task_id), Action.ANSWER, answer, due)

    async def delegate(self, task_id: str, to: str, *, reason: str, deadline_ms: float | None = None) -> Task[Any]:
        """
        Hand an open task over to another reviewer; its time goes on.

        Raises:
            BadInput: there is no such task, or *to* is not on the roster for its kind.
            TransitionRefused: the task is not open any more, or *to* is away or has as many tasks as the capacity
                allows.
        """
        from imem.review import inbox  # noqa: PLC0415 - as above
        from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

        due = self._write_due(deadline_ms, ANSWER_MS)
        return await self._allowed(
            Resource(ResourceType.REVIEWS, task_id),
            Action.ANSWER,
            lambda: inbox.delegate_task(
                self._stores.database, TASK_KINDS, task_id, to, reason=reason, by=self._actor, deadline=due
            ),
            due,
        )

    async def standing_rules(self, *, deadline_ms: float | None = None) -> list[StandingRule]:
        """
        Return what people answered for all later contradictions of a kind: rules in force first, the newest first.

        ``answer(task_id, "choose", fields={"document": "a", "always": True})`` makes a rule.
        """
        from imem.credibility.disputes.rules import read_rules  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.REVIEWS, "rules"),
            Action.READ,
            lambda: read_rules(self._stores.database, deadline=due),
            due,
        )

    async def revoke_rule(self, rule_id: str, *, reason: str, deadline_ms: float | None = None) -> StandingRule:
        """
        Revoke a standing rule from now on, and return it; what it has settled stays settled.

        Raises:
            BadInput: no rule of that id is in force, or *reason* is empty.
        """
        from imem.credibility.disputes.arbitration import KIND  # noqa: PLC0415 - as above
        from imem.credibility.disputes.rules import revoke_rule  # noqa: PLC0415 - as above
        from imem.review import inbox  # noqa: PLC0415 - as above

        due = self._write_due(deadline_ms, ANSWER_MS)

        async def revoke() -> StandingRule:
            database, by = self._stores.database, self._actor
            await inbox.check_reviewer(database, KIND, by, due)
            return await revoke_rule(database, rule_id, reason, by=by, deadline=due)

        return await self._allowed(Resource(ResourceType.REVIEWS, rule_id), Action.ANSWER, revoke, due)

    async def roster(self, *, deadline_ms: float | None = None) -> list[Reviewer]:
        """Return the reviewers, by name."""
        from imem.review import inbox  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.REVIEWS, "roster"),
            Action.READ,
            lambda: inbox.read_roster(self._stores.database, deadline=due),
            due,
        )

    async def set_reviewer(
        self,
        person: str,
        *,
        kinds: Sequence[str] = (),
        capacity: int = 3,
        away_until: datetime | None = None,
        deputy: str | None = None,
        removed: bool = False,
        deadline_ms: float | None = None,
    ) -> None:
        """
        Put a person on the roster, or change the entry, which is written whole. Requires an admin.

        Args:
            kinds: kinds of tasks that the person answers; all by default.
            capacity: tasks at a time, 1 to 100.
            away_until: until when the person is away, aware.
            deputy: who on the roster gets tasks meanwhile.
            removed: take the person off the roster.

        Raises:
            BadInput: something is wrong; names it.
        """
        from imem.review import inbox  # noqa: PLC0415 - as above
        from imem.review.admission import Reviewer  # noqa: PLC0415 - as above
        from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

        due = self._write_due(deadline_ms, ANSWER_MS)
        entry = Reviewer(person=person, kinds=tuple(kinds), capacity=capacity, away_until=away_until, deputy=deputy)
        await self._allowed(
            Resource(ResourceType.REVIEWS, "roster"),
            Action.WRITE,
            lambda: inbox.set_reviewer(
                self._stores.database, TASK_KINDS, entry, removed=removed, by=self._actor, deadline=due
            ),
            due,
        )
