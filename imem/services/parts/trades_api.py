"""The ledger of trades: a part of ``Memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.services.trading.trades import Trades


class TradesApi(ActorApi):
    """Records what deployments trade, and shows it; see :class:`imem.memory.Memory`."""

    @property
    def trades(self) -> Trades:
        """The ledger of trades, as in ``await memory.trades.recent(deployment="desk-1")``."""
        from imem.services.trading.trades import Trades  # noqa: PLC0415 - few programs trade

        return Trades(self._stores, self._actor)
