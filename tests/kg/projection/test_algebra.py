"""Record, correct, late groups, several actors, both clocks: the journal and the graph against a plain model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from imem.journal.actors import Actor
from imem.journal.events.entry import Receipt
from imem.journal.settings import Role
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.catalog import KINDS
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.projection.hash import graph_hash
from imem.kg.projection.rows import Event
from tests.kg.projection.conftest import PROOFS
from tests.kg.projection.histories import (
    CORES,
    CORRECTABLE,
    DAYS,
    GROUPS,
    LINES,
    Telling,
    batched,
    histories,
    interleavings,
)
from tests.kg.projection.world import NEVER, Journal, Line, World, writer_of
from tests.model import Model, canonical_link, canonical_node, moments

EARLIER = datetime(2025, 1, 1, tzinfo=UTC)


def actor_of(name: str) -> Actor:
    return Actor(name, Role.HUMAN_ADMIN, may_import=name.startswith("import:"))


def entry(line: Line) -> Any:
    return entry_of(parse_line(orjson.dumps(line), needs_known_at=False, writer=writer_of(line)))


async def tell(journal: Journal, history: Sequence[Telling], model: Model | None = None) -> list[Receipt]:
    """Say each line in a call of its own; the model says the same and must agree with every verdict."""
    receipts = []
    for name, line in history:
        (receipt,) = await journal.say(line, actor=actor_of(name))
        receipts.append(receipt)
        if model is not None:
            told = entry(line)
            now = receipt.recorded_at or datetime.now(UTC)
            assert receipt.verdict == model.verdict(name, told, now), line
            if receipt.verdict in {"new", "changed"}:
                model.accept(name, told, now)
    return receipts


def sized(events: Sequence[Event], sizes: Sequence[int]) -> list[Sequence[Event]]:
    cuts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    return [events[start:end] for start, end in pairwise(cuts)]


async def held(world: World) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return what the graph holds, in the model's form."""
    nodes, links = {}, {}
    for row in await world.run(
        "MATCH (n) WHERE NOT n:AppliedEvent AND NOT n:SchemaVersion RETURN labels(n) AS labels, properties(n) AS p"
    ):
        (kind,) = [label for label in row["labels"] if label in KINDS]
        nodes[kind, row["p"][KINDS[kind].key]] = canonical_node(kind, row["p"])
    for row in await world.run(
        "MATCH (a)-[r]->(b) RETURN type(r) AS type, labels(a) AS a_labels, properties(a) AS a, labels(b) AS b_labels, "
        "properties(b) AS b, properties(r) AS r"
    ):
        if row["type"] == "HAS_CREDIBILITY_IN":
            continue
        (start,) = [label for label in row["a_labels"] if label in KINDS]
        (end,) = [label for label in row["b_labels"] if label in KINDS]
        props = canonical_link((row["type"], start, end), row["r"])
        link = (row["type"], start, row["a"][KINDS[start].key], end, row["b"][KINDS[end].key], props.get("at", ""))
        assert link not in links
        links[link] = props
    return nodes, links


@pytest.mark.spec("GR-3")
@pytest.mark.longer
@PROOFS
@given(st.data())
async def test_any_order_that_keeps_each_actors_own_gives_the_same_hash(world: World, data: st.DataObject) -> None:
    """In any batches, in any order, and twice."""
    history = data.draw(histories())
    async with world.journal() as journal:
        await tell(journal, history)
        events = await journal.events()
    lanes = [event.order_key.split("|")[1] for event in events]
    assume(events)
    order = data.draw(interleavings(lanes))
    mixed = [events[index] for index in order]
    again = data.draw(st.lists(st.sampled_from(events), max_size=3))

    plain = await world.hash_of(events)
    other = await world.hash_of(*sized(mixed, data.draw(batched(len(mixed)))), *([again] if again else []))

    assert plain.differing(other) == []
    assert plain == other
    await world.apply(events)
    assert await graph_hash(world.graph) == plain


@pytest.mark.longer
@PROOFS
@given(st.data())
async def test_not_even_an_actors_own_order_matters(world: World, data: st.DataObject) -> None:
    """The guards alone make the end the same: what is urgent may overtake without harm."""
    history = data.draw(histories(most=8))
    async with world.journal() as journal:
        await tell(journal, history)
        events = await journal.events()
    mixed = data.draw(st.permutations(events))

    assert await world.hash_of(events) == await world.hash_of(*[[event] for event in mixed])


@pytest.mark.longer
@PROOFS
@given(st.data())
async def test_the_graph_and_every_answer_as_of_a_day_are_the_models(world: World, data: st.DataObject) -> None:
    """Verdicts, values at every moment on both clocks, and the graph."""
    history = data.draw(histories())
    model = Model()
    async with world.journal() as journal:
        await tell(journal, history, model)
        events = await journal.events()
        records = sorted({(one.kind, one.key) for one in model.statements})
        for at in (EARLIER, *moments(model.statements)):
            for recorded_until in (END_OF_TIME, at):
                rows = await values(journal, records, at, recorded_until)
                assert rows == model.values_at(at, recorded_until), (at, recorded_until)
    await world.wipe()
    await world.apply(*sized(events, data.draw(batched(len(events)))))
    assert await held(world) == model.graph()


async def values(
    journal: Journal, records: Sequence[tuple[str, str]], known_until: datetime, recorded_until: datetime
) -> dict[Any, Any]:
    rows = await journal.database.named(
        "record_values_at",
        {
            "kinds": [kind for kind, _ in records],
            "keys": [key for _, key in records],
            "known_until": known_until,
            "recorded_until": recorded_until,
        },
        deadline=NEVER,
    )
    return {
        (row["kind"], row["key"], row["grp"]): (row["value"] and orjson.loads(row["value"]), row["known_at"])
        for row in rows
    }


@pytest.mark.spec("GR-10")
@pytest.mark.longer
@PROOFS
@given(st.data())
async def test_nothing_known_later_changes_an_earlier_answer(world: World, data: st.DataObject) -> None:
    """On the clock of knowledge: facts known after T; on the other: whatever is recorded afterwards."""
    first, second = data.draw(histories(most=8)), data.draw(histories(most=8))
    at = datetime.fromisoformat(data.draw(st.sampled_from(DAYS)))
    later = [
        (name, line) for name, line in second if "known_at" not in line or datetime.fromisoformat(line["known_at"]) > at
    ]
    async with world.journal() as journal:
        await tell(journal, first)
        records = sorted({(row["kind"], row["key"]) for row in await journal.rows("SELECT kind, key FROM record_head")})
        known = await values(journal, records, at, END_OF_TIME)
        now = datetime.now(UTC)
        recorded = await values(journal, records, now, now)

        await tell(journal, later)

        assert await values(journal, records, at, END_OF_TIME) == known
        await tell(journal, second)
        assert await values(journal, records, now, now) == recorded


@pytest.mark.spec("GR-4")
@pytest.mark.longer
@PROOFS
@given(st.data())
async def test_two_sources_in_either_order_end_the_same(world: World, data: st.DataObject) -> None:
    """The same hash, and the same answers as of any day."""
    one = data.draw(histories(("import:a",), corrections=False))
    two = data.draw(histories(("import:b",), corrections=False))
    found = []
    for history in ([*one, *two], [*two, *one]):
        async with world.journal() as journal:
            await tell(journal, history)
            # The same file again, from the same source, adds nothing.
            assert {receipt.verdict for receipt in await tell(journal, one)} == {"identical"}
            digest = await world.hash_of(await journal.events())
            heads = await journal.rows("SELECT kind, key FROM record_head")
            records = sorted({(row["kind"], row["key"]) for row in heads})
            days = [datetime.fromisoformat(day) for day in DAYS]
            found.append((digest, [await values(journal, records, day, END_OF_TIME) for day in days]))

    assert found[0] == found[1]


@pytest.mark.spec("GR-4")
@pytest.mark.parametrize(
    ("early", "late"),
    [
        (
            {"record": "Company", "key": "MU", "groups": {"profile": {"name": "new", "sector": "chips"}}},
            {"record": "Company", "key": "MU", "groups": {"profile": {"name": "old", "industry": "memory"}}},
        ),
        (LINES[2], LINES[3]),
        (LINES[7], LINES[8]),
    ],
)
async def test_a_late_older_write_changes_nothing(empty: World, journal: Journal, early: Line, late: Line) -> None:
    """Neither in its group nor outside it, except what it is the first to name."""
    await journal.say({"record": "Company", "known_at": DAYS[0], "core": {"ticker": "MU"}})
    await journal.say({"record": "Agent", "known_at": DAYS[0], "core": {"name": "judge"}})
    await journal.say({**early, "known_at": DAYS[3]})
    # A link's own clock is the earliest one stated for it: that much an older statement may say.
    clock = {"known_at": DAYS[0]} if "link" in early and early["link"] != "RESOLVED_BY" else None
    if clock:
        await journal.say({**early, **clock})
    before = await empty.hash_of(await journal.events())

    (receipt,) = await journal.say({**late, "known_at": DAYS[1]})

    assert receipt.verdict == "changed"
    await empty.apply(await journal.events())
    assert await graph_hash(empty.graph) == before


VALUES = [
    *((record, group, values[0], values[1]) for record, groups in GROUPS.items() for group, values in groups.items()),
    *((record, None, {changed[0]: "first"}, {changed[0]: "last"}) for record, changed in CORRECTABLE.items()),
]
"""A record, one of its groups or its correction (none), and two values."""


@pytest.mark.spec("GR-3")
@pytest.mark.spec("GR-4")
@pytest.mark.parametrize("value", VALUES, ids=[f"{one[0][0]}.{one[1]}" for one in VALUES])
async def test_each_group_keeps_its_newest_value_event_by_event(
    empty: World, journal: Journal, value: tuple[tuple[str, str], str | None, Line, Line]
) -> None:
    """
    Each event in a transaction of its own: in one batch the program chooses what is sent, alone the graph must.

    The late one changes nothing, also when it is applied again; in the other order the end is the same.
    """
    record, group, older, newer = value
    kind, key = record
    core = {"record": kind, "known_at": DAYS[0], "core": CORES[record]}

    def stated(value: Line, known_at: str) -> Line:
        if group is None:
            corrected = {**CORES[record], **value}
            return {"correct": kind, "known_at": known_at, "core": corrected, "reason": "It was wrong."}
        return {"record": kind, "known_at": known_at, "key": key, "groups": {group: value}}

    await journal.say(core)
    await journal.say(stated(newer, DAYS[3]))
    await journal.say(stated(older, DAYS[1]))
    first, new, old = await journal.events()
    only_the_new = await empty.hash_of([first], [new])
    assert await empty.hash_of([first], [new], [old]) == only_the_new
    assert await empty.hash_of([first], [new], [old], [old]) == only_the_new
    assert await empty.hash_of([first], [old], [new]) == only_the_new
    assert await empty.hash_of([old], [new], [first]) == only_the_new
    assert await empty.hash_of([first], [old]) != only_the_new, "the two values differ in the graph"


ENDS: tuple[Line, ...] = (
    *({"record": kind, "core": core} for (kind, _), core in CORES.items() if kind != "AgentCredibility"),
    {"record": "Agent", "core": {"name": "judge"}},
)
"""What the links below join, so that they are all that a batch changes."""


@pytest.mark.spec("GR-3")
@pytest.mark.spec("GR-4")
@pytest.mark.parametrize(
    ("older", "newer"),
    [(LINES[2], LINES[3]), (LINES[4], LINES[5]), (LINES[7], LINES[8])],
    ids=["of a pair", "of a pair and a time", "of a node"],
)
async def test_each_link_keeps_its_newest_properties_event_by_event(
    empty: World, journal: Journal, older: Line, newer: Line
) -> None:
    """As of groups; a link keeps the earliest time at which it was known as well, whichever event comes last."""
    await journal.say(*({**line, "known_at": DAYS[0]} for line in ENDS))
    ends = await journal.events()
    await journal.say({**newer, "known_at": DAYS[3]})
    await journal.say({**newer, "known_at": DAYS[0]})
    await journal.say({**older, "known_at": DAYS[1]})
    new, first, old = (await journal.events())[len(ends) :]

    only_the_new = await empty.hash_of(ends, [first], [new])
    for order in permutations((new, first, old)):
        assert await empty.hash_of(ends, *([event] for event in order)) == only_the_new
    assert await empty.hash_of(ends, [first], [new], [old], [old]) == only_the_new
    assert await empty.hash_of(ends, [first], [old]) != only_the_new, "the two statements differ in the graph"


@pytest.mark.spec("GR-3")
@pytest.mark.spec("GR-4")
async def test_a_core_keeps_its_earliest_clock_event_by_event(empty: World, journal: Journal) -> None:
    """Sources that state the same record at other times: the earliest gives the time at which it was known."""
    for known_at in (DAYS[3], DAYS[0], DAYS[1]):
        await journal.say({"record": "Analysis", "known_at": known_at, "core": CORES["Analysis", "a1"]})
    events = await journal.events()
    first = await empty.hash_of([events[1]])

    assert len(events) > 1
    for order in permutations(events):
        assert await empty.hash_of(*([event] for event in order)) == first


@given(st.data())
def test_interleavings_keep_each_actors_order(data: st.DataObject) -> None:
    """The generator of orders does what the proofs rest on."""
    actors = data.draw(st.lists(st.sampled_from("abc")))

    order = data.draw(interleavings(actors))

    assert sorted(order) == list(range(len(actors)))
    for actor in "abc":
        own = [index for index in order if actors[index] == actor]
        assert own == sorted(own)


def test_the_horizon_of_days_lies_in_the_past() -> None:
    assert datetime.fromisoformat(DAYS[-1]) + timedelta(days=1) < datetime.now(UTC)
