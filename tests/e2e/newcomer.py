"""Somebody new, with a home and a fresh clone in it, and nothing else of the machine's."""

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TIMEOUT_S = 900.0
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
            text=True, check=False, timeout=TIMEOUT_S,
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


@contextmanager
def newcomer_in(home: Path) -> Iterator[Newcomer]:
    """Give whoever runs the tests, with a home of its own; what the stack keeps outside of that as root is purged."""
    someone = Newcomer(None, home, _clone_into(home))
    try:
        yield someone
    finally:
        if (someone.clone / ".venv" / "bin" / "imem").exists():
            env = {"PATH": os.environ["PATH"], "HOME": str(home)}
            subprocess.run([".venv/bin/imem", "down", "--purge", "--yes"], cwd=someone.clone, env=env, check=True)


@contextmanager
def ordinary_user_after(newcomer: Newcomer) -> Iterator[Newcomer]:
    """
    Make a user, and remove the user with the home afterwards.

    The jars that the newcomer fetched, if any, are copied into the user's cache: 140 MB that need not be asked for
    twice, and every start verifies them again.
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
