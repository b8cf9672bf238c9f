"""A person's names and ids leave Postgres and the archives; on real servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from imem.archives.access import Archives, HoldKind, HoldSubject
from imem.archives.archive import MANIFEST
from imem.archives.contents import folder_of
from imem.archives.erasing import ERASED, Erasure, checked_terms, erase
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ObjectsUnavailable, PermissionDenied, StatementRejected
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.archives.conftest import BEGIN, DAY, Vault, cited, file, found_by, pattern, validated
from tests.credibility.conftest import finding

SOON = Deadline.never()
KATE = Actor("kate", Role.HUMAN_ADMIN)
TERMS = ("Ann Lee", "ann.lee", "ann@lee.example")

HER = r"\mann.lee\M"
"""A regular expression that matches each of them, and not the end and beginning of other names."""

EVERYWHERE = """
    SELECT c.oid::regclass::text AS name FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
    WHERE c.relkind = 'r' AND s.nspname IN ('public', 'workflow', 'recall', 'langgraph')"""


EMBEDDED = """
    INSERT INTO embedding (model, kind, key, position, corrects, order_key, known_at, recorded_at, content_hash, vector)
    SELECT m.model, 'Analysis', e.record_key, e.position, false, e.order_key, e.known_at, e.recorded_at, '', '[1, 2]'
    FROM event AS e CROSS JOIN embedding_model AS m WHERE e.kind = 'record.Analysis'"""


async def known(vault: Vault) -> None:
    """Have a person who is named in texts, keys and links, and who acted; and the archive of a pattern that says so."""
    world = vault.world
    said = finding(
        "f", BEGIN, BEGIN + DAY, subject_id="company:MU", agent="ann.lee", analysis_id="a", probability=0.5,
        statement='As "Ann Lee" said: ann LEE is sure.',
    )  # fmt: skip
    ann = Actor("import:ann.lee", Role.LEARNING_ENGINE, may_import=True)
    [analysis, link] = found_by("a")
    analysis["core"]["summary"] = "Ann Lee asked for it."
    await world.say(analysis, said, actor=ann)
    world.owner("INSERT INTO embedding_model (model_id, dimension) VALUES ('m', 2)")
    world.owner(EMBEDDED)
    await vault.say(pattern(), validated("v"), *cited("d"), link)
    vault.put("prices.csv")
    await vault.say(*file("prices.csv"))
    archives = Archives(Gateway(world.curators, Actor("ann.lee", Role.HUMAN_ADMIN)), vault.objects)
    why = "Ask ann@lee.example, not Joann Leeds."
    await archives.hold(HoldKind.LEGAL, HoldSubject.PATTERN, "p", why, deadline=SOON)
    await vault.settle()


async def erased(
    vault: Vault, *terms: str, change: bool = True, by: Actor = KATE, reason: str = "She asks."
) -> Erasure:
    owner = Database(vault.world.admin_url)
    try:
        return await erase(owner, vault.objects, by, terms or TERMS, reason, change=change, deadline=SOON)
    finally:
        await owner.close()


async def holding(vault: Vault, words: str) -> dict[str, int]:
    """Return table → rows that hold *words*."""
    owner = Database(vault.world.admin_url)
    try:
        found = {}
        for row in await owner.rows(EVERYWHERE, (), deadline=SOON):
            query = f"SELECT count(*) AS n FROM {row['name']} AS t WHERE t::text ~* %s"
            found[row["name"]] = (await owner.rows(query, (words,), deadline=SOON))[0]["n"]
        return {name: number for name, number in found.items() if number}
    finally:
        await owner.close()


async def hashes(vault: Vault) -> list[Any]:
    query = "SELECT position, payload_hash FROM event WHERE kind <> %s ORDER BY position"
    return [tuple(row.values()) for row in await vault.world.rows(query, ERASED)]


async def test_nothing_names_the_person_any_more(vault: Vault) -> None:
    await known(vault)
    before, proofs = await holding(vault, HER), await hashes(vault)
    assert {"agent_cursor", "event", "record_history", "retention_hold"} <= before.keys()
    assert any(name.startswith("memory_access_audit") for name in before)
    looked = await erased(vault, change=False)
    assert await holding(vault, HER) == before
    assert looked.found == before
    assert looked.archives == ("p",)

    done = await erased(vault)
    expected = {name: number for name, number in looked.found.items() if name != "embedding"}
    assert (done.found, done.events, done.archives, done.files) == (expected, looked.events, ("p",), ())
    assert await holding(vault, HER) == {}
    assert (await holding(vault, "Joann Leeds")).keys() == {"retention_hold"} | {
        name for name in before if name.startswith("memory_access_audit")
    }, "other names stay"
    assert not any(b"ann" in content.lower() and b"lee" in content.lower() for content in vault.files().values())
    assert await vault.world.rows("SELECT FROM embedding") == [], "a vector is made of what she asked for"
    [due] = await vault.world.rows("SELECT kind, key FROM due_row WHERE queue = 'similar' AND position IS NULL")
    assert due == {"kind": "Analysis", "key": "a"}
    # The records stay consistent and readable: the pseudonym made her claim.
    [head] = await vault.world.rows("SELECT e.payload -> 'core' AS core FROM event AS e WHERE kind = 'record.Finding'")
    assert head["core"]["agent"] == done.pseudonym
    assert head["core"]["statement"] == f'As "{done.pseudonym}" said: {done.pseudonym} is sure.'
    archives = Archives(Gateway(vault.world.curators, KATE), vault.objects)
    assert all(one.ok for one in (await archives.verify("p", deadline=SOON)).values())
    assert await vault.archive() == {}

    # What stays provable: the hash of each event, which were changed, and who did it why.
    assert await hashes(vault) == proofs
    [event] = await vault.world.rows("SELECT actor, payload, position FROM event WHERE kind = %s", ERASED)
    assert (event["actor"], event["payload"]["reason"]) == ("kate", "She asks.")
    changed = await vault.world.rows(
        "SELECT position FROM event WHERE position <@ %s::int8multirange", event["payload"]["events"]
    )
    assert len(changed) == done.events > 0
    [audit] = await vault.world.rows("SELECT actor_id, action_reason FROM memory_access_audit WHERE action = 'erase'")
    assert audit == {"actor_id": "kate", "action_reason": "She asks."}
    # A repeated call finds nothing, and says nothing.
    again = await erased(vault)
    assert (again.found, again.events, again.archives) == ({}, 0, ())
    assert len(await vault.world.rows("SELECT FROM event WHERE kind = %s", ERASED)) == 1


async def test_names_after_line_breaks_and_tabs(vault: Vault) -> None:
    """JSON writes these with a letter, which is no part of the name."""
    [analysis, link] = found_by("a")
    analysis["core"]["summary"] = "Asked:\nAnn Lee\tann.lee\r\nann@lee.example"
    await vault.say(pattern(), validated("v"), *cited("d"), analysis, link)
    await vault.settle()
    assert (await erased(vault)).archives == ("p",)
    assert await holding(vault, "ann.lee") == {}
    assert not any(b"Ann Lee" in content or b"ann.lee" in content for content in vault.files().values())


async def test_names_with_letters_beyond_ascii(vault: Vault) -> None:
    """Columns whose collation knows ASCII alone hold them, too."""
    [analysis, _] = found_by("a")
    analysis["core"]["summary"] = "ÉLODIE NOËL asked."
    await vault.world.say(analysis, actor=Actor("import:élodie", Role.LEARNING_ENGINE, may_import=True))
    await erased(vault, "Élodie Noël", "élodie")
    assert await holding(vault, "lodie") == {}


async def test_two_actors_do_not_become_one(vault: Vault) -> None:
    for name in ("ann.lee", "ann@lee.example"):
        [analysis, _] = found_by(f"of {name.partition('@')[0]}")
        await vault.world.say(analysis, actor=Actor(f"import:{name}", Role.LEARNING_ENGINE, may_import=True))
    before = await holding(vault, HER)
    with pytest.raises(BadInput, match="would become one"):
        await erased(vault)
    assert await holding(vault, HER) == before
    for term in TERMS:
        await erased(vault, term)
    assert await holding(vault, HER) == {}


async def test_events_that_are_being_appended_are_named(vault: Vault) -> None:
    """An event that is appended while an erasure begins is changed, and the erasure counts it."""
    await known(vault)
    owner = Database(vault.world.admin_url)
    try:
        async with owner.transaction(SOON) as conn:
            # Another transaction that is appending.
            await conn.execute(
                "INSERT INTO event OVERRIDING SYSTEM VALUE SELECT (made.e).* FROM (SELECT jsonb_populate_record(e,"
                " jsonb_build_object('position', e.position + 1000, 'event_id', gen_random_uuid(),"
                " 'agent_seq', e.agent_seq + 99)) AS e FROM event AS e WHERE e.kind = 'record.Analysis') AS made"
            )
            erasing = asyncio.create_task(erased(vault))
            await asyncio.sleep(1)
            assert not erasing.done()
        await erasing
    finally:
        await owner.close()
    assert await holding(vault, HER) == {}
    named = await vault.world.rows(
        "SELECT FROM event AS n JOIN event AS e ON e.position <@ (n.payload ->> 'events')::int8multirange"
        " WHERE n.kind = %s AND e.kind = 'record.Analysis'", ERASED,
    )  # fmt: skip
    assert len(named) == 2


async def test_a_term_that_begins_with_a_sign(vault: Vault) -> None:
    [analysis, link] = found_by("a")
    analysis["core"]["summary"] = "ann@lee.example asked."
    await vault.say(pattern(), validated("v"), *cited("d"), analysis, link)
    await vault.settle()
    assert (await erased(vault, "@lee.example")).archives == ("p",)
    assert not any(b"@lee.example" in content for content in vault.files().values())


async def test_what_is_never_changed_is_not_changed_afterwards_either(vault: Vault) -> None:
    await known(vault)
    await erased(vault)
    owner = Database(vault.world.admin_url)
    try:
        for table in ("event", "record_history", "memory_access_audit"):
            with pytest.raises(StatementRejected):
                await owner.rows(f"DELETE FROM {table} RETURNING 1", (), deadline=SOON)
        found = await owner.rows(
            "SELECT conname FROM pg_constraint WHERE contype = 'f' AND condeferrable UNION ALL"
            " SELECT tgname FROM pg_trigger WHERE tgenabled = 'D'", (), deadline=SOON,
        )  # fmt: skip
        assert found == []
    finally:
        await owner.close()


async def test_archives_that_were_left_half_deleted_are_built(vault: Vault) -> None:
    await known(vault)
    await erased(vault)
    (vault.folder / folder_of("p") / MANIFEST).unlink()
    assert (await erased(vault)).archives == ("p",)
    archives = Archives(Gateway(vault.world.curators, KATE), vault.objects)
    assert all(one.ok for one in (await archives.verify("p", deadline=SOON)).values())


async def test_all_tiers_and_copies_of_deleted_files_stay(vault: Vault) -> None:
    await vault.say(pattern(), validated("v"))
    await vault.settle()
    [analysis, link] = found_by("a")
    analysis["core"]["summary"] = "Ann Lee asked for it."
    vault.put("prices.csv")
    await vault.say(analysis, link, *file("prices.csv"), *cited("d"))
    await vault.settle()
    (vault.folder / "prices.csv").unlink()
    assert (await erased(vault)).archives == ("p",)
    archives = Archives(Gateway(vault.world.curators, KATE), vault.objects)
    verified = await archives.verify("p", deadline=SOON)
    assert {tier: one.ok for tier, one in verified.items()} == {1: True, 2: True}
    [gaps] = await vault.world.rows("SELECT gaps FROM pattern_archive WHERE tier = 2")
    assert gaps == {"gaps": []}
    assert [name for name in vault.files() if name.endswith("%2Ecsv")]


async def test_the_archive_of_a_pattern_that_bears_the_name_moves(vault: Vault) -> None:
    key = "ann.lee/margins"
    await vault.say(pattern(key), validated("v", key), *cited("d", key))
    await vault.settle()
    done = await erased(vault)
    assert (done.archives, done.files) == ((f"{done.pseudonym}/margins",), ())
    assert vault.files(key) == {}
    assert MANIFEST in vault.files(f"{done.pseudonym}/margins")


async def test_a_store_that_is_away_is_made_up_for(vault: Vault) -> None:
    await known(vault)
    away = vault.folder.rename(vault.folder.with_name("away"))
    before = await holding(vault, HER)
    with pytest.raises(ObjectsUnavailable):
        await erased(vault)
    assert await holding(vault, HER) == before
    away.rename(vault.folder)
    await erased(vault)
    assert await holding(vault, HER) == {}


async def test_only_a_person_with_the_right(vault: Vault) -> None:
    await known(vault)
    for role in set(Role) - {Role.HUMAN_ADMIN}:
        with pytest.raises(PermissionDenied):
            await erased(vault, by=Actor("mallory", role))
    for database in (vault.world.database, vault.world.curators, vault.world.pipelines):
        given = {"terms": ["ann.lee"], "pseudonym": "x", "change": True}
        with pytest.raises(StatementRejected):
            await database.named("erase", given, deadline=SOON)
    assert await holding(vault, HER) != {}


@pytest.mark.parametrize(
    "terms",
    [(), ("",), ("an",), ("123",), ('a"b c',), ("a\\b",), ("Analysis",), ("human_admin",), ("status",), ("true",)],
)
def test_terms_that_name_no_person(terms: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="terms"):
        checked_terms(terms)


async def test_a_reason_names_nobody(vault: Vault) -> None:
    for reason in ("", "Ann Lee asks."):
        with pytest.raises(BadInput, match="reason"):
            await erased(vault, reason=reason)


SAID = """
    WITH said AS (
        INSERT INTO recall.memory (id, version, namespace, memory_type, content, metadata, importance, agent_id, author,
            created_at, recorded_at, model, vector)
        SELECT gen_random_uuid(), 1, 'global', 'semantic', n.content, '{}', 0.5, 'kate', n.author, imem_now(),
            imem_now(), m.model, '[1, 2]'
        FROM embedding_model AS m CROSS JOIN (VALUES ('Ann Lee', 'Oil.'), ('Bob', 'Gas.')) AS n (author, content)
        RETURNING *
    )
    INSERT INTO recall.memory_part (id, version, part, namespace, model, vector)
    SELECT s.id, s.version, 1, s.namespace, s.model, s.vector FROM said AS s"""


async def test_vectors_of_what_the_person_said_are_dropped(vault: Vault) -> None:
    """The author's name is part of what they are made of; those of others stay."""
    await known(vault)
    vault.world.owner("INSERT INTO recall.memory_namespace (namespace) VALUES ('global')")
    vault.world.owner(SAID)
    await erased(vault)
    query = """
        SELECT m.author = 'Bob' AS other, m.vector IS NOT NULL AND EXISTS (
            SELECT FROM recall.memory_part AS p WHERE p.id = m.id) AS kept
        FROM recall.memory AS m ORDER BY 1"""
    assert await vault.world.rows(query) == [{"other": False, "kept": False}, {"other": True, "kept": True}]
    assert len(await vault.world.rows("SELECT FROM recall.memory_part")) == 1
