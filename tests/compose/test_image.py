"""The image holds the wheel and its locked dependencies, and runs it as nobody in particular."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from imem.journal.settings import Settings
from tests.compose.conftest import FOLDER, ROOT

Instruction = tuple[str, str]


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    """Read the Dockerfile: instruction and arguments, continued lines joined."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


def _all(instructions: list[Instruction], name: str) -> list[str]:
    return [arguments for found, arguments in instructions if found == name]


def _context(tracked: list[str]) -> list[str]:
    """Return what of *tracked* is sent to the engine: the file excludes everything, then names what is sent."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert rules[-1] == "**/__pycache__"
    sent = [line.removeprefix("!") for line in rules[1:-1] if line.startswith("!")]
    assert len(sent) == len(rules) - 2
    return [name for name in tracked if any(name == one or name.startswith(f"{one}/") for one in sent)]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Return every file and link of the repository, new ones among them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def test_everything_is_installed_by_hash(instructions: list[Instruction]) -> None:
    """What comes from a network is held against a lock; the wheel comes from none."""
    commands = [part.strip() for run in _all(instructions, "RUN") for part in run.split("&&")]
    installs = [shlex.split(one) for one in commands if " install " in one]

    assert len(installs) == 3
    for words in installs[:2]:
        assert "--require-hashes" in words
        assert (ROOT / words[words.index("-r") + 1]).is_file()
    assert {"--no-index", "--no-deps"} <= set(installs[2])
    assert not [one for one in commands if re.match(r"(?:apt|curl|wget|git)\b", one)]


def test_it_runs_as_an_ordinary_user(instructions: list[Instruction]) -> None:
    """By number, so that an orchestrator can see that it is not root; the files of the compose file fit that number."""
    after_last_from = instructions[max(at for at, (name, _) in enumerate(instructions) if name == "FROM") :]
    [user] = _all(after_last_from, "USER")
    uid, gid = map(int, user.split(":"))

    assert min(uid, gid) > 0
    assert f"useradd --uid {uid} " in " ".join(_all(after_last_from, "RUN"))
    assert f"uid={uid},gid={gid}" in (FOLDER / "compose.yaml").read_text(encoding="utf-8")


def test_its_python_is_one_that_the_package_names(instructions: list[Instruction]) -> None:
    """And both stages have the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [argument] = _all(instructions, "ARG")
    version = argument.removeprefix("PYTHON=")

    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert [one.split()[0] for one in _all(instructions, "FROM")] == ["python:${PYTHON}-slim"] * 2


def test_its_programs_are_there(instructions: list[Instruction], services: dict[str, Any]) -> None:
    """The entry point is the script that is copied; commands are the package's; settings exist."""
    [copied] = [one.split() for one in _all(instructions, "COPY") if "entrypoint" in one]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    environment = dict(re.findall(r"(\w+)=(\S+)", " ".join(_all(instructions, "ENV"))))
    ours = [service for service in services.values() if service["image"].startswith("institutional-memory")]

    assert _all(instructions, "ENTRYPOINT") == [f'["{Path(copied[1]).name}"]']
    assert (ROOT / copied[0]).stat().st_mode & stat.S_IXUSR
    assert {service["command"][0] for service in ours} <= {"python", *scripts, "--help"}
    assert {name for name in environment if name.startswith("IMEM_")} <= Settings.variables()
    places = {one.partition(":")[0] for service in ours for one in (*service["tmpfs"], *service.get("volumes", ()))}
    assert "beat" in places
    assert environment["IMEM_HOME"] in places


def test_nothing_else_reaches_the_engine(tracked: list[str]) -> None:
    """No secret, no test, no history: of ``compose/`` the entry point alone."""
    sent = _context(tracked)

    assert {name.partition("/")[0] for name in sent} & {"tests", "docs", "tools", ".git", ".ci", ".venv"} == set()
    assert [name for name in sent if name.startswith("compose/")] == ["compose/entrypoint.sh"]


def test_what_reaches_the_engine_makes_the_wheel(tracked: list[str], tmp_path: Path) -> None:
    """By the command of the image: every file of the packages, of the statements and of the examples is in it."""
    sent = _context(tracked)
    for name in sent:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        inside = set(held.namelist())

    code = [name for name in tracked if not (ROOT / name).is_symlink() and (ROOT / name).suffix != ".toml"]
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    moved = {"imem": "imem", **packages["wheel"]["force-include"]}
    wanted = {
        moved[top] + "/" + rest for name in code for top, _, rest in [name.partition("/")] if top in moved and rest
    }
    assert len(wanted) > 300
    assert wanted - inside == set()
