"""Archives follow from the journal: which tier, what is in them, and that each is built once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imem.archives.access import Archives
from imem.archives.archive import MANIFEST, VERSIONS, verify
from imem.archives.building import check_archive, rebuild_index
from imem.archives.contents import folder_of
from imem.archives.marker import MARKER
from imem.archives.retention import retain
from imem.journal.actors import Actor
from imem.journal.clock import years_after
from imem.journal.deadline import Deadline
from imem.journal.errors import ConsistencyError, ObjectsUnavailable
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from tests.archives.conftest import BEGIN, DAY, Vault, became, cited, file, found_by, late, pattern, validated
from tests.credibility.conftest import finding, reading

SOON = Deadline.never()


@pytest.mark.spec("AR-1")
async def test_the_first_passed_test_yields_one_archive(vault: Vault) -> None:
    vault.put("filings/mu.csv")
    await vault.say(pattern(), validated("v0", passed=False), *file("filings/mu.csv"))
    await vault.settle()
    assert not vault.files(), "a failed test yields none"
    assert (await vault.evidence())["archive_tier"] == 0

    await vault.say(validated("v1", at=BEGIN + DAY))
    assert (await vault.archive())["built"] == 1
    await vault.settle()
    assert [*vault.files()] == [
        "archive_metadata.json", "tier1/analysis_snapshot.json", "tier1/metadata.json", "tier1/processed_summary.json",
    ]  # fmt: skip
    evidence = await vault.evidence()
    assert (evidence["archive_tier"], evidence["archive_refs"]) == (1, ["pattern_archives/p/tier1"])
    [row] = await vault.world.rows("SELECT * FROM pattern_archive")
    assert (row["tier"], row["state"], row["gaps"]) == (1, "complete", [])
    assert row["retention_expiry"].year - row["created_at"].year == 7
    assert (await verify(vault.objects, "p", 1, manifest_sha256=row["manifest_sha256"], deadline=SOON)).ok
    summary = json.loads(vault.files()["tier1/processed_summary.json"])
    assert [one["key"] for one in summary["tests"]] == ["v0", "v1"]

    before, events = vault.files(), await vault.world.rows("SELECT count(*) AS n FROM event")
    await vault.database.rows(
        "INSERT INTO due_row (queue, kind, key) VALUES ('archives', 'Pattern', 'p') RETURNING 1", deadline=SOON
    )
    assert (await vault.archive())["built"] == 0
    assert vault.files() == before
    assert await vault.world.rows("SELECT count(*) AS n FROM event") == events


@pytest.mark.spec("AR-2")
async def test_a_decision_that_cites_it_yields_all(vault: Vault) -> None:
    vault.put("filings/ratios/mu.csv", b"a ratio")
    await vault.say(pattern(), validated("v1"), *found_by("a"), *file("filings/ratios/mu.csv"))
    await vault.world.say(finding("f", BEGIN, BEGIN + 90 * DAY, analysis_id="a", probability=0.7))
    await vault.settle()
    first = vault.files()
    await vault.say(*cited("d"))
    await vault.settle()
    found = vault.files()
    assert (await vault.evidence())["archive_tier"] == 2
    for name in ("metadata", "processed_summary", "analysis_snapshot"):
        assert found[f"tier1/{name}.json"] == first[f"tier1/{name}.json"], "a complete archive is not changed"
        assert json.loads(found[f"tier2/all_tier1_content/{name}.json"])
    assert found["tier2/processed_data/ratios/filings%2Fratios%2Fmu%2Ecsv"] == b"a ratio"
    assert json.loads(found["tier2/agent_analysis/findings.json"])[0]["key"] == "f"
    assert any(name.startswith("tier2/validation_history/2020-01-01-v1-") for name in found)
    rows = await vault.world.rows("SELECT tier, manifest_version FROM pattern_archive ORDER BY 1")
    assert rows == [{"tier": 1, "manifest_version": 2}, {"tier": 2, "manifest_version": 2}]
    directories = await vault.world.rows("SELECT key FROM record_head WHERE kind = 'ArchiveDirectory' ORDER BY 1")
    assert [one["key"] for one in directories] == ["p/tier1", "p/tier2"]


async def test_a_late_pattern_that_ends_gets_all(vault: Vault) -> None:
    await vault.say(pattern(status="active"), validated("v1"), became("p", "deprecated", BEGIN + DAY))
    await vault.settle()
    assert sorted(vault.manifest()["tiers"]) == ["2"]
    [row] = await vault.world.rows("SELECT * FROM archive_index")
    assert (row["status"], row["deprecation_date"], row["industry_tags"]) == ("deprecated", BEGIN + DAY, ["semis"])


async def test_later_tests_are_added_and_nothing_is_changed(vault: Vault) -> None:
    await vault.say(pattern(), validated("v1"))
    await vault.settle()
    before = vault.files()
    await vault.say(validated("v2", at=BEGIN + 40 * DAY))
    assert (await vault.archive())["extended"] == 1
    after = vault.files()
    [added] = after.keys() - before.keys()
    assert added.startswith("tier1/validation_history/2020-02-10-v2-")
    assert {name for name in before if before[name] != after[name]} == {"archive_metadata.json"}
    assert vault.manifest()["version"] == 2
    assert "validation_history" in vault.manifest()["tiers"]["1"]["content_types"]


async def test_missing_evidence_is_listed_and_does_not_suffice(vault: Vault) -> None:
    vault.put("there.csv")
    await vault.say(
        pattern(evidence_refs=["there.csv", "nowhere"]), validated("v1"), *file("there.csv"), *file("lost.csv")
    )
    await vault.settle()
    [row] = await vault.world.rows("SELECT state, gaps FROM pattern_archive")
    assert row == {"state": "complete", "gaps": ["lost.csv", "nowhere"]}
    assert not await check_archive(vault.database, vault.objects, "p", 1, deadline=SOON)
    [alert] = await vault.world.rows("SELECT kind, payload ->> 'reason' AS reason FROM workflow.alert")
    assert alert["kind"] == "ARCHIVE_INCOMPLETE"
    assert "lost.csv, nowhere" in alert["reason"]


@pytest.mark.spec("AR-5")
async def test_one_flipped_byte_is_reported(vault: Vault) -> None:
    await vault.say(pattern(), validated("v1"))
    await vault.settle()
    assert await check_archive(vault.database, vault.objects, "p", 1, deadline=SOON)
    for name, content in vault.files().items():
        path = vault.folder / "pattern_archives/p" / name
        path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
        assert not await check_archive(vault.database, vault.objects, "p", 1, deadline=SOON), name
        result = await verify(vault.objects, "p", 1, manifest_sha256=await sha256(vault), deadline=SOON)
        assert result.mismatched == (f"pattern_archives/p/{name}",)
        path.unlink()
        assert (await verify(vault.objects, "p", 1, deadline=SOON)).missing == (f"pattern_archives/p/{name}",)
        path.write_bytes(content)
    [alert] = await vault.world.rows("SELECT kind FROM workflow.alert")
    assert alert["kind"] == "ARCHIVE_CORRUPT"
    assert await check_archive(vault.database, vault.objects, "p", 1, deadline=SOON), "restored from a replica"
    [closed] = await vault.world.rows("SELECT closed_at FROM workflow.alert")
    assert closed["closed_at"] is not None


async def sha256(vault: Vault) -> str:
    [row] = await vault.world.rows("SELECT manifest_sha256 FROM pattern_archive")
    return str(row["manifest_sha256"])


async def test_a_store_that_is_away_leaves_patterns_due(vault: Vault) -> None:
    await vault.say(pattern(), validated("v1"))
    vault.folder.write_text("no folder")
    with pytest.raises(ObjectsUnavailable):
        await vault.archive()
    assert await vault.evidence() == {}
    vault.folder.unlink()
    await vault.settle()
    assert (await vault.evidence())["archive_tier"] == 1


async def test_two_workers_build_one_archive(vault: Vault) -> None:
    await vault.say(*(line for n in range(6) for line in (pattern(f"p{n}"), validated(f"v{n}", f"p{n}"))))
    await asyncio.gather(*(vault.archive() for _ in range(3)))
    [counted] = await vault.world.rows("SELECT count(*) AS n FROM pattern_archive WHERE manifest_version = 1")
    events = await vault.world.rows("SELECT count(*) AS n FROM event WHERE kind = 'record.ArchiveDirectory'")
    assert (counted["n"], events[0]["n"]) == (6, 6)


@pytest.mark.spec("AR-27")
async def test_a_lost_index_is_rebuilt_from_the_archives(vault: Vault) -> None:
    await vault.world.say(reading("r", BEGIN - 10 * DAY, "BULL_LOW_RATES"))
    for n, key in enumerate(["p", "q/../r", "é" * 150, "..", "last"]):
        await vault.say(
            pattern(key, "active", confidence_score=n / 10),
            validated(f"v{n}", key),
            *(cited(f"d{n}", key) if n % 2 else []),
        )
        await vault.say(late(key, BEGIN + DAY, performance={"success_rate": 0.7, "occurrence_count": 9}))
    await vault.settle()
    await vault.say(became("last", "deprecated", BEGIN + DAY))
    await vault.settle()
    tables = ("archive_index", "pattern_archive")
    columns = {
        "archive_index": "*",
        "pattern_archive": "pattern_id, tier, path, manifest_version, manifest_sha256, size_bytes, gaps",
    }
    before = {one: await vault.world.rows(f"SELECT {columns[one]} FROM {one} ORDER BY 1, 2") for one in tables}
    assert len(before["archive_index"]) == 5
    assert {tuple(one["regime_tags"]) for one in before["archive_index"]} == {("BULL_LOW_RATES",)}

    vault.world.owner("TRUNCATE archive_index, pattern_archive")
    assert await rebuild_index(vault.database, vault.objects, deadline=SOON) == 5
    assert {one: await vault.world.rows(f"SELECT {columns[one]} FROM {one} ORDER BY 1, 2") for one in tables} == before


async def test_a_store_that_is_missing_is_no_empty_one(vault: Vault) -> None:
    """A folder that is not mounted, or another journal's: nothing is archived, verified, retained or rebuilt."""
    await vault.say(pattern(), validated("v1"))
    await vault.settle()
    marker = vault.folder / MARKER
    content = marker.read_bytes()
    away = vault.folder.rename(vault.folder.with_name("elsewhere"))
    vault.folder.mkdir()
    await vault.say(validated("v2"))
    archives = Archives(vault.gateway, vault.objects)
    calls = (
        vault.archive,
        lambda: archives.verify("p", deadline=SOON),
        lambda: retain(vault.runtime, until=SOON),
        lambda: rebuild_index(vault.database, vault.objects, deadline=SOON),
    )
    for call in calls:
        with pytest.raises(ObjectsUnavailable, match="empty, or another one than before"):
            await call()
    marker.write_bytes(content.replace(b'"journal": "', b'"journal": "x'))
    for call in calls:
        with pytest.raises(ObjectsUnavailable, match="belongs to another journal"):
            await call()
    assert [one.name for one in vault.folder.iterdir()] == [MARKER]
    assert (await vault.world.rows("SELECT state FROM pattern_archive")) == [{"state": "complete"}]

    marker.unlink()
    vault.folder.rmdir()
    away.rename(vault.folder)
    await vault.settle()
    assert vault.manifest()["version"] == 2


def replaced(vault: Vault, key: str = "p") -> None:
    """Put a manifest in the place of the one that was recorded; it is as good a manifest as any."""
    path = vault.folder / folder_of(key) / MANIFEST
    path.write_text(path.read_text().replace('"confidence": null', '"confidence": 0.99'))


@pytest.mark.spec("AR-5")
async def test_a_manifest_that_was_not_recorded_does_not_count(vault: Vault, tmp_path: Path) -> None:
    """A build goes on from the copy of the recorded one; nobody retrieves, and a rebuild says that it is corrupt."""
    await vault.say(*(line for key in ("p", "q") for line in (pattern(key), validated(f"v-{key}", key))))
    await vault.settle()
    replaced(vault)
    archives = Archives(Gateway(vault.world.curators, Actor("ann", Role.HUMAN_ADMIN)), vault.objects)
    with pytest.raises(ConsistencyError, match="not the one that was recorded"):
        await archives.retrieve("p", tmp_path / "copy", deadline=SOON)
    assert await rebuild_index(vault.database, vault.objects, deadline=SOON) == 2
    states = "SELECT pattern_id, state FROM pattern_archive ORDER BY 1"
    assert [row["state"] for row in await vault.world.rows(states)] == ["corrupt", "complete"]
    assert (await archives.entry("p", deadline=SOON))["confidence"] is None

    await vault.say(validated("v2"))
    await vault.settle()
    assert (vault.manifest()["version"], vault.manifest()["index"].get("confidence")) == (2, None)
    assert await check_archive(vault.database, vault.objects, "p", 1, deadline=SOON)


async def test_one_damaged_archive_does_not_stop_the_others(vault: Vault) -> None:
    keys = ["p", "q", "r", "s", "t"]
    await vault.say(*(line for key in keys for line in (pattern(key), validated(f"v-{key}", key))))
    await vault.settle()
    replaced(vault, "q")
    (vault.folder / folder_of("q") / VERSIONS / "1.json").unlink()
    await vault.say(*(validated(f"w-{key}", key) for key in keys))
    await vault.settle()
    assert [vault.manifest(key)["version"] for key in keys] == [2, 1, 2, 2, 2]
    [row] = await vault.world.rows("SELECT key, set_aside FROM due_row WHERE queue = 'archives'")
    assert row["key"] == "q"
    assert "not the one that was recorded" in row["set_aside"]
    [alert] = await vault.world.rows("SELECT kind FROM workflow.alert WHERE closed_at IS NULL")
    assert alert["kind"] == "WORK_SET_ASIDE"


async def test_a_file_that_no_store_has_a_place_for_is_a_gap(vault: Vault) -> None:
    """Its name is too long, a folder, or below another file: so it is with every program."""
    vault.put("folder/file", b"1")
    names = ["x" * 190 + "/" + "y" * 5, "folder", "folder/file/below", "a?versionId=1"]
    long = "é" * 140
    await vault.say(pattern(), validated("v1"), *(line for name in [*names, long] for line in file(name)))
    await vault.settle()
    [row] = await vault.world.rows("SELECT gaps FROM pattern_archive")
    assert row["gaps"] == sorted([*names, long])


def test_the_expiry_of_a_leap_day() -> None:
    assert years_after(datetime(2020, 2, 29, tzinfo=UTC), 7) == datetime(2027, 2, 28, tzinfo=UTC)
    assert years_after(datetime(2020, 2, 29, tzinfo=UTC), 8) == datetime(2028, 2, 29, tzinfo=UTC)
