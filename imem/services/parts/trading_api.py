"""The ledger of trades, and reflection notes: a part of ``Memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.services.trading.reflections import Reflections
    from imem.services.trading.trades import Trades


class TradingApi(ActorApi):
    """Records and shows what deployments trade, and what closed trades say; see :class:`imem.memory.Memory`."""

    @property
    def trades(self) -> Trades:
        """The ledger of trades, as in ``await memory.trades.recent(deployment="desk-1")``."""
        from imem.services.trading.trades import Trades  # noqa: PLC0415 - few programs trade

        return Trades(self._stores, self._actor)

    @property
    def reflections(self) -> Reflections:
        """Notes about closed trades, as in ``await memory.reflections.current("desk-1")``."""
        from imem.services.trading.reflections import Reflections  # noqa: PLC0415 - as above

        return Reflections(self._stores, self._actor)
