"""Debates that run, and precedents; a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import LongText, checks_arguments
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import DebatePriority
from imem.recall.brief import Recall
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.debates.precedents.model import Precedents
    from imem.debates.service import DebateProgress, Debates
    from imem.journal.deadline import Deadline

D = TypeVar("D")

ACT_MS: Final = 5_000
"""Default budget of an act, in milliseconds."""


@checks_arguments
class DebatesApi(ActorApi):
    """
    Debates, and their precedents; see :class:`imem.memory.Memory`. The class that has this part sets ``_recall``.

    A side acts under its own name; it needs no session. An act is durable when the call returns, and has its effect
    within seconds. All acts raise :class:`~imem.journal.errors.UnknownDebate` without such a debate,
    :class:`~imem.journal.errors.PermissionDenied` where the act is for another side, and
    :class:`~imem.journal.errors.TransitionRefused` where the debate is past it; nothing is written then.
    """

    _recall: Recall

    async def find_precedents(
        self,
        debate_or_topic: str,
        *,
        as_of: datetime | None = None,
        k: int = 5,
        deadline_ms: float | None = None,
    ) -> Precedents:
        """
        Return earlier debates that are comparable with a debate, and what they say about it, within the budget.

        Candidates are found by the words and the meaning of their text; only debates that were closed before the debate
        was opened count. They are ordered by text, same subject, same pair of agents and same domain, by weights that
        settings name; of equal ones the newest comes first. Beside them stand active patterns with their success
        rates, the track records of both sides, and whether these may decide at level 2.

        ::

            found = await memory.find_precedents("debate-17")
            for one in found.items:
                print(one.opened_at, one.topic, one.winner, one.accuracy)

        A debate does not wait for its precedents: what does not answer in time is named in ``reason``, and without a
        search the answer is not ``available`` and says "precedents unavailable".

        Args:
            debate_or_topic: the id of a recorded debate; any other text is a topic, which has no subject and no agents.
            as_of: the moment for which the answer holds, on the known clock; of a debate at the latest the moment
                before it was opened.
            k: most precedents, 1 to 50.

        Raises:
            BadInput: an argument is wrong.
            PermissionDenied: the actor's role may not read the graph.
        """
        from imem.services.precedents import find_precedents  # noqa: PLC0415 - statistics take long to import

        due = await self._due(deadline_ms)
        return await find_precedents(self._stores, self._recall, debate_or_topic, k=k, as_of=as_of, deadline=due)

    # Acts

    async def challenge(
        self,
        finding_id: str,
        basis: LongText,
        *,
        value: float | str | None = None,
        evidence: Sequence[str] = (),
        required: Sequence[str] = (),
        priority: str = DebatePriority.SUPPORTING.value,
        judge: str | None = None,
        topic: str | None = None,
        metric: str | None = None,
        deadline_ms: float | None = None,
    ) -> DebateProgress:
        """
        Challenge a finding of another agent, and return the debate that this opens; a repeat returns it as it is.

        ::

            debate = await memory.challenge("mu-margin", "The contracts are prepaid.", value=0.41, evidence=["mu-10k"])

        Args:
            basis: why; the first turn of the debate.
            value: what the challenger holds the value of the metric to be, in its unit; of the metric ``rating`` one
                of its names. The more cautious of two positions counts while nobody has decided.
            evidence: ids of findings that the challenger rests on.
            required: what the other side is asked to show.
            priority: ``critical_path``, ``valuation`` or ``supporting``.
            judge: an agent or a person who decides at level 2 where records do not; not on the critical path.
            topic: by default the beginning of the finding's statement.
            metric: what the positions are values of; by default the finding's.

        Raises:
            BadInput: there is no such finding, it is the actor's own or was challenged by the actor before, or an
                argument is wrong; names it.
        """
        if priority not in list(DebatePriority):
            raise BadInput("priority", f"is one of {', '.join(DebatePriority)}.")
        due = self._write_due(deadline_ms, ACT_MS)
        return await self._of_debate(
            Action.APPEND,
            finding_id,
            lambda debates: debates.challenge(
                finding_id, basis=basis, value=value, evidence=evidence, required=required,
                priority=DebatePriority(priority), judge=judge, topic=topic, metric=metric, by=self._actor,
                deadline=due,
            ),
            due,
        )  # fmt: skip

    async def acknowledge(self, debate_id: str, *, deadline_ms: float | None = None) -> DebateProgress:
        """Acknowledge a challenge of one's finding: the sides have until the end of level 1 to agree."""
        return await self._act(debate_id, "acknowledge", deadline_ms)

    async def respond(
        self,
        debate_id: str,
        text: LongText,
        *,
        value: float | str | None = None,
        evidence: Sequence[str] = (),
        deadline_ms: float | None = None,
    ) -> DebateProgress:
        """
        Say something in a debate, as a turn of one's own; of the challenged side it acknowledges the challenge.

        Args:
            value: the side's position from now on.
            evidence: ids of findings that it rests on.
        """
        return await self._act(debate_id, "respond", deadline_ms, text=text, value=value, evidence=evidence)

    async def accept(
        self, debate_id: str, text: LongText | None = None, *, deadline_ms: float | None = None
    ) -> DebateProgress:
        """Accept the position of the other side, which ends the debate."""
        return await self._act(debate_id, "accept", deadline_ms, text=text)

    async def stand(
        self, debate_id: str, text: LongText | None = None, *, deadline_ms: float | None = None
    ) -> DebateProgress:
        """Say that one has nothing to add; when both sides have said so, level 1 ends at once."""
        return await self._act(debate_id, "stand", deadline_ms, text=text)

    async def withdraw(
        self, debate_id: str, text: LongText | None = None, *, deadline_ms: float | None = None
    ) -> DebateProgress:
        """Take one's challenge back, which ends the debate."""
        return await self._act(debate_id, "withdraw", deadline_ms, text=text)

    async def judge(
        self, debate_id: str, winner: str, text: LongText, *, deadline_ms: float | None = None
    ) -> DebateProgress:
        """
        Decide a debate as the judge that it names, at level 2.

        Args:
            winner: the side whose position counts.
            text: why.
        """
        return await self._act(debate_id, "judge", deadline_ms, text=text, winner=winner)

    # Reads

    async def debate_progress(self, debate_id: str, *, deadline_ms: float | None = None) -> DebateProgress:
        """
        Return where a debate stands that a challenge opened; :meth:`debate` returns its turns.

        Raises:
            UnknownDebate: there is no such debate.
        """
        due = await self._due(deadline_ms)
        return await self._of_debate(Action.READ, debate_id, lambda debates: debates.read(debate_id, deadline=due), due)

    async def running_debates(
        self,
        *,
        agent: str | None = None,
        analysis_id: str | None = None,
        limit: int = 200,
        deadline_ms: float | None = None,
    ) -> list[DebateProgress]:
        """
        Return the debates that have not ended, those whose time is over first at the top.

        Args:
            agent: with this side or judge alone.
            analysis_id: about findings of this analysis alone.
            limit: how many at most, 1 to 200.
        """
        if not 1 <= limit <= 200:
            raise BadInput("limit", "must be a whole number from 1 to 200.")
        due = await self._due(deadline_ms)
        return await self._of_debate(
            Action.READ,
            None,
            lambda debates: debates.running(agent=agent, analysis_id=analysis_id, limit=limit, deadline=due),
            due,
        )

    async def _act(
        self,
        debate_id: str,
        act: str,
        deadline_ms: float | None,
        *,
        text: str | None = None,
        value: float | str | None = None,
        evidence: Sequence[str] = (),
        winner: str | None = None,
    ) -> DebateProgress:
        from imem.debates.states import Act  # noqa: PLC0415 - who only reads needs none of it

        due = self._write_due(deadline_ms, ACT_MS)
        return await self._of_debate(
            Action.APPEND,
            debate_id,
            lambda debates: debates.act(
                debate_id,
                Act(act),
                text=text,
                value=value,
                evidence=evidence,
                winner=winner,
                by=self._actor,
                deadline=due,
            ),
            due,
        )

    async def _of_debate(
        self, action: Action, which: str | None, do: Callable[[Debates], Awaitable[D]], due: Deadline
    ) -> D:
        from imem.debates.service import DebateLimits, Debates  # noqa: PLC0415 - who takes part in no debate needs none of it

        debates = Debates(self._stores.gateway, DebateLimits.of_settings(self._stores.settings))
        if action is Action.READ:
            resource = Resource(ResourceType.GRAPH, which)
        else:
            resource = Resource(ResourceType.JOURNAL, which, self._actor.id)
        return await self._allowed(resource, action, lambda: do(debates), due)
