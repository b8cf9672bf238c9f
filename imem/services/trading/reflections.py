"""
Authorized access to reflection notes, and to what skills and deployments are reminded of.

Notes of a deployment are its owner's; those of a skill are open to every agent. Only a person promotes one to a skill,
and only roles that may write all configure a skill.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from imem.checkpoints.model import checked_uuid
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.texts.spelling import says_nothing
from imem.kg.asof import AsOfClock, parse_as_of
from imem.postmortem.reflection.config import AVOID_CHARS, MOST_AVOID, SkillMemoryConfig
from imem.postmortem.reflection.notes import ReflectionNote, ReflectionTable, note_section
from imem.postmortem.trades.ledger import TradeLedger
from imem.postmortem.trades.model import checked_name
from imem.recall.read_horizon import clamped_until
from imem.services.arguments import LEAST_BUDGET_MS
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores
from imem.services.trading.trades import Trades

WRITE_MS: Final = 2_000
"""Default budget of a write, in milliseconds."""


@checks_arguments
class Reflections(ActorApi):
    """
    The reflection notes that the actor may read; see :attr:`imem.memory.Memory.reflections`.

    **What every method may raise.**

    * :class:`~imem.journal.errors.PermissionDenied`: the actor may not; a denial row was written.
    * :class:`~imem.journal.errors.BadInput`: an argument is wrong; names it.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: no answer in
      time, or nothing was written; retry.
    """

    def __init__(self, stores: Stores, actor: Actor | None = None) -> None:
        super().__init__(stores, actor)
        self._table = ReflectionTable(stores.database)
        self._ledger = TradeLedger(stores.database)

    async def current(
        self,
        deployment: str | None = None,
        *,
        skill: str | None = None,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> ReflectionNote | None:
        """
        Return the active note of a deployment, else of its skill; None if there is none.

        Args:
            deployment: whose notes; None for those of the skill alone.
            skill: needed where no deployment is given, or it has not traded yet.
            as_of: the moment for which the answer holds, aware; now by default.
            deadline_ms: when the answer is due, 10 to 30,000 ms; ``deadline_ms`` of the settings by default.
        """
        due = await self._due(deadline_ms)
        until = await self._readable(deployment, skill, as_of, due)
        return (await self._table.skill_memory(deployment, skill, until, deadline=due)).note

    async def history(
        self, deployment: str, *, as_of: datetime | None = None, deadline_ms: float | None = None
    ) -> list[ReflectionNote]:
        """Return the notes of a deployment, newest first, at most 200; arguments as of :meth:`current`."""
        due = await self._due(deadline_ms)
        until = await self._readable(deployment, None, as_of, due)
        return await self._table.history(deployment, until, deadline=due)

    async def prompt_section(
        self,
        deployment: str | None = None,
        *,
        skill: str | None = None,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> str:
        """
        Return what a prompt shows of earlier trades, as configured: recent ones, open positions, and the active note.

        What others wrote is quoted. Empty if there is nothing to show, or the configuration is off. Arguments as of
        :meth:`current`.
        """
        due = await self._due(deadline_ms)
        until = await self._readable(deployment, skill, as_of, due)
        memory = await self._table.skill_memory(deployment, skill, until, deadline=due)
        if not memory.config.enabled:
            return ""
        recent = await Trades(self._stores, self._actor).recent(
            deployment=deployment,
            skill=skill if deployment is None else None,
            k=memory.config.recent_trades_k,
            include_open=memory.config.include_open_positions,
            as_of=until,
            deadline_ms=max(due.left_ms(), LEAST_BUDGET_MS),
        )
        note = note_section(memory.note) if memory.note is not None else ""
        return "\n".join(text for text in (recent.text, note) if text)

    async def promote(self, note_id: UUID | str, *, deadline_ms: float | None = None) -> UUID:
        """
        Make a deployment's note the active one of its skill, for all its deployments without one of their own.

        Takes a person. Promoting an active promotion again returns the same id.

        Args:
            note_id: of a deployment's note, active or not.
            deadline_ms: until it is durable, in milliseconds; 2,000 by default.

        Returns:
            the id of the skill's note, a copy.

        Raises:
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        known, due, actor = checked_uuid("note_id", note_id), self._write_due(deadline_ms, WRITE_MS), self._actor
        await self._authorize(Resource(ResourceType.REFLECTIONS, str(known), None), Action.APPROVE, due)
        promoted = await self._table.promote(actor.id, actor.role.value, known, deadline=due)
        if promoted is None:
            raise BadInput("note_id", f"no deployment has a note {known}.")
        return promoted

    async def configure(
        self,
        config: SkillMemoryConfig,
        *,
        deployment: str | None = None,
        skill: str | None = None,
        avoid: Sequence[str] = (),
        deadline_ms: float | None = None,
    ) -> None:
        """
        Set what a deployment is reminded of, or all of a skill that have no configuration of their own.

        Its owner configures a deployment, from its first tick on; a skill takes a role that may write all.

        Args:
            deployment, skill: which; one of both.
            avoid: what the strategy forbids, at most 50 rules of 300 characters. Those of the skill count for its
                deployments as well.
            deadline_ms: until it is durable, in milliseconds; 2,000 by default.

        Raises:
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        if (deployment is None) == (skill is None):
            raise BadInput("deployment", "give either a deployment or a skill.")
        for rule in avoid:
            if says_nothing(rule) or len(rule) > AVOID_CHARS or not rule.isprintable():
                raise BadInput("avoid", f"must be texts of 1 to {AVOID_CHARS} printable characters.")
        if len(avoid) > MOST_AVOID:
            raise BadInput("avoid", f"must be at most {MOST_AVOID} rules.")
        due = self._write_due(deadline_ms, WRITE_MS)
        named = checked_name("deployment" if deployment is not None else "skill", deployment or skill)
        owner = await self._ledger.owner_of(deployment, deadline=due) if deployment is not None else None
        await self._authorize(Resource(ResourceType.REFLECTIONS, named, owner), Action.WRITE, due)
        await self._table.configure(self._actor.id, deployment, skill, config, avoid, deadline=due)

    async def _readable(
        self, deployment: str | None, skill: str | None, as_of: datetime | None, deadline: Deadline
    ) -> datetime | None:
        """Authorize a read, and return the moment until which it reads; None for now."""
        if deployment is None and skill is None:
            raise BadInput("deployment", "name a deployment or a skill.")
        until = parse_as_of(as_of, AsOfClock.KNOWN)[0]
        owner = None
        if deployment is not None:
            checked_name("deployment", deployment)
            owner = await self._ledger.owner_of(deployment, deadline=deadline)
        if skill is not None:
            checked_name("skill", skill)
        # A deployment without ticks has no owner yet.
        resource = Resource(ResourceType.REFLECTIONS, deployment or skill, owner or self._actor.id)
        await self._authorize(resource, Action.READ, deadline)
        return await clamped_until(self._stores.database, until, deadline=deadline)
