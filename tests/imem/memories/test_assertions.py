"""Each who says a thing holds it: what one takes back or adds is its own, and people alone end what people say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.memory import Memory
from imem.recall.memories.model import FoundMemory, StoreStatus
from imem.recall.memories.upkeep import UpkeepRules, consolidate, maintain
from tests.imem.memories.conftest import Places, make_vectors, memory_of, round_of
from tests.imem.memory.conftest import MemoryHarness

SPACE = "symbol/MU"
TEXT = "Margins rose 4 %."
NEAR = "Margins went up 4 %."


@pytest.fixture(autouse=True)
def _near(places: Places) -> None:
    # A text is encoded with its author's name.
    near = {f"{name}{text}": cosine for name in ("", "Ann: ", "Bob: ") for text, cosine in ((TEXT, 1.0), (NEAR, 0.99))}
    places.cosines = {**near, "margins": 1.0}


async def found(memory: Memory, query: str = "margins", **given: Any) -> list[FoundMemory]:
    section = await memory.memories.search(query, namespace=f"{SPACE}/*", deadline_ms=30_000, **given)
    return list(section.items)


def shown(memory: FoundMemory) -> tuple[str, str, dict[str, Any], float]:
    return memory.content, memory.agent_id, memory.metadata, memory.importance


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize("text", [TEXT, NEAR])
async def test_who_was_first_does_not_own_it(harness: MemoryHarness, text: str, *, person: bool) -> None:
    """A squatter retires, supersedes or updates what it said; the text of the other is found as that one said it."""
    role = Role.HUMAN_ADMIN if person else Role.AGENT
    async with memory_of(harness, "bob") as bob, memory_of(harness, "kate", role) as kate:
        first = await bob.remember(text, namespace=SPACE, metadata={"source": "a rumour"}, importance=0.1)
        later = await kate.remember(TEXT, namespace=SPACE, metadata={"source": "10-K"}, importance=0.7)
        assert later.id == first.id
        [now] = await found(kate)
        assert (now.agent_id, now.by_person) == (("kate", True) if person else ("bob", False))
        then = datetime.now(UTC)
        before = [one.model_copy(update={"access_count": 0, "last_accessed_at": None}) for one in await found(kate)]

        done = await bob.memories.retire(first.id, reason="It is of no use.")
        assert (done.status, done.remains) == (StoreStatus.RETIRED, True)
        [kept] = await found(bob)
        assert shown(kept) == (TEXT, "kate", {"source": "10-K"}, 0.7)
        assert kept.also_said_by == []
        again = await bob.memories.retire(first.id, reason="Again.")
        assert (again.status, again.remains) == (StoreStatus.IDENTICAL, True)
        with pytest.raises(BadInput, match="was retired already"):
            await bob.memories.supersede(first.id, "Margins fell.", reason="No.")

        # An answer of then stays as it was.
        old = await found(kate, as_of=then)
        assert [shown(one) for one in old] == [shown(one) for one in before]
        assert [[one.agent_id for one in item.also_said_by] for item in old] == [["bob" if person else "kate"]]
        versions = await kate.memories.history(first.id)
        reasons = {version.reason for version in versions} | {
            one.reason for version in versions for one in version.also_said_by
        }
        assert "It is of no use." in reasons


async def test_what_is_superseded_is_ones_own(harness: MemoryHarness) -> None:
    """The correction is the actor's; the old text remains where others say it, and the history leads to both."""
    async with memory_of(harness, "bob") as bob, memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        first = await bob.remember(TEXT, namespace=SPACE)
        await kate.remember(TEXT, namespace=SPACE)
        new = await bob.memories.supersede(first.id, "Margins are a fiction.", reason="I say so.", metadata={"b": 1})
        assert (new.status, new.remains, new.id != first.id) == (StoreStatus.SUPERSEDED, True, True)
        texts = {one.content: one.agent_id for one in await found(kate)}
        assert texts == {TEXT: "kate", "Margins are a fiction.": "bob"}
        assert {one.id for one in await bob.memories.history(new.id)} == {first.id, new.id}
        assert {one.id for one in await bob.memories.history(first.id)} == {first.id, new.id}
        again = await bob.memories.supersede(first.id, "Margins are a fiction.", reason="Again.")
        assert (again.status, again.id) == (StoreStatus.IDENTICAL, new.id)
        assert harness.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 2}]

        # A person ends what anybody says.
        last = await kate.memories.supersede(new.id, "Margins are real.", reason="They are.")
        assert (last.status, last.remains) == (StoreStatus.SUPERSEDED, False)
        assert (await kate.memories.retire(first.id, reason="It was another year.")).remains is False
        assert [one.content for one in await found(kate)] == ["Margins are real."]
    assert harness.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 1}]


async def test_nobody_keeps_a_correction_from_another(harness: MemoryHarness) -> None:
    """What somebody else stored first may be what one corrects to: both hold it then."""
    async with memory_of(harness, "bob") as bob, memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        squatted = await bob.remember("The plant opens in July.", namespace=SPACE)
        old = await kate.remember("The plant opens in May.", namespace=SPACE)
        new = await kate.memories.supersede(old.id, "The plant opens in July.", reason="It is late.", metadata={"k": 1})
        assert (new.status, new.id, new.remains) == (StoreStatus.SUPERSEDED, squatted.id, False)
        [item] = await found(kate, "plant")
        assert (item.agent_id, item.metadata, [one.agent_id for one in item.also_said_by]) == (
            "kate",
            {"k": 1},
            ["bob"],
        )
        [before] = [one for one in await kate.memories.history(old.id) if one.id == old.id]
        assert before.superseded_by == squatted.id
        other = await kate.remember("Something else.", namespace=SPACE)
        with pytest.raises(BadInput, match="says already"):
            await kate.memories.supersede(other.id, "The plant opens in July.", reason="No.")


@pytest.mark.parametrize(
    "metadata", [{"retracted": True}, {"correction": "They fell."}, {"source": None}, {"a": {"b": 1}}]
)
@pytest.mark.parametrize("importance", [0.0, 1.0])
@pytest.mark.parametrize("text", [TEXT, NEAR])
async def test_what_is_added_is_the_adders_own(
    harness: MemoryHarness, metadata: dict[str, Any], importance: float, text: str
) -> None:
    """Neither metadata nor importance of the first author change; what the other says stands beside it, as its own."""
    async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
        first = await ann.remember(TEXT, namespace=SPACE, metadata={"source": "10-K"}, importance=0.5, author="Ann")
        again = await bob.remember(text, namespace=SPACE, metadata=metadata, importance=importance, author="Bob")
        assert (again.status, again.id, again.version) == (StoreStatus.IDENTICAL, first.id, 1)
        [item] = await found(bob)
        assert shown(item) == (TEXT, "ann", {"source": "10-K"}, 0.5)
        [other] = item.also_said_by
        assert (other.agent_id, other.content, other.author, other.by_person) == ("bob", text, "Bob", False)
        assert (other.metadata, other.importance) == (metadata, importance)
        more = await bob.remember(text, namespace=SPACE, metadata={"more": 1})
        assert (more.status, more.version) == (StoreStatus.UPDATED, 1)
        [item] = await found(ann)
        assert shown(item) == (TEXT, "ann", {"source": "10-K"}, 0.5)
        assert item.also_said_by[0].metadata == {**metadata, "more": 1}
        own = await ann.remember(TEXT, namespace=SPACE, metadata={"page": 7}, importance=0.6)
        assert (own.status, own.version) == (StoreStatus.UPDATED, 2)
        [item] = await found(ann)
        assert shown(item) == (TEXT, "ann", {"source": "10-K", "page": 7}, 0.6)


async def test_people_alone_end_what_people_say(harness: MemoryHarness) -> None:
    """Everywhere, under whatever name and role; each attempt leaves a denial, and Postgres refuses it by itself."""
    spaces = (SPACE, "user/u", "global", "agent/ann")
    async with memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        ids = {space: (await kate.remember(TEXT, namespace=space)).id for space in spaces}
    rivals = [
        ("ann", Role.AGENT),
        ("kate", Role.AGENT),
        ("kb", Role.KNOWLEDGE_BASE_AGENT),
        ("f", Role.DEBATE_FACILITATOR),
    ]
    for actor, role in rivals:
        async with memory_of(harness, actor, role) as rival:
            calls: list[Callable[[UUID], Any]] = [
                lambda one: rival.memories.retire(one, reason="No."),
                lambda one: rival.memories.supersede(one, "Margins fell.", reason="No."),
                lambda one: rival.memories.delete(one),  # noqa: PLW0108 - as above
            ]
            for call in calls:
                for known in ids.values():
                    before = len(harness.audited(authorized=False))
                    with pytest.raises(PermissionDenied):
                        await call(known)
                    assert len(harness.audited(authorized=False)) == before + 1
    url = harness.settings.postgres_url
    assert url is not None
    with psycopg.connect(url.get_secret_value(), autocommit=True) as conn:
        for actor, role in rivals:
            for known in ids.values():
                for text in ("Margins fell.", None):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        conn.execute(
                            "SELECT recall.supersede_memory_v1(%s, %s, %s, gen_random_uuid(), %s, '{}', 0.5, NULL, "
                            "NULL, NULL, 'No.')",
                            (actor, role.value, known, text),
                        )
    async with memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        assert {one.namespace for one in (await kate.memories.search("margins")).items} == set(spaces)
        for known in ids.values():
            assert (await kate.memories.retire(known, reason="It is over.")).status is StoreStatus.RETIRED


async def test_the_knowledge_base_ends_what_agents_say(harness: MemoryHarness) -> None:
    async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
        stored = await ann.remember(TEXT, namespace=SPACE)
        await bob.remember(TEXT, namespace=SPACE)
        async with memory_of(harness, "kb", Role.KNOWLEDGE_BASE_AGENT) as base:
            done = await base.memories.retire(stored.id, reason="It is over.")
            assert (done.status, done.remains) == (StoreStatus.RETIRED, False)
        assert await found(ann) == []


@pytest.mark.parametrize("importances", [(1.0, 0.2), (0.2, 1.0)])
async def test_the_daily_round_takes_nobodys_words(
    harness: MemoryHarness, places: Places, importances: tuple[float, float]
) -> None:
    """Merged memories of two are held by both: the words and metadata of the person stay, whatever the agent ends."""
    places.cosines = {"Demand is strong.": 1.0, "Strong demand.": 0.93, "demand": 1.0}
    async with memory_of(harness, "bob") as bob, memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        await bob.remember("Strong demand.", namespace=SPACE, importance=importances[0], metadata={"retracted": True})
        await kate.remember(
            "Demand is strong.", namespace=SPACE, importance=importances[1], metadata={"source": "10-K"}
        )
        then = datetime.now(UTC)
        before = [shown(one) for one in await found(kate, "demand")]
        assert (await round_of(harness, consolidate, places, UpkeepRules()))["merged"] == 1
        [item] = await found(kate, "demand")
        assert shown(item) == ("Demand is strong.", "kate", {"source": "10-K"}, importances[1])
        assert [(one.agent_id, one.content, one.metadata) for one in item.also_said_by] == [
            ("bob", "Strong demand.", {"retracted": True})
        ]
        assert item.similarity is not None, "its vector is kept"
        old = [shown(one) for one in await found(kate, "demand", as_of=then)]
        assert sorted(old, key=str) == sorted(before, key=str)
        assert (await bob.memories.retire(item.id, reason="No.")).remains
        assert [one.content for one in await found(bob, "demand")] == ["Demand is strong."]
    assert harness.rows("SELECT memories FROM recall.memory_namespace") == [{"memories": 1}]


async def test_the_words_of_who_remains_are_shown(harness: MemoryHarness, places: Places) -> None:
    """Where the first leaves: with vectors once they are made; with those that the text had before, at once."""
    async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
        first = await ann.remember(TEXT, namespace=SPACE)
        await bob.remember(NEAR, namespace=SPACE)
        await ann.memories.retire(first.id, reason="No.")
        [item] = await found(bob)
        assert (item.content, item.agent_id, item.version) == (NEAR, "bob", 2)
        assert await make_vectors(harness, places) == {"vectors": 1, "more": False}
        [item] = await found(bob)
        assert round(item.similarity or 0.0, 2) == 0.99
        await ann.remember(TEXT, namespace=SPACE)
        await bob.memories.retire(first.id, reason="No.")
        [item] = await found(ann)
        assert (item.content, item.similarity, item.agent_id) == (TEXT, 1.0, "ann")
        assert harness.rows("SELECT count(*) FROM due_row WHERE queue = 'memories'") == [{"count": 0}]


async def test_what_matters_to_another_is_not_forgotten(harness: MemoryHarness) -> None:
    """A squatter's importance of nothing does not delete what somebody else holds."""
    async with memory_of(harness, "bob") as bob, memory_of(harness) as ann:
        for text in (TEXT, "Prices rose."):
            await bob.remember(text, namespace=SPACE, importance=0.0)
        await ann.remember(TEXT, namespace=SPACE, importance=0.8)
    harness.rows("UPDATE recall.memory SET recorded_at = now() - interval '100 days' RETURNING 1")
    rules = UpkeepRules()
    assert (await round_of(harness, lambda database, until: maintain(database, rules, until=until)))["deleted"] == 1
    assert harness.rows("SELECT content FROM recall.memory") == [{"content": TEXT}]


async def test_what_a_person_said_stays_a_persons_when_its_successor_is_forgotten(harness: MemoryHarness) -> None:
    """The daily round deletes the correction alone; agents can still not delete what the person said before."""
    async with (
        memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate,
        memory_of(harness, "kb", Role.KNOWLEDGE_BASE_AGENT) as base,
    ):
        old = await kate.remember(TEXT, namespace=SPACE)
        await kate.memories.supersede(old.id, "Prices rose.", reason="A slip.", importance=0.0)
        harness.rows("UPDATE recall.memory SET recorded_at = now() - interval '100 days' RETURNING 1")
        rules = UpkeepRules()
        done = await round_of(harness, lambda database, until: maintain(database, rules, until=until))
        assert done["deleted"] == 1
        assert harness.rows("SELECT DISTINCT id FROM recall.memory") == [{"id": old.id}]
        with pytest.raises(PermissionDenied):
            await base.memories.delete(old.id)
        assert (await kate.memories.delete(old.id)).count == 1
    assert harness.rows("SELECT count(*) FROM recall.memory_assertion") == [{"count": 0}]


ACTORS = {"ann": Role.AGENT, "bob": Role.AGENT, "kate": Role.HUMAN_ADMIN}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.lists(
        some.tuples(some.sampled_from(sorted(ACTORS)), some.sampled_from(["say", "retire"]), some.floats(0, 1)),
        min_size=1,
        max_size=8,
    )
)
async def test_any_order_is_as_the_model_says(harness: MemoryHarness, steps: list[tuple[str, str, float]]) -> None:
    """Against a list of who holds it since when: who is shown, who else says it, and every earlier answer again."""
    harness.rows("TRUNCATE recall.memory, recall.memory_assertion, recall.memory_use CASCADE")
    harness.rows("UPDATE recall.memory_namespace SET memories = 0, lexemes = 0 RETURNING 1")
    held: list[tuple[str, float]] = []
    answers: list[tuple[datetime, list[tuple[str, float]]]] = []
    async with (
        memory_of(harness, "ann") as ann,
        memory_of(harness, "bob") as bob,
        memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate,
    ):
        memories = {"ann": ann, "bob": bob, "kate": kate}

        async def answer(as_of: datetime | None = None) -> list[tuple[str, float]]:
            items = (await ann.memories.list(namespace=SPACE, as_of=as_of)).items
            assert len(items) <= 1
            first = [(one.agent_id, one.importance) for one in items]
            return first + [(one.agent_id, one.importance) for item in items for one in item.also_said_by]

        for actor, step, importance in steps:
            known = (await ann.memories.list(namespace=SPACE)).items
            if step == "say":
                await memories[actor].remember(TEXT, namespace=SPACE, importance=importance)
                mine = [kept for name, kept in held if name == actor]
                if mine:
                    held = [(name, max(kept, importance) if name == actor else kept) for name, kept in held]
                else:
                    held.append((actor, importance))
            elif known and (actor == "kate" or actor in [name for name, _ in held]):
                await memories[actor].memories.retire(known[0].id, reason="No.")
                held = [] if actor == "kate" else [one for one in held if one[0] != actor]
            expected = sorted(held, key=lambda one: one[0] != "kate")
            assert await answer() == expected
            answers.append((datetime.now(UTC), expected))
        for at, expected in answers:
            assert await answer(at) == expected
