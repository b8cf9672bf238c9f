"""
A newcomer's first minutes: a clone into an empty folder, the README's two commands, nothing else.

Nothing of the caller's is used: its own home, caches and environment, and a path on which ``java`` and ``docker`` only
complain; as root, once more as a freshly made ordinary user.
Marked ``e2e`` and run by ``.ci/run`` alone: it installs
the environment anew and starts the whole stack several times.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]

FIRST_DEMO_S = 180.0
"""A fresh machine: installation, 140 MB of jars, stack, examples, briefings; in seconds, on two cores."""
SECOND_DEMO_S = 60.0
"""Once installed."""
PATIENCE_S = 900.0
"""After which a command is taken to hang."""

# What leads to the registries may be known to the environment alone, so it goes along.
PASSED_ON = re.compile(r"LANG|LC_.*|TZ|.*_proxy|.*_PROXY|(?:SSL|REQUESTS|CURL)_(?:CERT|CA).*|PIP_.*|UV_.*INDEX.*")

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where an ordinary user finds programs; the caller's path may lead through folders closed to others."""

NOT_NEEDED = ("docker", "podman", "java", "mvn", "psql", "postgres", "redis-server", "valkey-server", "uv")


@dataclass(frozen=True)
class Newcomer:
    """
    Somebody with a home and a clone in it.

    Attributes:
        name: the system's name of an ordinary user; none for whoever runs the tests.
        home: an own home folder, empty but for the clone.
        clone: the fresh clone.
    """

    name: str | None
    home: Path
    clone: Path

    def make(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
        """Run ``make`` in the clone and return what came of it and the seconds it took."""
        env = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        env |= {
            "PATH": f"{self.home / 'refusing'}:{SYSTEM_PATH if self.name else os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "dumb",
        }
        if self.name is None:
            # The caller's Python may be found through the caller's home alone.
            env["PYTHON"] = f"{sys.base_prefix}/bin/python3"
        account = pwd.getpwnam(self.name) if self.name else None
        begun = time.monotonic()
        done = subprocess.run(
            ["make", *arguments],
            cwd=self.clone, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=PATIENCE_S,
            user=account.pw_uid if account else None, group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )  # fmt: skip
        seconds = time.monotonic() - begun
        sys.stdout.write(f"\n$ make {' '.join(arguments)}   [{self.name or 'caller'}, {seconds:.1f} s]\n{done.stdout}")
        return done, seconds


def _clone_into(home: Path) -> Path:
    """Clone the checkout, beside programs that refuse: nobody may need what the machine happens to have."""
    refusing = home / "refusing"
    refusing.mkdir()
    for program in NOT_NEEDED:
        (refusing / program).write_text(f"#!/bin/sh\necho '{program} of the machine was called' >&2\nexit 1\n")
        (refusing / program).chmod(0o755)
    clone = home / "institutional-memory"
    subprocess.run(
        ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--no-local", f"file://{ROOT}", str(clone)],
        check=True,
    )
    return clone


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """Whoever runs the tests, with a home of its own; what the stack keeps outside of that as root is purged."""
    home = tmp_path_factory.mktemp("newcomer")
    someone = Newcomer(None, home, _clone_into(home))
    yield someone
    if (someone.clone / ".venv" / "bin" / "imem").exists():
        env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        subprocess.run([".venv/bin/imem", "down", "--purge", "--yes"], cwd=someone.clone, env=env, check=True)


@pytest.fixture
def ordinary_user(newcomer: Newcomer) -> Iterator[Newcomer]:
    """
    Make a user, and remove the user with the home afterwards.

    The jars that the first newcomer fetched, if that test ran, are copied into the user's cache: 140 MB that need not
    be asked for twice, and every start verifies them again.
    """
    name = f"imem-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
    try:
        account = pwd.getpwnam(name)
        home = Path(account.pw_dir)
        clone = _clone_into(home)
        jars = newcomer.home / ".cache" / "imem"
        if jars.is_dir():
            shutil.copytree(jars, home / ".cache" / "imem", symlinks=True)
        subprocess.run(["chown", "-R", f"{account.pw_uid}:{account.pw_gid}", str(home)], check=True)
        yield Newcomer(name, home, clone)
    finally:
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


def _processes_of(home: Path) -> list[str]:
    """Return the command lines that still name something below *home*."""
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{home}/" in command:
                left.append(command[:200])
    return left


def _assert_good_demo(output: str) -> None:
    """A briefing of a real company on two days, a real flu question, and where to go on."""
    assert "Traceback" not in output
    assert "company:" in output
    assert "market:" in output
    assert "not enough evidence" in output.lower()
    assert re.findall(r"^\[(?:partial|unavailable|stale).*", output, re.MULTILINE) == [], "every part is whole"
    assert len(re.findall(r"^\s*\$?\s*(?:\S*/)?imem \w+", output, re.MULTILINE)) >= 3, "the commands to try next"


@pytest.mark.spec("IF-1")
def test_two_commands_from_a_fresh_clone(newcomer: Newcomer) -> None:
    """`make demo` ends with briefings and stops what it started; `make test` runs green; a second demo is quick."""
    first, first_s = newcomer.make("demo")
    assert first.returncode == 0
    _assert_good_demo(first.stdout)
    assert _processes_of(newcomer.home) == [], "the demo stops what it started"

    second, second_s = newcomer.make("demo")
    assert second.returncode == 0
    _assert_good_demo(second.stdout)
    assert "Installing" not in second.stdout

    tests, _ = newcomer.make("test", "ARGS=tests/unit")
    assert tests.returncode == 0
    assert re.search(r"\d+ passed", tests.stdout)
    assert "failed" not in tests.stdout

    assert first_s < FIRST_DEMO_S
    assert second_s < SECOND_DEMO_S


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a user; anybody else has just been the ordinary one")
@pytest.mark.spec("IF-1")
def test_demo_as_an_ordinary_user(ordinary_user: Newcomer) -> None:
    """The same first command for somebody without any right but to their own home."""
    demo, demo_s = ordinary_user.make("demo")

    assert demo.returncode == 0
    _assert_good_demo(demo.stdout)
    assert _processes_of(ordinary_user.home) == []
    assert demo_s < FIRST_DEMO_S


def _shape(line: str) -> str:
    """Return the line without what differs from run to run: durations, rates, percentages of progress, space."""
    line = re.sub(r"\d[\d,.]*\s*(?:ms|s|min|/s|%|MB|GB)(?![A-Za-z])", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def test_readme_shows_what_one_really_sees(newcomer: Newcomer) -> None:
    """
    The output in the README is the demo's, line by line and in order; a line of ``…`` stands for what is left out.

    Paste it between the two comments whenever the demo changes.
    """
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- demo: begin -->\n+```text\n(.*?)```\n+<!-- demo: end -->", page, re.DOTALL)
    assert block, "the README has a place for the demo's output"
    shown = [shape for line in block[1].splitlines() if (shape := _shape(line)) not in {"", "…"}]
    demo, _ = newcomer.make("demo")
    seen = iter([_shape(line) for line in demo.stdout.splitlines()])

    assert len(shown) > 10
    assert [line for line in shown if line not in seen] == [], (
        "lines of the README that the demo did not print, in order"
    )
