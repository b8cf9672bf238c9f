"""Small programs that tests start and kill, and ways to wait for what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import SecretStr

from imem.local.process import ProcessIdentity, marked
from imem.local.state import StackState
from tests import forking
from tests.forking import SPARING

TOP = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300.0

T = TypeVar("T")

SUPERVISE = """
import json, sys
from pathlib import Path
from imem.local.supervisor import LocalStack
from imem.local.workers import Worker
from imem.journal.settings import Settings

told = json.loads(sys.argv[1])
workers = [Worker(name, tuple(argv)) for name, argv in told["workers"].items()]
with LocalStack(Settings.read(told["env"]), servers=told["servers"], workers=workers) as stack:
    print("ready", flush=True)
    sys.stdin.read()
"""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program that imports the packages of this checkout and has no settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_")}
    return {**kept, "PYTHONPATH": SPARING, **more}


def until(true: Callable[[], T | Literal[False] | None], what: str) -> T:
    """Wait until *true* gives something; fail naming *what* when it takes too long."""
    end = time.monotonic() + TIMEOUT_S
    while not (value := true()):
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)  # Between two looks at what another process does.
    return value


@contextmanager
def supervised(
    home: Path,
    servers: list[str],
    *,
    workers: Mapping[str, list[str]] | None = None,
    settings: Mapping[str, str] | None = None,
    wait: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """Run a stack in a process of its own; its end, or the block's, is its end."""
    kept = {name: os.environ[name] for name in ("IMEM_CACHE_DIR", "IMEM_NEO4J_HOME") if name in os.environ}
    env = {**kept, "IMEM_HOME": str(home), **(settings or {})}
    told = json.dumps({"env": env, "servers": servers, "workers": workers or {}})
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, told],
        env=environment(),
        cwd=TOP,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            if wait:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n", "the stack did not start"
            yield process
        finally:
            if process.poll() is None:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(TIMEOUT_S)


def nothing_left(home: Path) -> bool:
    """Whether no process of the stack in *home* lives."""
    return not list(marked(home))


def identity_of(state: StackState, name: str) -> ProcessIdentity:
    """Return who the child *name* is."""
    child = state.children[name]
    assert child.pid is not None
    assert child.start_time is not None
    return ProcessIdentity(child.pid, child.start_time, state.supervisor.boot)


def me() -> ProcessIdentity:
    """Return who this process is."""
    return sure(ProcessIdentity.of(os.getpid()))


def sure(value: T | None) -> T:
    """Return *value*, which a test knows to be there."""
    assert value is not None
    return value


def shown(secret: SecretStr | None) -> str:
    """Return what a secret hides."""
    return sure(secret).get_secret_value()


def _command(home: Path, *words: str, **more: str) -> tuple[list[str], dict[str, str]]:
    """Return what runs the command line, and its environment."""
    kept = {name: os.environ[name] for name in ("IMEM_CACHE_DIR", "IMEM_NEO4J_HOME") if name in os.environ}
    argv = [sys.executable, "-W", "error", "-m", "imem", *words]
    return argv, environment(IMEM_HOME=str(home), **{**kept, **more})


def begun(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Begin to run the command line; what it prints is dropped."""
    argv, env = _command(home, *words)
    return subprocess.Popen(argv, env=env, cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def imem(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    _, env = _command(home, *words, **more)
    return forking.run("imem", *words, env={**env, "PYTHONWARNINGS": "error"})
