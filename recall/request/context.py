"""The arguments of one request, and the resources that all requests of a process share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from imem.cache.tiers.tiered import TieredCache
from imem.credibility.panels.pooling import Seasons
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.kg.asof import AsOf, AsOfClock
from imem.recall.read_horizon import ReadHorizon
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.timing.assembly import AssemblyTime
from imem.recall.timing.latency_watch import LatencyWatch

if TYPE_CHECKING:
    from imem.kg.engine import Graph

L3_SHARE: Final = 0.8
"""Share of the whole budget that a load from L3 may take."""

HORIZON_REFRESH_S: Final = 2.0
"""Age of the process's last read horizon, in seconds, from which a request served by the cache fetches a new one."""


@dataclass(slots=True)
class LastReadHorizon:
    """
    The newest read horizon that this process has fetched.

    Attributes:
        read_horizon: the horizon; a cached result that is valid now is complete up to it at least.
        noted_s: when it was fetched, or its next fetch began, on the monotonic clock.
    """

    read_horizon: ReadHorizon | None = None
    noted_s: float = float("-inf")

    def note(self, read_horizon: ReadHorizon) -> None:
        """Store *read_horizon* if it is newer than the one held."""
        if self.read_horizon is None or read_horizon.now > self.read_horizon.now:
            self.read_horizon, self.noted_s = read_horizon, time.monotonic()

    def due(self) -> bool:
        """Return whether the horizon should be fetched again; true for one caller per interval, who fetches it."""
        now_s = time.monotonic()
        due = now_s - self.noted_s > HORIZON_REFRESH_S
        if due:
            self.noted_s = now_s
        return due


@dataclass(frozen=True, slots=True)
class RecallDependencies:
    """
    The resources that requests of one process share.

    Attributes:
        gateway: authorizes and audits every read.
        graph_of: returns the Neo4j client; a search that needs no graph does not wait until its driver is imported.
        tiers: the tiered cache; None loads from L3 each time.
        halflife_years: age at which an observation weighs half.
        seasons: what ends a season of an agent's record.
        journal: the journal's id, part of every cache key.
        last_horizon: the newest read horizon fetched.
        watch: counts requests and timeouts.
        assembly: how long before the deadline sections are due.
        shows_signals: whether briefings on the subject of a key show the signals of the agent that asks.
    """

    gateway: Gateway
    graph_of: Callable[[], Graph]
    tiers: TieredCache | None = None
    halflife_years: float = 2.0
    seasons: Seasons = "gap"
    journal: str = ""
    last_horizon: LastReadHorizon = field(default_factory=LastReadHorizon)
    watch: LatencyWatch = field(default_factory=LatencyWatch)
    assembly: AssemblyTime = field(default_factory=AssemblyTime)
    shows_signals: Callable[[str], bool] = lambda _: True

    @property
    def graph(self) -> Graph:
        """The Neo4j client."""
        return self.graph_of()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """
    The arguments of one request about one subject.

    Attributes:
        sources: what requests of the process share.
        actor: who asks.
        subject_id: the subject.
        asked, on: the as-of asked for (None: now), and its clock.
        limits: most items of each sort.
        for_agent: the agent that asks, if known.
        deadline: when the answer is due.
        budget_ms: the whole budget, in milliseconds.
    """

    sources: RecallDependencies
    actor: Actor
    subject_id: str
    asked: datetime | None
    on: AsOfClock
    limits: Limits
    for_agent: str | None
    deadline: Deadline
    budget_ms: float

    @property
    def l3(self) -> Deadline:
        """Deadline of loads from L3."""
        return Deadline(self.deadline.at_s - self.budget_ms / 1000.0 * (1 - L3_SHARE))

    @property
    def of_now(self) -> bool:
        """Whether it asks for now, on the known clock; on the recorded one "now" is the safe horizon."""
        return self.asked is None and self.on is AsOfClock.KNOWN

    def retrieval_request(self, at: AsOf, due: Deadline) -> RetrievalRequest:
        """Return the arguments of a retriever."""
        of = self.sources
        return RetrievalRequest(
            self.subject_id, at, of.gateway.database, of.graph, due, self.limits, of.halflife_years, self.for_agent,
            of.seasons,
        )  # fmt: skip
