"""The version of this program."""

from __future__ import annotations

import tomllib
from pathlib import Path


def version_of_this() -> str:
    """Return the version of the package, or of the checkout that it is run from without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - it reads mails: most commands need no version

    try:
        return version("institutional-memory")
    except PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        try:
            return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]) + " (not installed)"
        except (OSError, KeyError, ValueError):
            return "unknown (not installed)"
