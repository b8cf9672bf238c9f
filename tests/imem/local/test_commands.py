"""The commands as a person types them: output, exit codes, and one sentence for each trouble."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.local import state
from imem.local.folders import Folders
from imem.local.supervisor import LocalStack
from tests.conftest import Stack, settings_for
from tests.imem.local.programs import TOP, environment, identity_of, imem, nothing_left, shown, sure


def test_up_in_a_terminal_shows_a_table_and_ends_on_ctrl_c(home: Path, stack: Stack) -> None:
    """A live table with every server; Ctrl-C stops all of them and is no failure. Neo4j is one that runs already."""
    named = {
        "IMEM_NEO4J_URL": sure(stack.settings.neo4j_url),
        "IMEM_NEO4J_PASSWORD": shown(stack.settings.neo4j_password),
    }
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "imem", "up"],
        env=environment(IMEM_HOME=str(home), TERM="xterm", COLUMNS="120", **named),
        cwd=TOP,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    with process, os.fdopen(mine, "rb", buffering=0) as terminal:
        while b"Ctrl-C stops the stack" not in screen:
            screen += sure(terminal.read(65536))
        assert b"valkey-durable" in screen
        assert b"elsewhere" in screen
        assert named["IMEM_NEO4J_PASSWORD"].encode() not in screen
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # Reading a terminal that nobody holds any more is an error.
            while terminal.read(65536):
                pass

    assert process.returncode == 0
    assert nothing_left(home)


def test_status_and_down_without_a_stack(home: Path) -> None:
    """Both say so; only status fails."""
    shown, stopped = imem(home, "status"), imem(home, "down")

    assert (shown.returncode, shown.stdout) == (1, "No stack runs here. `imem up` starts one.\n")
    assert (stopped.returncode, stopped.stdout) == (0, f"No stack runs on {home}.\n")
    assert json.loads(imem(home, "status", "--json").stdout) == {"running": False, "ready": False, "children": {}}


def test_status_of_a_stack_that_limps(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 when something is not ready."""
    monkeypatch.setenv("IMEM_HOME", str(home))
    with LocalStack(settings_for(home), servers={"valkey"}, workers=False) as stack:
        assert CliRunner().invoke(app, ["status"]).exit_code == 0
        os.kill(identity_of(stack.state, "valkey-cache").pid, signal.SIGSTOP)
        limping = stack.state.with_child("valkey-cache", state="restarting")
        state.write(Folders(home), limping)
        assert CliRunner().invoke(app, ["status"]).exit_code == 3
        os.kill(identity_of(stack.state, "valkey-cache").pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("words", "more", "code", "said"),
    [
        (["logs", "nothing"], {}, 1, "There is no log 'nothing'. There are: none yet."),
        (["status"], {"IMEM_HOEM": "/x"}, 2, "Unknown setting IMEM_HOEM."),
        (["status"], {"IMEM_DEADLINE_MS": "soon"}, 2, "IMEM_DEADLINE_MS:"),
        (["up"], {"IMEM_POSTGRES_URL": "postgresql://u:hunter2@h:port/d"}, 2, "IMEM_POSTGRES_URL has a port"),
        (["up", "-d"], {"IMEM_NEO4J_URL": "bolt://h:99999"}, 2, "IMEM_NEO4J_URL has a port"),
        (["up"], {"IMEM_NEO4J_VERSION": "4.4.0"}, 1, "Neo4j 4.4.0 is not one this program can fetch."),
        (["migrate"], {}, 1, "Start one with `imem up`"),
        (["nonsense"], {}, 2, "No such command"),
        (["up", "--nonsense"], {}, 2, "No such option"),
    ],
)
def test_a_failure_is_one_sentence_and_a_code(
    home: Path, words: list[str], more: dict[str, str], code: int, said: str
) -> None:
    """No traceback; usage and settings are 2 and everything else 1."""
    done = imem(home, *words, **more)

    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert nothing_left(home)


def test_the_version_of_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run from there all the same."""

    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    stated = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    monkeypatch.setattr("importlib.metadata.version", unknown)
    done = CliRunner().invoke(app, ["--version"])

    assert (done.exit_code, done.stdout) == (0, f"{stated} (not installed)\n")


def test_debug_shows_where(home: Path) -> None:
    """For whoever reports a fault."""
    done = imem(home, "--debug", "logs", "nothing")

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_an_unexpected_error_shows_no_content() -> None:
    """Its text may hold anything, a password among it."""
    script = "import sys; from imem import cli; cli.app.command('boom')(lambda: 1 / 0 if 'hunter2' else 0); cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "boom"], env=environment(), cwd=TOP, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith("Something unexpected went wrong (ZeroDivisionError).")
    assert "hunter2" not in done.stderr


def test_settings_are_listed_without_secrets(home: Path) -> None:
    """Also when a variable is unknown, which is what one looks there for."""
    done = imem(home, "doctor", "--settings", IMEM_HOEM="x", IMEM_POSTGRES_URL="postgresql://u:hunter2@h/d")

    assert "IMEM_POSTGRES_URL" in done.stdout
    assert "hunter2" not in done.stdout
    found = json.loads(imem(home, "doctor", "--settings", "--json").stdout)
    assert found["IMEM_HOME"] == str(home)


def test_logs_end_where_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines, in order."""
    monkeypatch.setenv("IMEM_HOME", str(home))
    (home / "logs").mkdir()
    (home / "logs" / "x.log").write_text("".join(f"line {n}\n" for n in range(100)))

    assert CliRunner().invoke(app, ["logs", "x", "-n", "2"]).stdout == "line 98\nline 99\n"
    assert json.loads(CliRunner().invoke(app, ["logs", "x", "-n", "1", "--json"]).stdout)["lines"] == ["line 99"]


@pytest.mark.parametrize("renewed", ["truncated", "replaced"])
def test_following_a_log_goes_on_when_it_begins_anew(home: Path, renewed: str) -> None:
    """The stack sets an overlong log aside, while it runs or at a start."""
    log = home / "logs" / "x.log"
    log.parent.mkdir()
    log.write_text("old\n" * 1000)
    with subprocess.Popen(
        [sys.executable, "-m", "imem", "logs", "x", "-n", "1", "-f"],
        env=environment(IMEM_HOME=str(home), PYTHONUNBUFFERED="1"),
        cwd=TOP,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = sure(process.stdout)
        assert lines.readline() == "old\n"
        if renewed == "truncated":
            os.truncate(log, 0)
        else:
            log.rename(log.with_suffix(".1"))
        with log.open("a") as file:
            file.write("new\n")
        assert lines.readline() == "new\n"
        process.kill()


def test_deleting_asks_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer other than yes deletes nothing."""
    monkeypatch.setenv("IMEM_HOME", str(home))
    (home / "secrets.json").write_text("{}")

    refused = CliRunner().invoke(app, ["down", "--purge"], input="n\n")

    assert refused.exit_code == 1
    assert (home / "secrets.json").exists()


def test_jars_that_cannot_be_had_end_the_start(home: Path, tmp_path: Path) -> None:
    """One sentence with the ways out; what had started meanwhile is stopped."""
    done = imem(home, "up", "--detach", IMEM_CACHE_DIR=str(tmp_path), IMEM_MAVEN_REPOSITORY="http://127.0.0.1:1")

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "Neo4j's jars cannot be fetched from 127.0.0.1: it cannot be reached. Set IMEM_MAVEN_REPOSITORY"
    )
    assert nothing_left(home)
    assert not Path(home / "stack.json").exists()
