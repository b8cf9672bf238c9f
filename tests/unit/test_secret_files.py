"""Secrets may stand in files: the variable with ``_FILE`` at its end names one, and nothing of it is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from docs import from_code
from imem.cli import app
from imem.journal.errors import SettingsError
from imem.journal.settings import FILE_SUFFIX, PREFIX, Settings


def held(folder: Path, text: str) -> str:
    """Return the path of a file that holds *text*."""
    path = folder / "secret"
    path.write_bytes(text.encode())
    return str(path)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_the_text_of_its_file(tmp_path: Path, end: str) -> None:
    """Without the newline that editors put at its end; a space is a part of it."""
    found = Settings.read({"IMEM_NEO4J_PASSWORD_FILE": held(tmp_path, f"s3cret pw {end}")})

    assert found.neo4j_password == SecretStr("s3cret pw ")
    assert "s3cret" not in repr(found)


def test_an_address_from_a_file_is_checked_like_any_other(tmp_path: Path) -> None:
    """By the name of its setting, and without being shown."""
    variables = {"IMEM_POSTGRES_URL_FILE": held(tmp_path, "postgresql://u:s3cret/pw@h/db")}

    with pytest.raises(SettingsError, match=r"^IMEM_POSTGRES_URL ") as caught:
        Settings.read(variables)

    assert "cret" not in str(caught.value)


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    """Whoever changed one of the two would wonder why nothing changed."""
    variables = {"IMEM_NEO4J_PASSWORD": "s3cretpw", "IMEM_NEO4J_PASSWORD_FILE": held(tmp_path, "another")}

    with pytest.raises(SettingsError, match="IMEM_NEO4J_PASSWORD and IMEM_NEO4J_PASSWORD_FILE are both set") as caught:
        Settings.read(variables)

    assert "s3cretpw" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read (FileNotFoundError)"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"s3cret\xff", "cannot be read (UnicodeDecodeError)"),
        (b"s3cret" * 20_000, "is too long"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """In a sentence that names the variable and shows nothing of the file."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SettingsError) as caught:
        Settings.read({"IMEM_VALKEY_CACHE_URL_FILE": str(path)})

    assert str(caught.value).startswith("IMEM_VALKEY_CACHE_URL_FILE names a file that ")
    assert reason in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_only_secrets_stand_in_files(name: str, tmp_path: Path) -> None:
    """The variable of any other setting is as unknown as a misspelt one; the reference says which are secret."""
    variable = PREFIX + name.upper() + FILE_SUFFIX
    [row] = [line for line in from_code.settings().splitlines() if f"| `{PREFIX}{name.upper()}` |" in line]

    assert ("*Secret.*" in row) == (name in Settings.secrets())
    if variable not in Settings.variables():
        with pytest.raises(SettingsError, match=f"Unknown setting {variable}"):
            Settings.read({variable: held(tmp_path, "1")})


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    """As for every setting; an override wins over the file, which then is not even read."""
    missing = str(tmp_path / "missing")

    assert Settings.read({"IMEM_NEO4J_PASSWORD_FILE": ""}).neo4j_password is None
    found = Settings.read({"IMEM_NEO4J_PASSWORD_FILE": missing}, neo4j_password=SecretStr("mine"))
    assert found.neo4j_password == SecretStr("mine")


def test_the_list_of_settings_hides_what_a_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``imem doctor --settings`` knows the variable, and shows that the secret is there and nothing of it."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IMEM_NEO4J_PASSWORD_FILE", held(tmp_path, "s3cretpw"))
    ran = CliRunner().invoke(app, ["doctor", "--settings", "--json"])

    assert json.loads(ran.stdout)["IMEM_NEO4J_PASSWORD"] == str(SecretStr("s3cretpw"))
    assert "s3cretpw" not in ran.output
