"""The applier: one at a time, in order, whatever an event is like."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import LeaseLost
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.engine import Graph
from imem.kg.projection.applier import MOST_REJECTIONS, Applier
from imem.kg.projection.hash import graph_hash
from imem.kg.projection.rows import Event, Projection
from tests.kg.draining import drain
from tests.kg.projection.histories import DAYS, LINES
from tests.kg.projection.world import Journal, Line, World, analysis, importer
from tests.waiting import until


def bull(**profile: Any) -> Line:
    return {"record": "Agent", "known_at": DAYS[1], "core": {"name": "bull"}, "groups": {"profile": profile}}


async def test_one_bad_event_dies_alone(empty: World, journal: Journal) -> None:
    """One among fifty is refused five times, then dead with its reason; the others are in the graph."""
    await journal.say(*[analysis(f"a{number}") for number in range(50)])
    # What no model lets through: a property that the graph cannot hold.
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner(
        "UPDATE event SET payload = jsonb_set(payload, '{core,summary}', '{\"a\": 1}') WHERE record_key = 'a25'"
    )
    applier = empty.applier(journal)

    for _ in range(MOST_REJECTIONS):
        await drain(applier)
        journal.owner("UPDATE delivery SET next_attempt_at = NULL WHERE next_attempt_at IS NOT NULL")

    (dead,) = await journal.rows(
        "SELECT record_key, state, attempts, error FROM delivery JOIN event USING (position) WHERE state <> 'applied'"
    )
    assert (dead["record_key"], dead["state"], dead["attempts"]) == ("a25", "dead", MOST_REJECTIONS)
    assert "Neo4j refused a statement" in dead["error"]
    assert (await graph_hash(empty.graph)).parts["Analysis"].count == 49


async def test_an_event_of_an_unknown_kind_dies_alone(empty: World, journal: Journal) -> None:
    """Written by a later program: refused with a reason, in nobody's way."""
    await journal.say(analysis("a1"), analysis("a2"))
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner("UPDATE event SET kind = 'record.Horoscope' WHERE record_key = 'a1'")
    applier = empty.applier(journal)

    for _ in range(MOST_REJECTIONS):
        await drain(applier)
        journal.owner("UPDATE delivery SET next_attempt_at = NULL")

    rows = await journal.rows("SELECT state, error FROM delivery ORDER BY position")
    assert [row["state"] for row in rows] == ["dead", "applied"]
    assert "Horoscope" in rows[0]["error"]


async def test_what_waits_for_another_attempt_is_not_overtaken_by_its_actor(empty: World, journal: Journal) -> None:
    await journal.say(analysis("a1"))
    journal.owner("UPDATE delivery SET next_attempt_at = now() + interval '1 hour', attempts = 1")
    await journal.say(analysis("a2"))
    await journal.say(analysis("a3"), actor=importer("another"))

    await drain(empty.applier(journal))

    assert [await empty.node("Analysis", key) is not None for key in ("a1", "a2", "a3")] == [False, False, True]


async def test_urgent_events_overtake_with_their_predecessors(empty: World, journal: Journal) -> None:
    """A finding of importance goes first, behind what its own agent said before, and ahead of an import."""
    await journal.say(*[analysis(f"a{number}") for number in range(8)])
    agent = Actor("bull", Role.HUMAN_ADMIN)
    plain = {**analysis("own"), "known_at": None}
    finding = {"record": "Finding", "core": {
        "id": "f", "analysis_id": "own", "subject_id": "company:MU", "agent": "bull", "domain": "d", "statement": "s",
        "importance": 0.9}}  # fmt: skip
    await journal.say(plain, finding, actor=agent)

    applier = empty.applier(journal, batch=5)
    await applier._claim(applier._lane_slots.bulk)

    assert [event.key for event in applier._lane_slots.bulk.waiting] == ["own", "f"]


async def test_of_two_appliers_one_works(empty: World, journal: Journal) -> None:
    """The second waits; when the first is presumed dead it takes over, and the first one's marks change nothing."""
    await journal.say(analysis("a1"))
    first, second = empty.applier(journal), empty.applier(journal)
    assert await first.lease.take()
    with pytest.raises(LeaseLost):
        await drain(second)
    lane = first._lane_slots.bulk
    await first._claim(lane)
    events = lane.begin()

    journal.owner("UPDATE lease SET expires_at = now() - interval '1 second'")
    assert await drain(second) == 1
    before = await journal.rows("SELECT * FROM delivery")

    await first._write(lane, events)
    with pytest.raises(LeaseLost):
        await first._marked(lane)
    assert await journal.rows("SELECT * FROM delivery") == before
    with pytest.raises(LeaseLost):
        await drain(first)


async def test_an_applier_that_is_superseded_waits_for_its_turn(empty: World, journal: Journal) -> None:
    """It goes back to waiting, and works again when the other has let go."""
    applier = empty.applier(journal)
    running = asyncio.create_task(applier.run())

    async def leads() -> bool:
        return applier.lease.epoch > 0

    await until(leads)
    other = empty.applier(journal)
    await other.lease.seize()
    await journal.say(analysis("a1"))
    await drain(other)
    await other.stop()

    await journal.say(analysis("a2"))
    await _applied(journal)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await applier.stop()
    assert await empty.node("Analysis", "a2") is not None


async def _applied(journal: Journal) -> None:
    positions = [event.position for event in await journal.events()]
    assert await Gateway(journal.database, importer()).wait_visible(positions, Deadline.after_ms(60_000))


@pytest.mark.spec("GR-7")
async def test_two_writers_of_one_key_leave_one_node(empty: World, journal: Journal) -> None:
    """In the journal and in the graph at once: equal cores agree, no event fails."""
    sources = [importer(f"s{number}") for number in range(8)]
    receipts = await asyncio.gather(
        *(journal.say(analysis("a1"), bull(specialization="x", kind="model"), actor=one) for one in sources)
    )
    assert not any(receipt.verdict.refused for said in receipts for receipt in said)
    events = await journal.events()

    await asyncio.gather(*(empty.apply([event]) for event in events[:2]), return_exceptions=True)
    await drain(empty.applier(journal, batch=3))

    assert (await journal.counts()) == {"pending": 0, "dead": 0, "oldest_s": None}
    assert await empty.run("MATCH (n:Analysis) RETURN count(n) AS n") == [{"n": 1}]
    assert await empty.run("MATCH (:Company)-[r:HAS_ANALYSIS]->() RETURN count(r) AS n") == [{"n": 1}]
    found = await graph_hash(empty.graph)
    assert found == await empty.hash_of(events)


@pytest.mark.spec("GR-7")
async def test_different_cores_of_one_key_leave_the_first(empty: World, journal: Journal) -> None:
    """The loser is refused by name; nothing of it is written."""
    said = await asyncio.gather(
        *(journal.say(analysis("a1", summary=f"s{number}"), actor=importer(f"s{number}")) for number in range(6))
    )

    verdicts = sorted(receipt.verdict for (receipt,) in said)

    assert verdicts == ["core_conflict"] * 5 + ["new"]
    assert await drain(empty.applier(journal)) == 1


async def test_a_stub_is_filled_when_its_own_event_comes(empty: World, journal: Journal) -> None:
    await journal.say(LINES[2] | {"known_at": DAYS[0]}, actor=importer("a"))
    applier = empty.applier(journal)
    await drain(applier)
    assert await empty.node("Agent", "bull") == {"name": "bull", "stub": True}
    assert await empty.node("Analysis", "a1") == {"id": "a1", "stub": True}

    await journal.say(bull(specialization="x", kind="model"), actor=importer("b"))
    await drain(applier)

    node = await empty.node("Agent", "bull")
    assert node is not None
    assert "stub" not in node
    assert node["specialization"] == "x"
    assert await empty.run("MATCH (:Agent)-[r:PERFORMED]->(:Analysis) RETURN count(r) AS n") == [{"n": 1}]


async def test_subjects_bear_their_second_label_and_id_even_as_stubs(empty: World, journal: Journal) -> None:
    await journal.say(analysis("a1"))
    await drain(empty.applier(journal))

    rows = await empty.run("MATCH (s:Subject) RETURN labels(s) AS labels, s.subject_id AS id, s.stub AS stub")

    assert [(sorted(row["labels"]), row["id"], row["stub"]) for row in rows] == [
        (["Company", "Subject"], "company:MU", True)
    ]


async def test_a_replaced_link_has_one_target_and_the_others_are_known(empty: World, journal: Journal) -> None:
    """In one batch or one by one: the latest stands, and every name that was said has its node."""
    for line, day in zip(LINES[7:10], (DAYS[0], DAYS[3], DAYS[1]), strict=True):
        await journal.say({**line, "known_at": day})
    events = await journal.events()

    whole = await empty.hash_of(events)
    assert await empty.hash_of(*[[event] for event in reversed(events)]) == whole

    rows = await empty.run("MATCH (:Debate)-[r:RESOLVED_BY]->(x) RETURN coalesce(x.name, x.id) AS who")
    assert rows == [{"who": "judge"}]
    assert {name: part.count for name, part in whole.parts.items()} == {
        "Agent": 2,
        "Debate": 1,
        "Human": 1,
        "RESOLVED_BY": 1,
    }


async def test_an_undirected_link_is_stored_once(empty: World, journal: Journal) -> None:
    await journal.say({**LINES[0], "known_at": DAYS[0]}, {**LINES[1], "known_at": DAYS[1]})
    await drain(empty.applier(journal))

    rows = await empty.run(
        "MATCH (a:Company)-[r:PEER_OF]->(b:Company) RETURN a.ticker AS a, b.ticker AS b, r.similarity AS s"
    )

    assert rows == [{"a": "AMD", "b": "MU", "s": None}]


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one by one"])
async def test_the_label_of_active_patterns_follows_their_status(
    empty: World, journal: Journal, *, together: bool
) -> None:
    """Exactly while the status is active, however late an older status arrives."""
    statuses = [("active", DAYS[1], 1), ("deprecated", DAYS[3], 0), ("active", DAYS[2], 0), ("active", DAYS[4], 1)]
    applier = empty.applier(journal)
    for status, day, labelled in statuses:
        group = {"status": {"status": status, "quarantined": False}}
        await journal.say({"record": "Pattern", "known_at": day, "key": "p", "groups": group})
        if not together:
            await drain(applier)
            assert await empty.run("MATCH (p:ActivePattern) RETURN count(p) AS n") == [{"n": labelled}]
    await drain(applier)

    assert await empty.run("MATCH (p:ActivePattern) RETURN p.pattern_id AS id") == [{"id": "p"}]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_headline_numbers_are_projected_whichever_comes_first(
    empty: World, journal: Journal, order: tuple[int, int]
) -> None:
    score = {"sample_size": 7, "last_updated": DAYS[0], "decay_halflife_years": 2.0}
    lines = [
        {"record": "AgentCredibility", "known_at": DAYS[0], "core": {"agent_id": "x", "domain": "d", "id": "x/d"}},
        {"record": "AgentCredibility", "known_at": DAYS[1], "key": "x/d", "groups": {"score": score}},
    ]
    applier = empty.applier(journal)
    for index in order:
        await journal.say(lines[index])
        await drain(applier)

    rows = await empty.run("MATCH (:Agent)-[r:HAS_CREDIBILITY_IN]->(:Domain) RETURN r.sample_size AS n")
    assert rows == [{"n": 7}]


async def test_counters_wait_for_the_events_they_count(empty: World, journal: Journal) -> None:
    """Work that came with an event is neither done nor forgotten before the event is in the graph."""
    await journal.say(analysis("a1"))
    applier = empty.applier(journal)

    assert not await applier.derive()
    assert await journal.rows("SELECT count(*) AS n FROM due_row WHERE queue = 'graph'") == [{"n": 1}]

    await drain(applier)
    assert (await empty.node("Company", "MU") or {})["analyzed_count"] == 1
    assert await journal.rows("SELECT count(*) AS n FROM due_row WHERE queue = 'graph'") == [{"n": 0}]


async def test_values_that_somebody_else_derived_meanwhile_are_derived_again(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An applier that was held up may have written older values over newer ones: they are due once more."""
    await journal.say(analysis("a1"))
    applier = empty.applier(journal)
    await drain(applier)
    journal.owner("INSERT INTO due_row (queue, kind, key) VALUES ('graph', 'subject_counters', 'company:MU')")
    write = Graph.write

    async def slow(self: Graph, name: str, *arguments: Any, **more: Any) -> Any:
        if name == "derive":
            journal.owner("DELETE FROM due_row WHERE queue = 'graph'")
        return await write(self, name, *arguments, **more)

    monkeypatch.setattr(Graph, "write", slow)
    assert await applier.derive()
    monkeypatch.undo()

    assert await journal.rows("SELECT DISTINCT kind, key FROM due_row WHERE queue = 'graph'") == [
        {"kind": "subject_counters", "key": "company:MU"}
    ]
    assert await applier.derive()
    assert await journal.rows("SELECT DISTINCT kind, key FROM due_row WHERE queue = 'graph'") == []


async def test_a_value_that_cannot_be_sent_is_one_events_trouble(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on; the bad one is dead with the reason."""
    await journal.say(analysis("a1"), analysis("a2"), analysis("a3"))
    add = Projection.add

    def spoilt(self: Projection, event: Event) -> None:
        add(self, event)
        if event.key == "a2":
            self.cores["Analysis"]["a2"]["position"] = 2**80

    monkeypatch.setattr(Projection, "add", spoilt)
    applier = empty.applier(journal)
    for _ in range(MOST_REJECTIONS):
        await drain(applier)
        journal.owner("UPDATE delivery SET next_attempt_at = NULL WHERE next_attempt_at IS NOT NULL")

    rows = await journal.rows(
        "SELECT record_key, state, error FROM event JOIN delivery USING (position) ORDER BY position"
    )
    assert [(row["record_key"], row["state"]) for row in rows] == [("a1", "applied"), ("a2", "dead"), ("a3", "applied")]
    assert "cannot be sent" in rows[1]["error"]


async def test_a_listener_is_told_what_was_applied(empty: World, journal: Journal) -> None:
    """First while nobody knows that the batch is in the graph, then when everybody may."""
    told: list[tuple[str, int, list[str]]] = []

    def listener(name: str) -> Callable[[Sequence[Event]], Awaitable[None]]:
        async def listen(events: Sequence[Event]) -> None:
            rows = await journal.rows("SELECT position FROM delivery WHERE state = 'applied'")
            told.append((name, len(rows), [event.kind for event in events]))

        return listen

    await journal.say(analysis("a1"), bull(specialization="x", kind="model"))
    applier: Applier = empty.applier(journal, written=listener("written"), applied=listener("applied"))
    await drain(applier)

    kinds = ["record.Analysis", "record.Agent"]
    assert told == [("written", 0, kinds), ("applied", 2, kinds)]
