"""
Commands without their start: one process imports the product, and each command that a test runs is a fork of it.

To import the product is most of what a command costs. A fork has arguments, environment, folder, streams, signals, exit
code and end of its own, as a program has. Tests of how a program starts, or is killed, start the program itself.
"""

from __future__ import annotations

import atexit
import gc
import os
import pkgutil
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from json import loads
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final
from uuid import uuid4

from tests.forking_client import ended

TOP: Final = Path(__file__).resolve().parents[1]

SPARING: Final = os.pathsep.join((str(TOP / "tests" / "sparing"), str(TOP)))
"""The path of programs whose graphs are spared work, as those of the tests' own process are."""

NOT_IMPORTED: Final = ("imem.langgraph", "imem.local.daemon")
"""A program of its own, and what neither commands nor workers use."""


# The side of the tests


@cache
def address() -> str:
    """Start the process, once; it ends with this one. Return its address."""
    name = f"imem-tests-{uuid4().hex}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("IMEM_", "PYTHON"))}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.forking", name],
        cwd=TOP,
        # Threads of the linear algebra do not live on in a fork.
        env={**kept, "PYTHONPATH": SPARING, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    atexit.register(process.wait, 10)
    atexit.register(process.stdin.close)
    assert process.stdout.readline() == "ready\n", "the product cannot be imported"
    process.stdout.close()
    return name


def run(
    kind: str, *words: str, env: Mapping[str, str], cwd: Path = TOP, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as :func:`subprocess.run` does; *kind* is ``imem``, ``module`` or ``script``."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        code = ended(
            address(), kind, words, env=env, cwd=str(cwd), streams=[given.fileno(), out.fileno(), err.fileno()]
        )
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess((kind, *words), code, out.read().decode(), err.read().decode())


def command(kind: str, *words: str) -> tuple[str, ...]:
    """Return the command line of a program that stands for a command: it hands on what it is given, signals as well."""
    return (sys.executable, "-I", "-S", str(TOP / "tests" / "forking_client.py"), address(), kind, *words)


def program(folder: Path) -> Path:
    """Write a program ``imem`` into *folder* that stands for the command; return its path."""
    path = folder / "imem"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command("imem"))} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


# The process


def _import() -> None:
    import imem

    for module in pkgutil.walk_packages(imem.__path__, "imem."):
        if not module.name.startswith(NOT_IMPORTED) and not module.name.endswith("__main__"):
            import_module(module.name)
    # Nothing that was imported is looked at again, so that a fork shares its memory.
    gc.collect()
    gc.freeze()


def _asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    text, length = b"", int.from_bytes(size, "big")
    while len(text) < length:
        text += connection.recv(length - len(text))
    return loads(text), streams


def _wait(child: int, connection: socket.socket) -> int:
    """Return the command's exit code, or minus its signal; forward signals; kill it when its client disconnects."""
    process = os.pidfd_open(child)
    while process not in select.select([process, connection.fileno()], [], [])[0]:
        signals = connection.recv(16)
        for number in signals or (signal.SIGKILL,):
            signal.pidfd_send_signal(process, number)
        if not signals:
            break
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Take on what a command is given."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(streams) + 1)
    # The ones that are there remember what they were opened on.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = open(old.fileno(), mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    folders = [folder for folder in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if folder not in sys.path]
    sys.path[:0] = folders
    sys.modules["__main__"].__package__ = ""  # Or else it would say how this module is run.
    sys.argv[:] = ["imem", *asked["words"]] if asked["kind"] == "imem" else asked["words"]
    if asked["env"].get("PYTHONWARNINGS") != "error":
        sys.warnoptions.clear()
        warnings.resetwarnings()
        for kind in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
            warnings.simplefilter("ignore", kind)


def _next(name: str) -> str:
    """Serve until the tests' process ends; in a fork, return what it shall be."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        os.write(1, b"ready\n")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Whoever waits for a command is a fork as well.
        while True:
            ready, _, _ = select.select([listening.fileno(), 0], [], [])
            if 0 in ready:
                return "nothing"
            connection, _ = listening.accept()
            if os.fork() > 0:
                connection.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked, streams = _asked(connection)
            child = os.fork()
            if child == 0:
                listening.close()
                connection.close()
                _become(asked, streams)
                return str(asked["kind"])
            for stream in streams:
                os.close(stream)
            connection.sendall(_wait(child, connection).to_bytes(4, "big", signed=True))
            os._exit(0)


if __name__ == "__main__":
    _import()
    kind = _next(sys.argv[1])
    # At the end of the program, so that the interpreter ends as it does after any.
    if kind == "imem":
        sys.modules["imem.cli"].main()
    elif kind == "module":
        sys.modules.pop(sys.argv[0], None)  # It has been imported, but not run.
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif kind == "script":
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
