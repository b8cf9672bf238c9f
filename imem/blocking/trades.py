"""
The facet ``memory.trades``, without ``await``.

Written by `make reference` from the operations of ``Memory``; changed there alone.
"""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.trading.trades import Trades


class SyncTrades(Twin[Trades]):
    """The facet ``memory.trades``; see :class:`~imem.services.trading.trades.Trades`."""

    record = blocking(Trades.record)
    resume = blocking(Trades.resume)
    recent = blocking(Trades.recent)
    similar_situations = blocking(Trades.similar_situations)
    reconcile = blocking(Trades.reconcile)
