"""``imem verify``: what is missing, what was changed, and what does not come back; the rounds that use it."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from imem.backup.manifest import DUMP, FILES, MANIFEST
from imem.backup.rounds import BACK_UP, FAILED, UNVERIFIED, VERIFY, daily
from imem.jobs.celery_tasks import beat_schedule
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import sha256_of
from imem.journal.errors import BackupError
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.workers.pipelines import PIPELINES
from tests.imem.backup.conftest import Office
from tests.servers import as_pipelines, asked

DATABASES = "SELECT datname FROM pg_database WHERE datname LIKE 'imem_verify_%'"


def test_a_sound_backup_is_restored_and_dropped_again(office: Office) -> None:
    office.runs("backup", office.place)

    found = office.runs("verify", office.place)

    assert (found["ok"], found["missing"], found["changed"], found["tables_differing"]) == (True, [], [], [])
    assert asked(office.harness.admin_url, DATABASES) == []


@pytest.mark.parametrize("name", [DUMP, f"{FILES}/evidence/p1/1.json"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "whole"])
def test_a_flipped_byte_and_a_missing_object_are_named(office: Office, name: str, *, quick: bool) -> None:
    office.runs("backup", office.place)
    words = ("verify", *(["--quick"] if quick else []), office.place)
    path = office.place / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert office.runs(*words, code=1)["changed"] == [name]
    assert f"{name} was changed" in office.says("restore", office.place)

    path.unlink()
    assert office.runs(*words, code=1)["missing"] == [name]
    assert f"{name} is missing" in office.says("restore", office.place)


def test_a_manifest_that_was_changed_is_none(office: Office) -> None:
    office.runs("backup", office.place)
    path = office.place / MANIFEST
    whole = path.read_bytes()
    for content in (whole.replace(b"position", b"positiom"), whole[:-20], b"[]", b"{}", b""):
        path.write_bytes(content)
        assert "manifest.json is damaged" in office.says("verify", office.place)


def test_rows_that_do_not_come_back_are_named(office: Office) -> None:
    office.runs("backup", office.place)
    path = office.place / MANIFEST
    manifest = json.loads(json.loads(path.read_bytes())["manifest"])
    manifest["tables"]["public.event"] += 1
    text = json.dumps(manifest)
    path.write_text(json.dumps({"sha256": sha256_of(text.encode()), "manifest": text}))

    found = office.runs("verify", office.place, code=1)

    number = office.harness.count("event")
    assert found["tables_differing"] == [f"public.event: {number} rows instead of {number + 1}"]
    assert office.runs("verify", "--quick", office.place)["ok"]
    assert asked(office.harness.admin_url, DATABASES) == []


def test_a_place_without_a_backup_is_named(office: Office) -> None:
    assert "There is no complete backup" in office.says("verify", office.place)
    assert "names no bucket" in office.says("verify", "s3://")
    office.place.write_text("no folder")
    assert "is a file; name a folder" in office.says("backup", office.place)


# Rounds


class Round:
    """A worker process's runtime, as far as the rounds need it."""

    def __init__(self, office: Office, **changes: Any) -> None:
        settings = office.harness.settings.model_copy(update={"backup_url": str(office.place), **changes})
        self.database = Database(as_pipelines(settings, office.harness.url), size=2)
        self.runtime: Any = SimpleNamespace(settings=settings, database=self.database)

    async def run(self, pipeline: Any) -> Any:
        """Do a round, and close the connections."""
        try:
            return await pipeline.step(self.runtime, Deadline.never())
        finally:
            await self.database.close()


def alerts(office: Office) -> list[tuple[str, bool]]:
    rows = asked(
        office.harness.admin_url, "SELECT kind, closed_at IS NULL AS open FROM workflow.alert ORDER BY raised_at"
    )
    return [(row["kind"], row["open"]) for row in rows]


async def test_a_day_has_one_backup_and_the_newest_are_kept(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    today = SystemClock().now()
    for ago in range(4, 0, -1):
        monkeypatch.setattr(SystemClock, "now", lambda _, ago=ago: today - timedelta(days=ago))
        assert (await daily(office.harness.settings, str(office.place)))["made"]
    (office.place / (today - timedelta(days=3)).date().isoformat() / MANIFEST).unlink()
    monkeypatch.setattr(SystemClock, "now", lambda _: today)

    first = await Round(office, backup_keep=2).run(BACK_UP)
    again = await Round(office, backup_keep=2).run(BACK_UP)

    days = [(today - timedelta(days=ago)).date().isoformat() for ago in range(5)]
    assert (first["day"], first["made"], again["made"]) == (days[0], True, False)
    assert sorted(first["deleted"]) == sorted(days[2:])
    left = sorted(path.parent.name for path in office.place.glob(f"*/{MANIFEST}"))
    assert left == sorted(days[:2])
    assert await Round(office).run(VERIFY) | {"rows": 0} == {"day": days[0], "rows": 0, "objects": 4}
    assert alerts(office) == []


async def test_a_failed_round_raises_an_alert_and_the_next_closes_it(office: Office) -> None:
    with pytest.raises(BackupError, match="There is no complete backup"):
        await Round(office).run(VERIFY)
    with pytest.raises(BackupError, match="There is no complete backup"):
        await Round(office).run(VERIFY)
    office.place.write_text("no folder")
    with pytest.raises(Exception, match="no object can be stored"):
        await Round(office).run(BACK_UP)
    assert alerts(office) == [(UNVERIFIED, True), (FAILED, True)]

    office.place.unlink()
    await Round(office).run(BACK_UP)
    await Round(office).run(VERIFY)
    assert alerts(office) == [(UNVERIFIED, False), (FAILED, False)]


async def test_without_a_place_there_are_no_rounds() -> None:
    names = {BACK_UP.name, VERIFY.name}
    assert names & beat_schedule(PIPELINES, Settings.read({})).keys() == set()
    assert names <= beat_schedule(PIPELINES, Settings.read({"IMEM_BACKUP_URL": "/backups"})).keys()
    runtime: Any = SimpleNamespace(settings=Settings.read({}))
    assert await BACK_UP.step(runtime, Deadline.never()) == {}
