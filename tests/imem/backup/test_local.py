"""The local stack: backed up as it runs, restored on an empty machine, where Postgres alone is started for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from imem.local import state
from imem.local.folders import Folders
from imem.local.migrate import migrate
from imem.local.supervisor import LocalStack
from tests.conftest import settings_for, temporary_home
from tests.imem.backup.conftest import LINES
from tests.imem.local.programs import imem, shown


@pytest.fixture
def machine() -> Iterator[Path]:
    """Lend the home of another machine, with passwords of its own."""
    with temporary_home() as folder:
        yield folder


def document(home: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = imem(home, *words, "--json")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sentence(home: Path, *words: str) -> str:
    done = imem(home, *words)
    assert (done.returncode in {1, 2}, "Traceback" in done.stderr) == (True, False), done.stdout + done.stderr
    return " ".join(done.stderr.replace("\u2502", " ").split())


@pytest.mark.spec("IF-12")
@pytest.mark.e2e
def test_an_empty_machine_has_the_same_graph_and_rows(home: Path, machine: Path, tmp_path: Path) -> None:
    place, lines = str(tmp_path / "backup"), tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    with LocalStack(settings_for(home), workers=False, migrate=migrate):
        document(home, "load", "--no-wait", str(lines))
        imem(home, "rebuild", "graph", "--in-place")
        made = document(home, "backup", place)
        assert made["graph_unknown"] is None
        assert "A stack runs on this home" in sentence(home, "restore", place)

    assert document(machine, "verify", place)["ok"]
    done = document(machine, "restore", place, "--wait")

    assert done["graph_same"] is True
    assert done["tables"] == made["tables"]
    assert "is not empty" in sentence(machine, "restore", place)
    assert "is not empty" in sentence(home, "restore", place)
    with LocalStack(settings_for(machine), workers=False, migrate=migrate) as stack:
        assert document(machine, "graph", "hash")["digest"] == made["graph_hash"]
        with psycopg.connect(shown(stack.settings.postgres_url), autocommit=True) as conn:
            assert conn.execute("SELECT count(*) FROM event").fetchone() == (made["tables"]["public.event"],)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("DELETE FROM delivery")
        later = document(machine, "load", "--no-wait", str(lines), "--source", "later")
        assert later["new"] + later["changed"] > 0


@pytest.mark.e2e
def test_a_stack_that_has_run_without_data_is_empty(home: Path, machine: Path, tmp_path: Path) -> None:
    """Its workers have written what they need; nothing of it is lost by the restore. A backup takes Postgres alone."""
    place = str(tmp_path / "backup")
    with LocalStack(settings_for(home), servers={"postgres"}, workers=False) as alone:
        migrate(alone.settings)
    made = document(home, "backup", place)
    assert made["graph_unknown"] == "The graph did not run."
    started = document(machine, "up", "--detach")
    assert started["ready"]
    document(machine, "down")

    done = document(machine, "restore", place)

    assert done["graph_same"] is None
    assert done["journal"] == made["journal"]
    assert state.running(Folders(machine)) is None
