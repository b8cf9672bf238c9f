"""A migrated database of its own for each test, cloned from a template, and a way to state facts in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import pytest_asyncio

from imem.credibility.settling import SettlementResult, settle_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Receipt
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from tests.servers import as_curators, as_pipelines, asked, cloned

IMPORTER = Actor("import:test", Role.HUMAN_ADMIN, may_import=True)
HALFLIFE = 2.0


@dataclass
class World:
    """
    A journal to state facts in.

    Attributes:
        url, pipeline_url, admin_url: the database, as the application, as the pipelines and as its owner.
        database: as the application.
        curators, gateway: as the curators; the gateway is theirs.
        pipelines, engine: as the pipelines; the engine is their gateway.
    """

    url: str
    pipeline_url: str
    admin_url: str
    database: Database
    curators: Database
    gateway: Gateway
    pipelines: Database
    engine: Gateway

    async def say(self, *lines: dict[str, Any], actor: Actor = IMPORTER) -> list[Receipt]:
        entries = [entry_of(parse_line(orjson.dumps(line), needs_known_at=False)) for line in lines]
        receipts = await self.gateway.append(entries, actor=actor, deadline=Deadline.never())
        assert not any(receipt.verdict.refused for receipt in receipts), receipts
        return receipts

    async def settle(self) -> SettlementResult:
        return await settle_due(self.pipelines, self.engine, halflife_years=HALFLIFE, until=Deadline.never())

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=Deadline.never())

    async def written(self) -> Counter[str]:
        """Return how many events, audit rows, alerts and lifecycle rows there are, by kind."""
        found = await self.rows(
            "SELECT concat_ws(' ', actor, kind) AS what, count(*) AS n FROM event GROUP BY 1"
            " UNION ALL SELECT concat_ws(' ', actor_id, action, request_context ->> 'after'), count(*)"
            " FROM memory_access_audit GROUP BY 1"
            " UNION ALL SELECT concat_ws(' ', 'alert', kind, CASE WHEN closed_at IS NULL THEN 'open' END), count(*)"
            " FROM workflow.alert GROUP BY 1"
            " UNION ALL SELECT concat_ws(' ', kind, state, version), count(*) FROM lifecycle GROUP BY 1"
        )
        return Counter({row["what"]: row["n"] for row in found})

    async def released(self) -> bool:
        """Return whether no transaction of a pipeline is open: the server may be late to notice that one is dead."""
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL"
        return not await self.pipelines.rows(query, deadline=Deadline.never())

    def owner(self, query: str, *parameters: Any) -> None:
        """Change something behind the application's back."""
        asked(self.admin_url, query, parameters)


@pytest_asyncio.fixture
async def world(stack: Any, template: str) -> AsyncIterator[World]:
    with cloned(stack.settings, template) as (url, admin_url):
        async with opened(stack.settings, url, admin_url) as made:
            yield made


@asynccontextmanager
async def opened(settings: Settings, url: str, admin_url: str) -> AsyncIterator[World]:
    """Lend a world upon a database that is there."""
    pipeline_url = as_pipelines(settings, url)
    curators, pipelines = Database(as_curators(settings, url), size=4), Database(pipeline_url, size=4)
    gateways = Gateway(curators, IMPORTER), Gateway(pipelines, IMPORTER)
    async with AsyncExitStack() as stack:
        for one in (database := Database(url, size=4), curators, pipelines):
            stack.push_async_callback(one.close)
        yield World(url, pipeline_url, admin_url, database, curators, gateways[0], pipelines, gateways[1])


# Lines


def text(moment: datetime) -> str:
    return moment.isoformat()


def finding(key: str, known_at: datetime, target_at: datetime, **core: Any) -> dict[str, Any]:
    return {
        "record": "Finding",
        "known_at": text(known_at),
        "core": {
            "id": key,
            "analysis_id": f"{key}/analysis",
            "subject_id": "market:q",
            "agent": "ann",
            "domain": "flu",
            "statement": "It rises.",
            "metric": "up",
            "target_at": text(target_at),
            **core,
        },
    }


def outcome(key: str, known_at: datetime, target_at: datetime, actual: float, **core: Any) -> dict[str, Any]:
    return {
        "record": "Outcome",
        "known_at": text(known_at),
        "core": {
            "id": key,
            "subject_id": "market:q",
            "metric": "up",
            "target_at": text(target_at),
            "actual": actual,
            "observed_at": text(known_at),
            "vintage": 0,
            **core,
        },
    }


def corrected(line: dict[str, Any], known_at: datetime, **core: Any) -> dict[str, Any]:
    return {
        "correct": line["record"],
        "known_at": text(known_at),
        "core": {**line["core"], **core},
        "reason": "A slip.",
    }


def agent(name: str, known_at: datetime, kind: str) -> dict[str, Any]:
    profile = {"specialization": "flu", "kind": kind}
    return {"record": "Agent", "known_at": text(known_at), "core": {"name": name}, "groups": {"profile": profile}}


def market(key: str, known_at: datetime, **core: Any) -> dict[str, Any]:
    core = {"market_id": key, "question": f"Does {key} rise?", **core}
    return {"record": "Market", "known_at": text(known_at), "core": core}


def company(ticker: str, known_at: datetime, **profile: Any) -> dict[str, Any]:
    return {
        "record": "Company",
        "known_at": text(known_at),
        "core": {"ticker": ticker},
        "groups": {"profile": profile},
    }


def reading(
    key: str, known_at: datetime, regime: str, observed_at: datetime | None = None, **core: Any
) -> dict[str, Any]:
    core = {"id": key, "regime": regime, "stale": False, "source": "test", **core}
    return {
        "record": "RegimeReading",
        "known_at": text(known_at),
        "core": {**core, "observed_at": text(observed_at or known_at)},
    }


def decision(key: str, known_at: datetime, stance: str | None = "long", **core: Any) -> dict[str, Any]:
    return {
        "record": "Decision",
        "known_at": text(known_at),
        "core": {
            "id": key,
            "subject_id": "market:q",
            "type": "portfolio",
            "agents_involved": ["ann"],
            "decided_at": text(known_at),
            **({} if stance is None else {"stance": stance}),
            **core,
        },
    }


def cites(decision: str, key: str, known_at: datetime, rank: int = 1) -> dict[str, Any]:
    return {
        "link": "CITES",
        "known_at": text(known_at),
        "from": {"Decision": decision},
        "to": {"Finding": key},
        "props": {"at": text(known_at), "rank": rank},
    }
