"""The wheel works where there is no checkout: an empty environment, another folder, nothing but what it carries."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.recall import facts
from tests.recall.conftest import RecallHarness, empty, harness, journal, world
from tests.recall.test_existence import environment

__all__ = ["empty", "harness", "journal", "world"]

PACKAGES = ("imem",)

LOADS_EVERYTHING = """
import json, sys
from importlib.resources import files
from imem.journal.statements import load, root_of
print(json.dumps({
    "sql": len(load(root_of("journal", "sql") / "queries", ".sql")),
    "cypher": len(load(root_of("kg", "cypher") / "queries", ".cypher")),
    "sql_schema": sorted(path.name for path in (root_of("journal", "sql") / "schema").glob("*.sql")),
    "cypher_migrations": sorted(path.name for path in (root_of("kg", "cypher") / "schema").glob("*.cypher")),
    "examples": sorted(path.name for path in root_of("imem", "examples").rglob("*.jsonl.gz")),
    "jar_locks": sorted(path.name for path in files("imem.local").joinpath("jars").iterdir()),
    "typed": sorted(name for name in sys.argv[1:] if files(name).joinpath("py.typed").is_file()),
    "from": files("imem").as_posix(),
}))
"""


BESIDE_OWN_MODULES = """
import asyncio, json, sys
import cache, journal, recall, sync
import imem.kg
from imem import Memory

assert all(module.OWN for module in (cache, journal, recall, sync))

async def main():
    async with Memory.open() as memory:
        return await memory.brief("company:T0", deadline_ms=20_000)

briefing = asyncio.run(main())
[installed] = {place for place in sys.path if imem.kg.__file__.startswith(place + "/")}
print(json.dumps({
    "history": [item.analysis.key for item in briefing.history.items],
    "from": installed.removesuffix(f"/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"),
}))
"""


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and the wheel from that: what is missing there cannot hide."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Install the wheel, with what it declares and no lock, into an empty environment; return its folder of programs.

    With uv, which links what is on the machine already; with pip, as users do, ``tests/e2e/test_package.py`` does it.
    """
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder)
    uv, python = str(Path(sys.executable).parent / "uv"), str(folder / "bin" / "python")
    linked = subprocess.run([uv, "pip", "install", "--quiet", "--python", python, str(built)], check=False, cwd=folder)
    if linked.returncode != 0:
        # uv reads none of pip's settings: where only pip knows the way to a registry, pip does the work.
        subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(built)], check=True, cwd=folder)
    return folder / "bin"


def _run(installed: Path, program: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(installed / program), *arguments], cwd=home, env=env, capture_output=True, text=True, check=False
    )


def test_wheel_keeps_to_its_own_folders(built: Path) -> None:
    """No folder named `sql`, `tests` or `examples` appears in anybody's site-packages."""
    with zipfile.ZipFile(built) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_wheel_holds_every_statement_and_example_of_the_checkout(root: Path, built: Path) -> None:
    """What stands beside the packages in a checkout stands inside its owner in the wheel."""
    moved = {"sql": "imem/sql", "cypher": "imem/cypher", "examples": "imem/examples"}
    with zipfile.ZipFile(built) as wheel:
        inside = set(wheel.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *moved], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split("\0")  # fmt: skip
    wanted = {f"{moved[top]}/{rest}" for name in tracked if name for top, _, rest in [name.partition("/")]}

    assert wanted
    assert wanted - inside == set()


def test_wheel_loads_what_it_carries(root: Path, installed: Path, tmp_path: Path) -> None:
    """Statements, the schemas of both stores, jar locks and examples are found from another folder."""
    ran = _run(installed, "python", "-c", LOADS_EVERYTHING, *PACKAGES, home=tmp_path)

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert str(installed.parent) in found["from"]
    assert found["sql"] > 10
    assert found["cypher"] > 20
    assert found["sql_schema"] == sorted(path.name for path in (root / "sql" / "schema").glob("*.sql"))
    assert found["sql_schema"]
    assert found["cypher_migrations"]
    assert {"trading_desk.jsonl.gz", "flusight.jsonl.gz"} <= set(found["examples"])
    assert "neo4j-5.26.30.lock" in found["jar_locks"]
    assert found["typed"] == sorted(PACKAGES)


def test_installed_command_answers(root: Path, installed: Path, tmp_path: Path) -> None:
    """`imem --version` and `imem schema Finding` need no server and no checkout."""
    version = _run(installed, "imem", "--version", home=tmp_path)
    schema = _run(installed, "imem", "schema", "Finding", home=tmp_path)

    assert (version.returncode, version.stderr) == (0, "")
    assert tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] in version.stdout
    assert schema.returncode == 0, schema.stderr
    assert "known_at" in json.dumps(json.loads(schema.stdout))


def test_installed_command_refuses_in_one_sentence(installed: Path, tmp_path: Path) -> None:
    """A user's mistake is answered without a traceback, and with the exit code for usage."""
    ran = _run(installed, "imem", "no-such-command", home=tmp_path)

    assert ran.returncode == 2
    assert "Traceback" not in ran.stdout + ran.stderr


async def test_a_briefing_beside_modules_of_the_same_names(
    harness: RecallHarness, installed: Path, tmp_path: Path
) -> None:
    """A user's own ``cache.py``, ``sync.py``, ``journal.py`` and ``recall/`` are imported beside ours."""
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), facts.finding("f0", 0)])
    for name in ("cache.py", "sync.py", "journal.py", "recall/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("OWN = True\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(BESIDE_OWN_MODULES, encoding="utf-8")
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "LANG": "C.UTF-8", **environment(harness.settings)}
    ran = await asyncio.to_thread(
        subprocess.run,
        [str(installed / "python"), "program.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"history": ["a0"], "from": str(installed.parent)}


def test_nothing_was_written_into_the_home(installed: Path, tmp_path: Path) -> None:
    """Asking for the version leaves no folder behind."""
    _run(installed, "imem", "--version", home=tmp_path)

    assert list(tmp_path.iterdir()) == []
