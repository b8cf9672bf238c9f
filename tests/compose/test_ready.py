"""The health check of a worker finds the file that the worker makes when it does its work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from imem.local.readiness import VARIABLE
from tests.compose.conftest import environment_of
from tests.conftest import Stack
from tests.imem.local.programs import TOP, until


def _health(service: dict[str, Any], file: Path) -> int:
    """Run the service's health check on *file* in place of its own, and return its exit code."""
    how, *command = service["healthcheck"]["test"]
    assert how == "CMD"
    wanted = service["environment"][VARIABLE]
    return subprocess.run([str(file) if word == wanted else word for word in command], check=False).returncode


@contextmanager
def _worker(role: str, home: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "imem.worker", role],
        env={**kept, "PYTHONPATH": str(TOP), "IMEM_HOME": str(home), **variables},
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def test_a_worker_is_healthy_once_it_works(
    light_stack: Stack, services: dict[str, Any], tmp_path: Path, home: Path
) -> None:
    """Beat, with every secret in a file; what an earlier run left is gone before it is ready."""
    files = tmp_path / "secrets"
    files.mkdir()
    given = {**dict(light_stack.settings), "neo4j_password": SecretStr("unused")}
    for name, value in given.items():
        if isinstance(value, SecretStr):
            (files / name).write_text(f"{value.get_secret_value()}\n", encoding="utf-8")
    file = tmp_path / "ready"
    file.touch()
    before = file.stat().st_ctime_ns
    variables = {**environment_of(services["beat"], files), "NOTIFY_FILE": str(file)}
    with _worker("beat", home, **variables) as process:
        until(lambda: process.poll() is not None or (file.exists() and file.stat().st_ctime_ns > before), "it is ready")
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert _health(services["beat"], file) == 0


def test_a_worker_that_cannot_start_is_not_healthy(services: dict[str, Any], tmp_path: Path, home: Path) -> None:
    """Whatever the process before it left behind."""
    file = tmp_path / "ready"
    file.touch()
    with _worker("applier", home, NOTIFY_FILE=str(file), IMEM_NEO4J_PASSWORD_FILE=str(tmp_path / "no")) as process:
        said, _ = process.communicate()

    assert process.returncode == 1
    assert "IMEM_NEO4J_PASSWORD_FILE names a file that cannot be read" in said
    assert _health(services["applier"], file) == 1
