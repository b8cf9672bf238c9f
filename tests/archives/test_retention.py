"""Files are marked, kept for a grace, restored or deleted; whatever is in doubt keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.archives.retention import GRACE_CHECKS, explain, retain
from imem.archives.retention_rules import label_of
from imem.journal.audit import context_of
from imem.journal.clock import months_after
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ObjectsUnavailable, PostgresUnavailable
from imem.journal.postgres.database import Database
from tests.archives.conftest import BEGIN, DAY, Vault, became, cited, file, late, pattern, supported, validated
from tests.credibility.conftest import decision

NOW = datetime.now(UTC).replace(microsecond=0)
OLD = datetime(2015, 1, 1, tzinfo=UTC)
BEFORE = datetime(2020, 6, 1, tzinfo=UTC)


async def said(vault: Vault, *lines: dict[str, Any]) -> None:
    """Record, archive, and have the graph hold it."""
    await vault.say(*lines)
    await vault.settle()
    vault.world.owner("UPDATE delivery SET state = 'applied'")


async def run(vault: Vault, day: int = 0) -> dict[str, Any]:
    vault.world.owner("UPDATE delivery SET state = 'applied'")
    async with vault.later(day * DAY):
        return dict(await retain(vault.runtime, until=Deadline.after_ms(60_000)))


async def states(vault: Vault) -> dict[str, str]:
    rows = await vault.world.rows("SELECT file_id, delete_state FROM file_metadata ORDER BY 1")
    return {row["file_id"]: row["delete_state"] for row in rows if row["file_id"].count("many") == 0}


async def many(vault: Vault, number: int = 100) -> None:
    """Have many cold files that an active pattern keeps, so that a few marks stay below the cap."""
    lines = [line for n in range(number) for line in file(f"many/{n}", "keeps", BEGIN, OLD)]
    await said(vault, pattern("keeps", "active"), *lines)


LONG_AGO = months_after(NOW, -20)


def ended(key: str = "p", since: datetime = LONG_AGO, was: str = "active") -> list[dict[str, Any]]:
    return [pattern(key, was), validated(f"v-{key}", key), became(key, "deprecated", since)]


async def rules(vault: Vault, file_id: str = "f") -> list[str]:
    return [one.rule.value for one in await explain(vault.database, file_id, deadline=Deadline.never())]


@pytest.mark.spec("AR-11", "AR-12", "AR-13")
async def test_what_is_marked(vault: Vault) -> None:
    for name in "abcdefgh":
        vault.put(name)
    await many(vault, 200)
    await said(vault, *ended("full"), *file("a", "full", BEGIN, OLD))
    await said(vault, *ended("lately", months_after(NOW, -17)), *file("b", "lately", BEGIN, OLD))
    await said(vault, *ended("early", was="candidate"), *file("c", "early", BEGIN, OLD))
    await said(vault, *ended("studied"), *file("d", "studied", BEGIN, OLD),
               late("studied", BEFORE, investigation={"under_investigation": True}))  # fmt: skip
    for name, status in (("e", "human_approved"), ("f", "probationary")):
        await said(
            vault,
            *ended(f"also-{name}"),
            pattern(status, status),
            *file(name, f"also-{name}", BEGIN, OLD),
            supported(name, status),
        )
    await said(vault, pattern("none", status=None), *file("g", "none", BEGIN, OLD))
    await said(vault, *ended("young"), *file("h", "young", BEGIN, months_after(NOW, -83)))
    assert (await run(vault))["halted"] == "clock", "the first run only looks"
    assert (await run(vault, 1))["marked"] == 2
    assert await states(vault) == {"a": "marked", "c": "marked"} | dict.fromkeys("bdefgh", "none")
    assert await rules(vault, "d") == ["under_investigation"]
    assert sorted(await rules(vault, "f")) == ["deletable", "in_use"]
    assert (await rules(vault, "g"), await rules(vault, "h")) == (["unknown_status"], ["too_young", "deletable"])

    await vault.say(late("studied", BEFORE + DAY, investigation={"under_investigation": False}))
    assert (await run(vault, 2))["marked"] == 1
    assert (await states(vault))["d"] == "marked"
    with pytest.raises(BadInput, match="no file"):
        await rules(vault, "nothing")


async def test_an_archive_from_before_its_newest_file_lets_nothing_go(vault: Vault) -> None:
    """It holds no copy of that file; nor is anything else of the pattern deleted until a person has looked."""
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD))
    await run(vault)
    assert await rules(vault) == ["deletable"]
    vault.put("late")
    await said(vault, *file("late", "p", BEGIN, OLD))
    assert (await run(vault, 1))["marked"] == 0
    assert (await rules(vault), await rules(vault, "late")) == (["no_archive"], ["no_archive"])
    alerts = {row["kind"] for row in await vault.world.rows("SELECT kind FROM workflow.alert")}
    assert alerts == {"EVIDENCE_UNARCHIVED"}


@pytest.mark.spec("AR-5", "AR-11")
async def test_a_late_pattern_with_a_damaged_archive_keeps_and_alerts(vault: Vault) -> None:
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD))
    await run(vault)
    damaged = vault.folder / "pattern_archives/p/tier2/all_tier1_content/metadata.json"
    content = damaged.read_bytes()
    damaged.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert await rules(vault) == ["deletable"], "nobody has looked yet"
    assert (await run(vault, 1))["marked"] == 0
    assert await rules(vault) == ["no_archive"]
    alerts = {row["kind"] for row in await vault.world.rows("SELECT kind FROM workflow.alert")}
    assert alerts == {"ARCHIVE_CORRUPT", "EVIDENCE_UNARCHIVED"}


@pytest.mark.spec("AR-14")
async def test_in_doubt_nothing_is_marked(vault: Vault) -> None:
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD))
    await run(vault)
    vault.world.owner("UPDATE delivery SET state = 'pending' WHERE position = (SELECT max(position) FROM delivery)")
    async with vault.later(DAY):
        assert (await retain(vault.runtime, until=Deadline.never()))["halted"] == "behind"
    reachable = vault.world.pipelines
    vault.world.pipelines = Database("postgresql://nobody@127.0.0.1:9/nothing")
    try:
        with pytest.raises(PostgresUnavailable):
            await retain(vault.runtime, until=Deadline.after_ms(20_000))
    finally:
        await vault.world.pipelines.close()
        vault.world.pipelines = reachable
    assert await states(vault) == {"f": "none"}
    # The graph was never asked: a reference that it does not hold yet keeps the file.
    await said(vault, pattern("other", "active"), supported("f", "other"))
    assert (await run(vault, 2))["marked"] == 0


@pytest.mark.spec("AR-15")
async def test_the_grace(vault: Vault) -> None:
    await many(vault)
    vault.put("f", b"what it held")
    vault.put("g")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD), *file("g", "p", BEGIN, OLD))
    for day in range(11):
        await run(vault, day)
    assert set((await states(vault)).values()) == {"marked"}
    await said(vault, pattern("new"), supported("g", "new"))
    assert (await states(vault))["g"] == "none", "at once, with the reference"
    for day in range(11, 31):
        await run(vault, day)
        assert await states(vault) == {"f": "marked", "g": "none"}, day
    assert (vault.folder / "f").exists()
    # Marked on the first day, deleted on the thirty-first.
    assert (await run(vault, 31))["purged"] == 1
    assert await states(vault) == {"f": "purged", "g": "none"}
    assert not (vault.folder / "f").exists()
    assert (vault.folder / "g").exists()
    [row] = await vault.world.rows("SELECT *, purged_at - marked_at AS grace FROM deletion_record")
    assert (row["file_id"], row["patterns"], row["removed_at"] is not None) == ("f", ["p"], True)
    assert row["grace"] >= timedelta(days=30)
    [audit] = await vault.world.rows("SELECT actor_id FROM memory_access_audit WHERE action = 'delete'")
    assert audit["actor_id"] == "archives"


async def test_a_clock_that_jumps_deletes_nothing(vault: Vault) -> None:
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD))
    await run(vault)
    await run(vault, 1)
    assert await states(vault) == {"f": "marked"}
    for day in (40, 4_000, 3, 4_000, 4_001, 4_002):
        await run(vault, day)
        assert (vault.folder / "f").exists(), day
    rows = await vault.world.rows("SELECT checks, delete_state FROM file_metadata WHERE file_id = 'f'")
    assert rows[0]["delete_state"] == "marked"
    assert rows[0]["checks"] < GRACE_CHECKS


async def test_an_object_store_that_is_away_deletes_nothing(vault: Vault) -> None:
    """Neither marks nor deletions; and an object whose removal failed is removed by the next run."""
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *file("f", "p", BEGIN, OLD))
    await run(vault)
    away = vault.folder.rename(vault.folder.with_name("away"))
    vault.folder.write_text("")
    with pytest.raises(ObjectsUnavailable):
        await run(vault, 1)
    assert await states(vault) == {"f": "none"}
    vault.folder.unlink()
    away.rename(vault.folder)
    vault.world.owner("INSERT INTO deletion_record VALUES ('f', 1, 'x', '{}', now(), now(), 'archives')")
    await run(vault, 2)
    assert not (vault.folder / "f").exists()


@pytest.mark.spec("AR-16")
@pytest.mark.parametrize("subject", [("file", "f"), ("pattern", "p"), ("decision", "d"), ("company", "company:MU")])
async def test_a_hold_defeats_every_rule(vault: Vault, subject: tuple[str, str]) -> None:
    await many(vault)
    vault.put("f")
    await said(vault, *ended(), *cited("d", "p"), decision("else", BEGIN), *file("f", "p", BEGIN, OLD))
    await run(vault)
    assert (await run(vault, 1))["marked"] == 1
    who = {"actor": "ann", "role": "human_admin", "context": context_of(None), "reason": "The court asks."}
    given = {"kind": "legal", "subject_type": subject[0], "subject_id": subject[1], **who}
    [hold] = await vault.world.database.named("hold_place", given, deadline=Deadline.never())
    assert (await run(vault, 2))["restored"] == 1
    assert await states(vault) == {"f": "none"}
    assert (await run(vault, 3))["marked"] == 0
    assert await rules(vault) == ["held", "deletable"]

    release = {"id": hold["id"], **who}
    assert await vault.world.curators.named("hold_release", release, deadline=Deadline.never())
    assert not await vault.world.curators.named("hold_release", release, deadline=Deadline.never())
    assert (await run(vault, 4))["marked"] == 1
    audit = await vault.world.rows(
        "SELECT action, actor_id, resource_id FROM memory_access_audit WHERE action LIKE '%%hold' ORDER BY 1"
    )
    assert [(one["action"], one["actor_id"], one["resource_id"]) for one in audit] == [
        ("place_hold", "ann", " ".join(subject)), ("release_hold", "ann", " ".join(subject)),
    ]  # fmt: skip


@pytest.mark.spec("AR-17")
async def test_six_in_a_hundred_mark_none_until_a_person_approves(vault: Vault) -> None:
    await many(vault, 94)
    for n in range(6):
        vault.put(f"f{n}")
    await said(vault, *ended(), *(line for n in range(6) for line in file(f"f{n}", "p", BEGIN, OLD)))
    await run(vault)
    assert (await run(vault, 1))["halted"] == "cap"
    assert set((await states(vault)).values()) == {"none"}
    [halted] = await vault.world.rows("SELECT id, cold, proposed FROM retention_run WHERE halted = 'cap'")
    assert (halted["cold"], halted["proposed"]) == (100, 6)
    [alert] = await vault.world.rows("SELECT kind FROM workflow.alert")
    assert alert["kind"] == "RETENTION_HALTED"
    who = {"actor": "ann", "role": "human_admin", "context": context_of(None), "reason": "They are right."}
    [row] = await vault.database.named("retention_approve", {"id": halted["id"], **who}, deadline=Deadline.never())
    assert row["done"]
    assert (await run(vault, 2))["marked"] == 6


@pytest.mark.spec("AR-6")
async def test_a_label_that_changes_is_recorded(vault: Vault) -> None:
    created = NOW - timedelta(days=730 * 2)
    await said(
        vault, pattern("p", "active"), *file("f", "p", BEGIN, months_after(NOW, -23)), *file("g", "p", BEGIN, created)
    )
    labels = "SELECT file_id, label FROM file_metadata ORDER BY 1"
    assert [row["label"] for row in await vault.world.rows(labels)] == ["hot", "warm"]
    assert (await run(vault, 62))["labelled"] == 1
    assert [row["label"] for row in await vault.world.rows(labels)] == ["warm", "warm"]
    [moved] = await vault.world.rows("SELECT payload FROM event WHERE kind = 'link.MIGRATED_TO_TIER'")
    props = moved["payload"]["props"]
    assert (moved["payload"]["to_key"], props["from_tier"], props["to_tier"]) == ("f", "hot", "warm")
    [storage] = await vault.world.rows(
        "SELECT e.payload #> '{groups,storage}' AS s FROM record_head AS h JOIN event AS e USING (position)"
        " WHERE h.kind = 'DataFile' AND h.grp = 'storage'"
    )
    assert storage["s"]["supports_pattern_count"] == 1
    assert (await run(vault, 63))["labelled"] == 0


async def test_the_labels_of_postgres_are_those_of_the_rules(vault: Vault) -> None:
    for created in (datetime(2020, 2, 29, 23, 30, tzinfo=UTC), datetime(2019, 12, 31, tzinfo=UTC)):
        for years in (2, 5):
            for days in range(-3, 4):
                now = months_after(created, 12 * years) + days * DAY + timedelta(minutes=20)
                [row] = await vault.world.rows("SELECT imem_label_v1(%s, %s) AS label", created, now)
                assert row["label"] == label_of(created, now).value, (created, now)
