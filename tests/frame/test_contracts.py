"""The direction of imports: a package never imports one above it, and the check would notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

FLOORS = (
    "gates", "debates", "patterns", "postmortem", "recall", "archives", "credibility", "sync", "checkpoints", "cache",
    "kg", "review", "jobs", "alerts", "journal",
)  # fmt: skip


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
    for package in ("imem", *FLOORS):
        shutil.copytree(root / package, tmp_path / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    (tmp_path / "journal" / "upward.py").write_text("import imem.memory\nimport imem.kg\n", encoding="utf-8")

    ran = _lint(tmp_path)

    assert ran.returncode != 0
    assert "imem.journal.upward -> imem.memory" in ran.stdout
    assert "imem.journal.upward -> imem.kg" in ran.stdout


def test_every_package_is_under_contract(root: Path) -> None:
    """A package at the top of the repository is a floor, and ``imem`` links to it."""
    packages = {path.parent.name for path in root.glob("*/__init__.py")} - {"imem"}
    links = {path.name: path.readlink() for path in (root / "imem").iterdir() if path.is_symlink()}

    assert packages == set(FLOORS)
    assert links == {package: Path("..") / package for package in FLOORS}


def test_every_module_of_the_face_is_under_contract(root: Path) -> None:
    """No floor may import any of them: the contract names each."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [face] = [contract["forbidden_modules"] for contract in contracts if contract["type"] == "forbidden"]
    modules = {f"imem.{path.stem}" for path in (root / "imem").iterdir() if not path.is_symlink()}

    assert set(face) == {name for name in modules if not name.removeprefix("imem.").startswith(("__", "py"))}
