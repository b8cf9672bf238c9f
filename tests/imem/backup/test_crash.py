"""Backups and restores are killed at each point: nothing of them counts, and the same call completes them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from typing import Final

import pytest

from imem.backup.database import row_counts, target_of
from imem.backup.manifest import DUMP, MANIFEST
from imem.journal.endpoints.objects import PART
from tests.imem.backup.conftest import Office, empty_office
from tests.imem.backup.killed import BACKUP, BEFORE_MANIFEST, RESTORE
from tests.killed_programs import killed_program
from tests.servers import let_go
from tests.waiting import until
from tests.workers import variables

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 1
"""At each point."""

MODULE: Final = "tests.imem.backup.killed"


@pytest.mark.longer
@pytest.mark.spec("IF-12")
async def test_a_backup_that_was_killed_is_none_and_is_repeated(office: Office) -> None:
    async with killed_program(MODULE, variables(office.harness.settings)) as program:
        for number in range(KILLS):
            for point in BACKUP:
                place = office.place / point / str(number)
                line = json.dumps({"command": "backup", "place": str(place), "point": point})
                assert await program.ended(line) == -signal.SIGKILL, point
                here = Office(office.harness, place)
                if point in BEFORE_MANIFEST:
                    assert not (place / MANIFEST).exists(), point
                    assert "There is no complete backup" in await asyncio.to_thread(
                        here.says, "verify", "--quick", place
                    )
                    assert "There is no complete backup" in await asyncio.to_thread(here.says, "restore", place)
                    assert await program.ended(json.dumps({**json.loads(line), "point": ""})) == 0, point
                assert (await asyncio.to_thread(here.runs, "verify", "--quick", place))["ok"], point
                assert [path.name for path in place.glob(f"{DUMP}*{PART}")] == [], point


@pytest.mark.longer
async def test_a_restore_that_was_killed_leaves_nothing_or_all(office: Office) -> None:
    made = await asyncio.to_thread(office.runs, "backup", office.place)
    for number in range(KILLS):
        for point in RESTORE:
            with empty_office(office, f"{point}{number}") as empty:
                line = {"command": "restore", "place": str(office.place), "point": point}
                async with killed_program(MODULE, variables(empty.harness.settings)) as program:
                    assert await program.ended(json.dumps(line)) == -signal.SIGKILL, point
                    await until(partial(_alone, empty.harness.admin_url))
                    if point != "after_dump":
                        assert await row_counts(empty.harness.admin_url) == {}, point
                        assert await program.ended(json.dumps({**line, "point": ""})) == 0, point
                assert await row_counts(empty.harness.admin_url) == made["tables"], point
                assert "is not empty" in await asyncio.to_thread(empty.says, "restore", office.place)
                # What `imem up` runs: it gives the roles their rights.
                await asyncio.to_thread(empty.runs, "migrate")
                let_go(empty.harness.admin_url)


async def _alone(url: str) -> bool:
    return (await target_of(url)).sessions == 0
