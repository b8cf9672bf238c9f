"""For root, Postgres' data belongs to a user that only this installation has."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import psycopg
import pytest

from imem.journal.errors import StackError
from imem.local.doctor import checks
from imem.local.folders import Folders, Secrets
from imem.local.process import Command, RunAs
from imem.local.servers import postgres
from imem.local.servers.postgres import NUMBERS_FOR_ROOT, Postgres, own_user
from imem.local.supervisor import LocalStack
from tests.conftest import settings_for
from tests.imem.local.programs import shown

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's Postgres runs as that user")


def data_of(home: Path) -> Path:
    return Postgres(Folders(home), Secrets.of(Folders(home))).data


def owners(data: Path) -> set[tuple[int, int]]:
    """Return user and group of everything in the data folder, and of itself."""
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (data, *data.rglob("*"))}


def test_no_program_of_another_account_reaches_the_data(home: Path) -> None:
    """Neither *nobody* nor any other account; the server runs as the number that owns the files."""
    with LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack:
        data = data_of(home)
        (found,) = owners(data)
        assert found[0] == found[1]
        assert found[0] in NUMBERS_FOR_ROOT
        with pytest.raises(KeyError):
            pwd.getpwuid(found[0])
        child = stack.state.children["postgres"]
        assert Path(f"/proc/{child.pid}").stat().st_uid == found[0]
        assert data.parent.stat().st_mode & 0o077 == 0
        nobody = pwd.getpwnam("nobody")
        looking = Command(("/bin/ls", str(data)), Path("/"), run_as=RunAs(nobody.pw_uid, nobody.pw_gid))
        assert _ended(looking, home) != 0
        assert [one.text for one in checks._postgres_user(Folders(home))] == []


def _ended(command: Command, home: Path) -> int:
    return subprocess.run(command.wrapped(), env=command.environment(home), capture_output=True, check=False).returncode


def test_data_of_an_earlier_version_is_given_to_the_own_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belonged to *nobody*, which the doctor says; what is in it stays. A second name of a file is refused."""
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "own_user", lambda _: None)  # As before, and as where the numbers cannot be used.
        with (
            LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack,
            psycopg.connect(shown(stack.settings.postgres_admin_url), autocommit=True) as connection,
        ):
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    data = data_of(home)
    nobody = pwd.getpwnam("nobody")
    assert owners(data) == {(nobody.pw_uid, nobody.pw_gid)}
    (told,) = checks._postgres_user(Folders(home))
    assert "belongs to 'nobody'" in told.text
    second = home / "second"
    second.hardlink_to(data / "PG_VERSION")
    with pytest.raises(StackError, match="has a second name"):
        LocalStack(settings_for(home), servers={"postgres"}, workers=False).start()
    second.unlink()

    with (
        LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack,
        psycopg.connect(shown(stack.settings.postgres_admin_url)) as connection,
    ):
        assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
        (found,) = owners(data)
        assert found[0] in NUMBERS_FOR_ROOT


def test_two_installations_have_two_users_and_accounts_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number follows from the installation; one that has an account is not taken."""
    first, second = own_user("00" * 8), own_user("00" * 7 + "01")
    assert first is not None
    assert second is not None
    assert first.uid != second.uid
    assert own_user("00" * 8) == first
    monkeypatch.setattr(postgres, "_has_account", lambda number: number == first.uid)
    assert own_user("00" * 8) == second


def test_where_numbers_are_not_mapped_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that maps a thousand users: what is left is *nobody*."""
    monkeypatch.setattr(postgres, "_maps_numbers", lambda _: False)
    folders = Folders(tmp_path)
    folders.prepare()

    assert own_user("00" * 8) is None
    assert Postgres(folders, Secrets.of(folders)).command().run_as == postgres.user()
