"""The direction of imports: a package never imports one above it, and the check would notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

LAYERS = ("imem", "recall", "credibility", "sync", "checkpoints", "cache", "kg", "journal")


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [str(program), "--no-cache"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_imports_go_downwards(root: Path) -> None:
    """The contracts of pyproject.toml hold."""
    ran = _lint(root)

    assert ran.returncode == 0, ran.stdout
    assert "0 broken" in ran.stdout


def test_an_upward_import_is_refused(root: Path, tmp_path: Path) -> None:
    """A copy of the packages in which the floor imports the face breaks the contract."""
    for package in LAYERS:
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    (tmp_path / "journal" / "upward.py").write_text("import imem\n", encoding="utf-8")

    ran = _lint(tmp_path)

    assert ran.returncode != 0
    assert "journal.upward -> imem" in ran.stdout


def test_every_package_is_under_contract(root: Path) -> None:
    """A package that appears at the top level takes its place among the floors, and is typed."""
    packages = {path.parent.name for path in root.glob("*/__init__.py")}

    assert packages == set(LAYERS)
    assert all((root / package / "py.typed").is_file() for package in packages)
