"""
Raises alerts before a Valkey without eviction is full and refuses writes.

A server has at most one open alert a level, closed when its use has fallen clearly below. A server that does not answer
is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import Gauge
from redis.exceptions import RedisError

from imem.alerts.store import NewAlert, Severity, close_alerts, is_open, raise_once
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of, new_id
from imem.journal.notifications.wakeups import valkey_client
from imem.journal.postgres.database import Database
from imem.journal.valkey_memory import FULL, HIGH, MemoryUse

log = structlog.get_logger()

SHARE: Final = Gauge(
    "valkey_memory_share", "Used memory of a Valkey ÷ its limit.", ("store",), multiprocess_mode="mostrecent"
)

HYSTERESIS: Final = 0.05
"""How far below its level a share must fall before the alert is closed; avoids repeated alerts at the edge."""

RESPONSE_TIMEOUT_S: Final = 1.0
"""Timeout of one server, in seconds."""


@dataclass(frozen=True, slots=True)
class MemoryThreshold:
    """A share of the limit, and the alert raised from there on."""

    share: float
    kind: str
    severity: Severity
    says: str


THRESHOLDS: Final = (
    MemoryThreshold(
        HIGH, "VALKEY_MEMORY_HIGH", Severity.HIGH, "Clear what is no longer needed, or raise its maxmemory."
    ),
    MemoryThreshold(
        FULL, "VALKEY_MEMORY_FULL", Severity.CRITICAL, "It refuses writes: clear something, or raise its maxmemory."
    ),
)


async def memory_of(url: str, *, timeout_s: float = RESPONSE_TIMEOUT_S) -> MemoryUse:
    """
    Return the memory use of the server at *url*.

    Raises:
        RedisError, OSError: it does not answer.
    """
    async with valkey_client(url, timeout_s, connect_s=timeout_s) as client:
        return MemoryUse.of(await client.info("memory"))


async def watch_memory(database: Database, urls: Mapping[str, str], *, deadline: Deadline) -> dict[str, float]:
    """
    Raise and close the alerts about the memory of the servers at *urls*, by role; return the shares.

    Raises:
        PostgresUnavailable, BudgetExceeded: alerts were not updated; the next round does.
    """
    shares: dict[str, float] = {}
    for store, url in urls.items():
        try:
            use = await memory_of(url)
        except (RedisError, OSError, TimeoutError) as error:
            log.info("valkey_memory.unknown", store=store, reason=type(error).__name__)
            continue
        shares[store] = use.share
        SHARE.labels(store=store).set(use.share)
        if not use.evicts:
            await _update_alerts(database, store, use, deadline)
    return shares


async def _update_alerts(database: Database, store: str, use: MemoryUse, deadline: Deadline) -> None:
    for level in THRESHOLDS:
        about = id_of("valkey memory", store, level.kind)
        if level.share - HYSTERESIS <= use.share < level.share:
            continue
        async with database.transaction(deadline) as conn:
            if use.share >= level.share:
                reason = f"The {store} Valkey holds {use}. {level.says}"
                payload = {"store": store, "share": round(use.share, 3), "reason": reason}
                alert = NewAlert(
                    alert_id=new_id(), kind=level.kind, severity=level.severity, about=about, payload=payload
                )
                if await raise_once(conn, alert):
                    log.warning("valkey_memory.high", store=store, share=round(use.share, 3))
            elif await is_open(conn, level.kind, about):
                await close_alerts(conn, about)
