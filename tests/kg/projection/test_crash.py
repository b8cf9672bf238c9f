"""An applier killed between any two steps, again and again, leaves what an undisturbed one leaves."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from imem.credibility.settled_links import SettledBy
from imem.credibility.settling import settle_due
from imem.journal.gateway import Gateway
from imem.kg.projection.hash import GraphHash, graph_hash
from tests.kg.draining import drain
from tests.kg.projection.conftest import CHAOS
from tests.kg.projection.histories import CORES, DAYS
from tests.kg.projection.world import NEVER, Journal, Line, World, importer
from tests.killed_programs import KilledProgram, killed_program

BATCH = 5
MAX_FALLBACKS = 30
"""Within so many steps a run of the long test ends: more than one batch has."""
TO_THE_END = f"apply any {10**9}"
STRIDE = 1 if CHAOS else 5


def round_of(number: int) -> list[Line]:
    """
    Return a dozen events of every sort: nodes with what they imply, groups that change, links, corrections.

    Of the links one replaces that of the round before, another is stated again with other properties. The claim comes
    true, so that scores and their links are derived.
    """
    of, day = f"{number}", datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=number)
    due = day.isoformat()
    ends = {"from": {"Debate": "b0"}, "to": {"Agent": f"agent{of}"}}
    profile = {"specialization": of, "kind": "model"}
    cites = {"from": {"Decision": f"d{of}"}, "to": {"Finding": f"f{of}"}}
    analysis = {"id": f"a{of}", "subject_id": "company:MU", "date": DAYS[0], "kind": "research"}
    finding = {
        "id": f"f{of}", "analysis_id": f"a{of}", "subject_id": "company:MU", "agent": f"agent{of}", "domain": "d",
        "statement": "it rises", "metric": "up", "probability": 0.8, "target_at": due,
    }  # fmt: skip
    decision = {"id": f"d{of}", "analysis_id": f"a{of}", "subject_id": "company:MU", "type": "trade"}
    outcome = {
        "id": f"o{of}", "subject_id": "company:MU", "metric": "up", "target_at": due, "observed_at": due,
        "actual": 1.0, "vintage": 0,
    }  # fmt: skip
    return [
        {"record": "Company", "core": {"ticker": "MU"}, "groups": {"profile": {"name": f"Micron {of}"}}},
        {"record": "Agent", "core": {"name": f"agent{of}"}, "groups": {"profile": profile}},
        {"record": "Analysis", "core": analysis},
        {"record": "Finding", "core": finding},
        {"record": "Decision", "core": {**decision, "agents_involved": [f"agent{of}"], "decided_at": DAYS[2]}},
        {"record": "Debate", **({"core": CORES["Debate", "b1"] | {"id": "b0"}} if number == 0 else {"key": "b0"}),
         "groups": {"state": {"state": "level1", "snapshot_id": of, "provisional": True}}},
        {"link": "RESOLVED_BY", **ends, "props": {}},
        {"link": "CITES", **cites, "props": {"at": DAYS[2], "rank": 1}},
        {"link": "CITES", **cites, "props": {"at": DAYS[2], "rank": 2}},
        {"link": "PERFORMED", "from": {"Agent": f"agent{of}"}, "to": {"Analysis": f"a{of}"}, "props": {"role": "lead"}},
        {"correct": "Analysis", "core": {**analysis, "summary": f"Read again {of}."}, "reason": "It was misread."},
        {"record": "Outcome", "core": outcome, "known_at": (day + timedelta(days=1)).isoformat()},
    ]  # fmt: skip


@dataclass
class Due:
    """
    What is due of a journal, in the order in which it came, so that it can be made due again.

    Attributes:
        undisturbed: the hash of the graph that an applier leaves that nobody kills.
        derived: keys of derived values, by sort.
    """

    undisturbed: GraphHash
    derived: list[tuple[str, str]]

    @classmethod
    async def stated(cls, world: World, journal: Journal, rounds: int) -> Due:
        """State so many rounds, score what came true, and have all of it applied in peace."""
        for number in range(rounds):
            at = DAYS[number % 5]
            await journal.say(*({"known_at": at, **line} for line in round_of(number)))
        await settle_due(journal.database, Gateway(journal.database, importer()), halflife_years=2.0, until=NEVER)
        found = await journal.rows("SELECT DISTINCT kind, key FROM due_row WHERE queue = 'graph'")
        derived = [(row["kind"], row["key"]) for row in found]
        assert derived
        applier = world.applier(journal, derivers={"settled_by": SettledBy()})
        await drain(applier)
        await applier.stop()
        assert await journal.rows("SELECT FROM due_row WHERE queue = 'graph'") == []
        due = cls(await graph_hash(world.graph), derived)
        (row,) = await world.run("MATCH ()-[s:SETTLED_BY]->() RETURN count(s) AS links")
        assert row["links"] == rounds
        await due.again(world, journal)
        return due

    async def again(self, world: World, journal: Journal) -> None:
        """Have it applied anew."""
        await world.wipe()
        journal.owner("UPDATE delivery SET state = 'pending'")
        journal.owner("DELETE FROM due_row WHERE queue = 'graph'")
        for kind, key in self.derived:
            journal.owner("INSERT INTO due_row (queue, kind, key) VALUES ('graph', %s, %s)", kind, key)
        let_go(journal)


def killed(world: World, journal: Journal, batch: int = BATCH) -> AbstractAsyncContextManager[KilledProgram]:
    found = world.settings
    assert found.neo4j_password is not None
    where = {
        "graph": [found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value()],
        "postgres": journal.pipeline_url,
        "batch": batch,
    }
    return killed_program("tests.kg.killed", where)


def let_go(journal: Journal) -> None:
    """Let the time pass that a dead applier keeps its lease."""
    journal.owner("UPDATE lease SET expires_at = now() - interval '1 second'")


async def whole(world: World) -> bool:
    """Whether nothing in the graph is of an event that is not applied there as a whole."""
    (row,) = await world.run(
        "MATCH (e:AppliedEvent) WITH collect(e.position) AS applied "
        "CALL () { MATCH (n) WHERE NOT n:AppliedEvent UNWIND keys(n) AS name "
        "  WITH n, name WHERE name = 'position' OR name ENDS WITH '_position' RETURN n[name] AS position "
        "  UNION MATCH ()-[r]->() WHERE r.position IS NOT NULL RETURN r.position AS position } "
        "RETURN count(position) AS marks, sum(CASE WHEN position IN applied THEN 0 ELSE 1 END) AS strange"
    )
    return int(row["strange"]) == 0


async def _killed(world: World, journal: Journal, kills: int) -> None:
    rng = random.Random(kills)
    due = await Due.stated(world, journal, rounds=kills // 3)
    ends = []
    async with killed(world, journal) as program:
        for _ in range(kills):
            ends.append(await program.ended(f"apply any {rng.randint(1, MAX_FALLBACKS)}"))
            let_go(journal)
            assert await whole(world)
        while await program.ended(TO_THE_END):
            let_go(journal)
    assert ends.count(-9) >= 0.9 * kills
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]
    assert await journal.rows("SELECT FROM due_row WHERE queue = 'graph'") == []
    assert await graph_hash(world.graph) == due.undisturbed


@pytest.mark.spec("GR-5")
async def test_a_hundred_kills(empty: World, journal: Journal) -> None:
    """Batches of every sort of event: none is half applied, lost or counted as refused, and the end is the same."""
    await _killed(empty, journal, 100)


@pytest.mark.spec("GR-5")
@pytest.mark.chaos
async def test_a_thousand_kills(empty: World, journal: Journal) -> None:
    await _killed(empty, journal, 1000)


@pytest.mark.spec("GR-5")
@pytest.mark.longer
async def test_a_kill_at_every_single_step(empty: World, journal: Journal) -> None:
    """
    Between any two statements of batches of every sort of event, and of what is derived; the next run goes on.

    `make chaos` takes every step, other runs each fifth.
    """
    due = await Due.stated(empty, journal, rounds=2)
    step = 1
    async with killed(empty, journal, batch=len(round_of(0))) as program:
        while await program.ended(f"apply any {step}") == -9:
            assert await whole(empty)
            let_go(journal)
            assert await program.ended(TO_THE_END) == 0
            assert await graph_hash(empty.graph) == due.undisturbed, step
            await due.again(empty, journal)
            step += STRIDE
    assert step > MAX_FALLBACKS
