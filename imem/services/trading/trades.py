"""
Authorized access to the ledger of trades.

The actor that records a deployment's first tick owns it; an owner reads and writes its own deployments alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.arguments import check_int, checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, SettingsError
from imem.journal.settings import PREFIX
from imem.journal.texts.json_text import object_text
from imem.kg.asof import AsOfClock, parse_as_of
from imem.kg.similarity.sentence_models import Purpose
from imem.postmortem.trades.injection import MOST, RecentTrades, recent_trades
from imem.postmortem.trades.ledger import LedgerState, TickReceipt, TradeLedger
from imem.postmortem.trades.model import Bar, Position, TickDecision, TradeScope, checked_name
from imem.postmortem.trades.reconciliation import Fill, LedgerDifference, reconcile
from imem.postmortem.trades.situations import MOST as MOST_SITUATIONS
from imem.postmortem.trades.situations import Situation, context_summary, nearest_situations
from imem.recall.read_horizon import clamped_until
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores

RECORD_MS: Final = 2_000
"""Default budget of recording a tick, in milliseconds."""


@checks_arguments
class Trades(ActorApi):
    """
    The ledger of trades; see :attr:`imem.memory.Memory.trades`.

    **What every method may raise.**

    * :class:`~imem.journal.errors.PermissionDenied`: the deployment is another's; a denial row was written.
    * :class:`~imem.journal.errors.BadInput`: an argument is wrong; names it.
    * :class:`~imem.journal.errors.PostgresUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: no answer in
      time, or nothing was written; retry.
    """

    def __init__(self, stores: Stores, actor: Actor | None = None) -> None:
        super().__init__(stores, actor)
        self._ledger = TradeLedger(stores.database)

    async def record(
        self,
        decision: TickDecision,
        positions: Sequence[Position],
        bars: Mapping[str, Bar],
        *,
        at: datetime,
        fees: Mapping[str, Decimal] | None = None,
        deadline_ms: float | None = None,
    ) -> TickReceipt:
        """
        Put a tick into the ledger: what changed since the tick before, in one transaction.

        The deployment and *at* are the key: the same tick again writes nothing and returns what it changed the first
        time, so that a runner which was killed sends its last tick again.

        Args:
            decision: the deployment, its skill, and why it did what it did.
            positions: all that the broker holds after the tick, one a symbol.
            bars: prices since the tick before, by symbol, of each that is held or traded.
            at: the tick's moment, later than those of all before, and not more than a day in the future.
            fees: paid since the tick before, by symbol, in USD.
            deadline_ms: until it is durable, in milliseconds; 2,000 by default.

        Raises:
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        due = self._write_due(deadline_ms, RECORD_MS)
        await self._authorize_deployment(decision.deployment_id, Action.WRITE, due)
        return await self._ledger.record(self._actor, decision, positions, bars, fees=fees or {}, at=at, deadline=due)

    async def resume(self, deployment: str, *, deadline_ms: float | None = None) -> LedgerState:
        """
        Return where a deployment stands: its last tick and open trades; empty before its first tick.

        Args:
            deadline_ms: when the answer is due, 10 to 30,000 ms; ``deadline_ms`` of the settings by default.
        """
        due = await self._due(deadline_ms)
        await self._authorize_deployment(deployment, Action.READ, due)
        return await self._ledger.resume(deployment, deadline=due)

    async def recent(
        self,
        *,
        deployment: str | None = None,
        skill: str | None = None,
        skill_version: str | None = None,
        k: int = 10,
        include_open: bool = True,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> RecentTrades:
        """
        Return the newest trades of a deployment or of a skill, and their text for a prompt with its size in tokens.

        Args:
            deployment: of this one; either it or *skill*.
            skill: of the deployments of this skill that the actor may read.
            skill_version: of this version of the skill alone.
            k: most closed trades, 0 to 30.
            include_open: whether the open ones are shown as well, at most 30.
            as_of: the moment for which the answer holds, aware; now by default. Trades recorded
                later are left out, and a trade that was closed later is open.
            deadline_ms: as of :meth:`resume`.
        """
        _check_count("k", k, 0, MOST)
        due, still_open = await self._due(deadline_ms), MOST if include_open else 0
        scope = await self._scope(deployment, skill, skill_version, as_of, due)
        held = await self._ledger.recent(scope, closed=k, still_open=still_open, deadline=due)
        return recent_trades(held, scope.until)

    async def similar_situations(
        self,
        context: Mapping[str, Any],
        *,
        deployment: str | None = None,
        skill: str | None = None,
        skill_version: str | None = None,
        k: int = 5,
        as_of: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> list[Situation]:
        """
        Return past decisions whose contexts are most like *context*, most similar first, with what came of them.

        Compared are decisions with a snapshot that entered or left a position, of the newest 20,000 trades; one just
        recorded is found once the workers have made its vector, a minute later as a rule.

        Args:
            context: as in a decision's snapshot; compared is its ``summary`` where it has one, else its values by name,
                in the order of their names, as far as the encoder reads: about 250 words.
            deployment, skill, skill_version, as_of, deadline_ms: as of :meth:`recent`.
            k: most decisions, 1 to 50.

        Raises:
            SettingsError: ``IMEM_SITUATIONS_ENABLED`` is off, or the encoder's settings are wrong.
            StoreUnavailable, BudgetExceeded: the encoder is away or not loaded in time, which its first use takes a
                second or two for; retryable.
        """
        _check_count("k", k, 1, MOST_SITUATIONS)
        object_text(context, "context")
        if not self._stores.settings.situations_enabled:
            raise SettingsError(
                f"{PREFIX}SITUATIONS_ENABLED is off.", mend="Set it to true, for workers too; they make the vectors."
            )
        due = await self._due(deadline_ms)
        scope = await self._scope(deployment, skill, skill_version, as_of, due)
        encoder = self._stores.memories.encoder
        [vector] = await encoder.vectors([context_summary(context)], Purpose.PASSAGE, deadline=due)
        return await nearest_situations(self._stores.database, encoder.embedder, vector, scope, k, deadline=due)

    async def reconcile(
        self,
        deployment: str,
        fills: Sequence[Fill],
        *,
        since: datetime | None = None,
        deadline_ms: float | None = None,
    ) -> list[LedgerDifference]:
        """
        Return every difference between the ledger and the broker's fills, by tick and symbol; empty if they agree.

        Args:
            fills: all of the deployment that were executed after *since*.
            since: a tick; what came until then is not compared. From the first tick by default.
            deadline_ms: as of :meth:`resume`.
        """
        due = await self._due(deadline_ms)
        await self._authorize_deployment(deployment, Action.READ, due)
        ticks = await self._ledger.ticks(deployment, since, deadline=due)
        return reconcile(ticks, [fill for fill in fills if since is None or fill.at > since])

    async def _scope(
        self,
        deployment: str | None,
        skill: str | None,
        skill_version: str | None,
        as_of: datetime | None,
        deadline: Deadline,
    ) -> TradeScope:
        """Return what is asked about, authorized: of a skill, those who may not read all see their own alone."""
        if (deployment is None) == (skill is None):
            raise BadInput("deployment", "give either a deployment or a skill.")
        until, owner = parse_as_of(as_of, AsOfClock.KNOWN)[0], None
        if deployment is not None:
            if skill_version is not None:
                raise BadInput("skill_version", "belongs to a skill.")
            await self._authorize_deployment(deployment, Action.READ, deadline)
        else:
            everyone = Resource(ResourceType.TRADES, skill, None)
            owner = None if self._stores.gateway.may(everyone, Action.READ, actor=self._actor) else self._actor.id
            await self._authorize(Resource(ResourceType.TRADES, skill, self._actor.id), Action.READ, deadline)
        until = await clamped_until(self._stores.database, until, deadline=deadline)
        return TradeScope(deployment, skill, skill_version, owner, until)

    async def _authorize_deployment(self, deployment: str, action: Action, deadline: Deadline) -> None:
        """Authorize *action*; a deployment without ticks has no owner yet."""
        checked_name("deployment", deployment)
        owner = await self._ledger.owner_of(deployment, deadline=deadline)
        resource = Resource(ResourceType.TRADES, deployment, owner or self._actor.id)
        await self._authorize(resource, action, deadline)


def _check_count(name: str, count: int, least: int, most: int) -> None:
    """
    Check a number of rows that are asked for.

    Raises:
        BadInput: it is no whole number of that range; names *name*.
    """
    check_int(name, count)
    if not least <= count <= most:
        raise BadInput(name, f"must be a whole number from {least} to {most}.")
