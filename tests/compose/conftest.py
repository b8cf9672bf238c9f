"""What the tests of ``compose/`` share: the file as YAML, and secrets made as a person makes them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose"


def compose_file() -> dict[str, Any]:
    """Return the compose file, its merges resolved."""
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def defaults(text: str) -> str:
    """Return *text* with the defaults of its variables in their places."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    return compose_file()


@pytest.fixture(scope="session")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found = compose["services"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all secrets once."""
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    subprocess.run([str(FOLDER / "secrets.sh"), str(folder)], check=True, capture_output=True)
    return folder


def environment_of(service: dict[str, Any], secrets: Path) -> dict[str, str]:
    """Return the settings of a service, its files those that were made in *secrets*."""
    return {
        name: defaults(str(value)).replace("/run/secrets", str(secrets))
        for name, value in service["environment"].items()
        if name.startswith("IMEM_")
    }


def directives(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and value of each line of a Valkey's configuration."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            yield name, value
