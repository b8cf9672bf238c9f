"""Who reads and writes where, and that nothing in a namespace or a query means more than it says."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as some

from imem.journal.actors import Actor
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.langgraph import MemoryStore
from imem.recall.memories.namespaces import (
    EVERYTHING,
    NamespacePattern,
    own_namespace,
    parse_namespace,
    parse_pattern,
    readable,
    scopes,
    segment_of,
)
from tests.imem.memories.conftest import memory_of
from tests.imem.memory.conftest import MemoryHarness

SEGMENTS = some.lists(some.sampled_from(["agent", "news", "newsroom", "x.y", "-", "_"]), min_size=1, max_size=3)
NAMESPACES = SEGMENTS.map(lambda found: ("agent", *found))

HOSTILE = (
    "", "*", "/", "agent", "agent/", "agent//x", "/agent/x", "agent/*/x", "agent/%", "agent/_%", "agent/ne*",
    "agent/a b", "agent/a'b", 'agent/a"b', "agent/\\", "other/x", "symbol", "Global", "agent/ünï", "agent/x/",
    "agent/x\n", "*/x", "agent/x/**", "agent/" + "x" * 1000,
    "user/../agent/bob", "user/..", "user/.", "symbol/./MU", "symbol/MU/..", "global/../agent/bob", "global/.",
    "agent/ann/../bob", "agent/../bob", "user/...", "user/u/....", "../agent/bob", "./global", "..", ".",
    "user/%2e%2e/agent/bob", "user/%2E", "user/.%2e", "user/%252e%252e", "user/ ..", "user/.. /x", "user/.\t.",
    "user/\u2024\u2024", "user/\u2025", "user/\u2026", "user/\uff0e\uff0e/x", "user/.\u200b.", "user/\u3002",
    "user/x\\..\\bob", "user//..", "user/ ", "user/\t", "user/\u00a0", "user/%20", "user/..\u2215agent", "user/\x00",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("places")


def texts_below(asked: str) -> set[str]:
    """What a search of *asked* covers, by its text alone."""
    return set(scopes(parse_pattern(asked), EVERYTHING))


@given(NAMESPACES, NAMESPACES, some.booleans(), some.booleans())
def test_an_intersection_is_what_both_cover(
    one: tuple[str, ...],
    other: tuple[str, ...],
    deep: bool,  # noqa: FBT001 - drawn
    other_deep: bool,  # noqa: FBT001 - drawn
) -> None:
    first, second = NamespacePattern(one, deep), NamespacePattern(other, other_deep)
    both = first.intersection(second)
    for inner in (one, other, (*one, "x"), (*other, "x"), one[:-1]):
        expected = first.covers(inner) and second.covers(inner)
        assert (both is not None and both.covers(inner)) is expected


@pytest.mark.spec("RC-18")
@pytest.mark.parametrize("text", HOSTILE)
async def test_what_is_no_namespace_is_refused(harness: MemoryHarness, text: str) -> None:
    """By everything that takes one, before it is looked up."""
    with pytest.raises(BadInput):
        parse_namespace(text)
    async with memory_of(harness) as memory:
        with pytest.raises(BadInput, match="namespace"):
            await memory.remember("Margins rise.", namespace=text)
        with pytest.raises(BadInput, match="namespace"):
            await memory.memories.search("margins", namespace=text)
        with pytest.raises(BadInput, match="namespace"):
            MemoryStore(memory, root=text)
    if "\x00" not in text:
        with pytest.raises(psycopg.errors.CheckViolation):
            harness.rows("INSERT INTO recall.memory_namespace (namespace) VALUES (%s) RETURNING 1", text)
    assert harness.rows("SELECT count(*) FROM recall.memory_namespace") == [{"count": 0}]


@pytest.mark.parametrize("text", [text for text in HOSTILE if not text.endswith("/*")])
async def test_no_other_door_takes_it(harness: MemoryHarness, text: str) -> None:
    """A list, a deletion of all, and an import."""
    async with memory_of(harness) as memory:
        with pytest.raises(BadInput, match="namespace"):
            await memory.memories.list(namespace=text)
        with pytest.raises(BadInput, match="namespace"):
            await memory.memories.delete_all(namespace=text)
    assert harness.audited(authorized=True) == []


@pytest.mark.parametrize("name", [".", "..", "...", "", " ", "%2e%2e", "\u2024"])
async def test_an_actor_of_such_a_name_has_no_subtree_either(harness: MemoryHarness, name: str) -> None:
    """Nor is one made of a user's name, which is written otherwise."""
    actor = Actor(name, Role.AGENT)
    assert {pattern.scope for pattern in readable(actor)} == {"global/*", "symbol/*", "user/*"}
    with pytest.raises(BadInput, match="namespace"):
        own_namespace(actor)
    if name:
        assert parse_namespace(f"user/{segment_of(name)}")
        async with memory_of(harness) as memory:
            assert (await memory.memories.list(user=name)).items == []


@pytest.mark.parametrize(
    "text", ["user/a..b", "user/.a", "user/a.", "symbol/BRK.B", "agent/ann/v1..2", "user/.2e.", "user/-.-"]
)
async def test_dots_within_a_segment_are_names(harness: MemoryHarness, text: str) -> None:
    async with memory_of(harness) as memory:
        assert (await memory.remember("Margins rise.", namespace=text)).status == "new"


@pytest.mark.spec("RC-18")
async def test_a_subtree_ends_at_segments(harness: MemoryHarness) -> None:
    """``agent/news/*`` is not ``agent/newsroom``, and what looks like a pattern in a query is a text."""
    spaces = ("agent/news", "agent/news/us", "agent/newsroom", "agent/n_ws", "agent/news-us", "symbol/news", "global")
    async with memory_of(harness, "kate", Role.HUMAN_ADMIN) as memory:
        for space in spaces:
            await memory.remember(f"A story of {space}.", namespace=space)

        async def found(query: str = "story", namespace: str | None = None) -> set[str]:
            return {item.namespace for item in (await memory.memories.search(query, namespace=namespace)).items}

        assert await found() == set(spaces)
        assert await found(namespace="agent/news/*") == {"agent/news", "agent/news/us"}
        assert await found(namespace="agent/news") == {"agent/news"}
        assert await found(namespace="agent/n_ws/*") == {"agent/n_ws"}
        assert await found(namespace="agent/*") == {space for space in spaces if space.startswith("agent/")}
        assert await found(namespace="symbol/other") == set()
        for query in (
            "%",
            "_",
            "*",
            "'",
            "it''s",
            '"',
            "a & b | !c <-> d:*",
            "\\",
            "' OR true --",
            "\u202e rtl",
            "()",
        ):
            assert await found(query, "agent/news") == {"agent/news"}
            words = [item.found_by for item in (await memory.memories.search(query, namespace="agent/news")).items]
            assert words == [["meaning"]], "nothing of it is a word of the text"


async def test_who_reads_and_writes_where(harness: MemoryHarness) -> None:
    """An agent its own, symbols, users and, reading, what is global; others' subtrees neither; a denial row each."""
    spaces = ("global/a", "agent/ann/x", "agent/bob", "agent/annabel", "symbol/MU", "user/u")
    allowed = {
        Role.AGENT: ({"global/a", "agent/ann/x", "symbol/MU", "user/u"}, {"agent/ann/x", "symbol/MU", "user/u"}),
        Role.DEBATE_FACILITATOR: (
            {"global/a", "agent/ann/x", "symbol/MU", "user/u"},
            {"agent/ann/x", "symbol/MU", "user/u"},
        ),
        Role.KNOWLEDGE_BASE_AGENT: (set(spaces), set(spaces)),
        Role.HUMAN_ADMIN: (set(spaces), set(spaces)),
        Role.LEARNING_ENGINE: (set(spaces), set()),
    }
    async with memory_of(harness, "kate", Role.HUMAN_ADMIN) as memory:
        ids = {space: (await memory.remember("A story.", namespace=space)).id for space in spaces}
    for role, (reads, writes) in allowed.items():
        async with memory_of(harness, "ann", role) as memory:
            assert {item.namespace for item in (await memory.memories.search("story")).items} == reads
            for space in spaces:
                before = len(harness.audited(authorized=False))
                calls = (
                    (space in reads, lambda: memory.memories.search("story", namespace=f"{space}/*")),  # noqa: B023 - awaited at once
                    (space in reads, lambda: memory.memories.history(ids[space])),  # noqa: B023 - as above
                    (space in writes, lambda: memory.remember("A story.", namespace=space)),  # noqa: B023 - as above
                )
                for may, call in calls:
                    if may:
                        await call()
                    else:
                        with pytest.raises(PermissionDenied):
                            await call()
                denied = harness.audited(authorized=False)[before:]
                assert len(denied) == sum(not may for may, _ in calls)
                if space not in writes:
                    with pytest.raises(PermissionDenied):
                        await memory.memories.supersede(ids[space], "Another.", reason="No.")
                    with pytest.raises(PermissionDenied):
                        await memory.memories.retire(ids[space], reason="No.")


async def test_what_others_stored_in_a_shared_namespace_stays(harness: MemoryHarness) -> None:
    """An agent ends its own memories there alone, whatever it says to Postgres; a person ends any."""
    async with memory_of(harness, "bob") as bob, memory_of(harness, "ann") as ann:
        stored = (await bob.remember("Margins rise.", namespace="symbol/MU")).id
        before = len(harness.audited(authorized=False))
        with pytest.raises(PermissionDenied):
            await ann.memories.supersede(stored, "Margins fall.", reason="I say so.")
        with pytest.raises(PermissionDenied):
            await ann.memories.retire(stored, reason="I say so.")
        assert len(harness.audited(authorized=False)) == before + 2
        for text in ("x", None):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                harness.rows(
                    "SELECT * FROM recall.supersede_memory_v1('ann', 'agent', %s, gen_random_uuid(), %s, '{}', 0.5,"
                    " NULL, NULL, NULL, 'No.')",
                    stored,
                    text,
                )
        newer = await bob.memories.supersede(stored, "Margins fell.", reason="The report says so.")
    async with memory_of(harness, "kate", Role.HUMAN_ADMIN) as kate:
        last = await kate.memories.supersede(newer.id, "Margins fell by 4 %.", reason="The figure was missing.")
        await kate.memories.retire(last.id, reason="It was another company.")


async def test_postgres_checks_writers_too(harness: MemoryHarness) -> None:
    """Whatever a process says to the gateway: the function refuses, and nothing is written directly."""

    assert harness.settings.postgres_url is not None
    call = (
        "SELECT * FROM recall.store_memory_v1('ann', 'agent', gen_random_uuid(), %s, 'semantic', 'x', '{}', 0.5, NULL,"
        " NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.95, 10, false, NULL, NULL, 10)"
    )
    with psycopg.connect(harness.settings.postgres_url.get_secret_value(), autocommit=True) as conn:
        for space in ("global", "agent/bob", "agent/annabel/x"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(call, (space,))
        conn.execute(call, ("agent/ann/x",))
        for statement in (
            "UPDATE recall.memory SET importance = 1",
            "DELETE FROM recall.memory_use",
            "DELETE FROM recall.memory_part",
            "DELETE FROM recall.memory_decay",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement)


def test_an_agent_whose_name_is_no_segment_has_no_subtree() -> None:
    """It reads what is open; no other name could be made of its own."""
    assert {pattern.scope for pattern in readable(Actor("Ann Smith", Role.AGENT))} == {"global/*", "symbol/*", "user/*"}
    assert texts_below("agent/*") == {"agent/*"}
