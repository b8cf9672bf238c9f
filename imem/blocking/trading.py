"""The ledger of trades, and reflection notes, for programs without an event loop."""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.trading.reflections import Reflections
from imem.services.trading.trades import Trades


class SyncTrades(Twin[Trades]):
    """The ledger of trades; for its methods see :class:`~imem.services.trading.trades.Trades`."""

    record = blocking(Trades.record)
    resume = blocking(Trades.resume)
    recent = blocking(Trades.recent)
    similar_situations = blocking(Trades.similar_situations)
    reconcile = blocking(Trades.reconcile)


class SyncReflections(Twin[Reflections]):
    """The reflection notes that the actor may read; see :class:`~imem.services.trading.reflections.Reflections`."""

    current = blocking(Reflections.current)
    history = blocking(Reflections.history)
    prompt_section = blocking(Reflections.prompt_section)
    promote = blocking(Reflections.promote)
    configure = blocking(Reflections.configure)
