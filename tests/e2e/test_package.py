"""
The package as its users get it: ``pip install`` into an empty environment, ``imem up``, the README's first lines.

Nothing is found but what the wheel carries. Marked ``e2e`` and run by ``make e2e`` alone: pip writes a gigabyte, and a
whole stack is started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from imem.journal.settings import Settings
from tests.docs.pages import blocks
from tests.e2e.newcomer import PASSED_ON, ROOT

pytestmark = pytest.mark.e2e

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

KNOWN = "2026-06-01T10:00:00Z"
LINES = (
    {"record": "Company", "known_at": KNOWN, "core": {"ticker": "T0"}},
    {"record": "Analysis", "known_at": KNOWN, "core": {
        "id": "a0", "subject_id": "company:T0", "date": KNOWN, "kind": "equity_research"}},
)  # fmt: skip

QUESTION = "Is there enough HBM for AI chips?"

ASKS_FIRST = """
from imem import Memory
with Memory.sync() as memory:
    print(memory.memories.search("QUESTION").model_dump_json())
""".replace("QUESTION", QUESTION)
"""A new process whose first call is a search, in other words than what was remembered, at the default budget."""

BESIDE_OWN_MODULES = """
import asyncio, json
import cache, journal, recall, sync
import imem.kg
from imem import Memory

assert all(module.OWN for module in (cache, journal, recall, sync))

async def main():
    async with Memory.open() as memory:
        return await memory.brief("company:T0", deadline_ms=20_000)

briefing = asyncio.run(main())
print(json.dumps({"history": [item.analysis.key for item in briefing.history.items], "from": imem.kg.__file__}))
"""


class User:
    """A user with a home and an environment of their own, in which the package and its dependencies are installed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.environment = folder / "venv"
        self.programs = self.environment / "bin"
        passed_on = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        # Of the caller's, what leads to the registries, and the jars: the other tests fetch them from nothing.
        passed_on["IMEM_CACHE_DIR"] = str(Settings.read({}).cache_dir)
        self.env = {**passed_on, "PATH": os.defpath, "HOME": str(self.home), "TERM": "dumb", "LANG": "C.UTF-8"}

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the home, or in *cwd*."""
        return subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=cwd or self.home, env=self.env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and the wheel from that: what is missing there cannot hide."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def user(built: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Install the wheel with pip and no lock: what it depends on is chosen by what it declares itself."""
    someone = User(tmp_path_factory.mktemp("user"))
    venv.create(someone.environment, with_pip=True)
    installed = someone.run("pip", "install", "--quiet", str(built))
    assert installed.returncode == 0, installed.stderr
    return someone


@pytest.fixture(scope="module")
def running(user: User) -> Iterator[User]:
    """Start the user's stack."""
    up = user.run("imem", "up", "--detach")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        yield user
    finally:
        down = user.run("imem", "down", "--purge", "--yes")
    assert down.returncode == 0, down.stdout + down.stderr


def test_wheel_keeps_to_its_own_folders(built: Path) -> None:
    """No folder named `sql`, `tests` or `examples` appears in anybody's site-packages."""
    with zipfile.ZipFile(built) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_wheel_holds_every_statement_and_example_of_the_checkout(built: Path) -> None:
    """What stands beside the packages in a checkout stands inside its owner in the wheel."""
    moved = {"sql": "imem/sql", "cypher": "imem/cypher", "examples": "imem/examples"}
    with zipfile.ZipFile(built) as wheel:
        inside = set(wheel.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *moved], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")  # fmt: skip
    wanted = {f"{moved[top]}/{rest}" for name in tracked if name for top, _, rest in [name.partition("/")]}

    assert wanted
    assert wanted - inside == set()


def test_wheel_loads_what_it_carries(user: User) -> None:
    """Statements, the schemas of both stores, jar locks and examples are found from another folder."""
    ran = user.run("python", "-c", LOADS_EVERYTHING, *PACKAGES)

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert str(user.environment) in found["from"]
    assert found["sql"] > 10
    assert found["cypher"] > 20
    assert found["sql_schema"] == sorted(path.name for path in (ROOT / "sql" / "schema").glob("*.sql"))
    assert found["sql_schema"]
    assert found["cypher_migrations"]
    assert {"trading_desk.jsonl.gz", "flusight.jsonl.gz"} <= set(found["examples"])
    assert "neo4j-5.26.30.lock" in found["jar_locks"]
    assert found["typed"] == sorted(PACKAGES)


def test_installed_command_answers(user: User) -> None:
    """`imem --version` and `imem schema Finding` need no server and no checkout."""
    version = user.run("imem", "--version")
    schema = user.run("imem", "schema", "Finding")

    assert (version.returncode, version.stderr) == (0, "")
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] in version.stdout
    assert schema.returncode == 0, schema.stderr
    assert "known_at" in json.dumps(json.loads(schema.stdout))


def test_installed_command_refuses_in_one_sentence(user: User) -> None:
    """A user's mistake is answered without a traceback, and with the exit code for usage."""
    ran = user.run("imem", "no-such-command")

    assert ran.returncode == 2
    assert "Traceback" not in ran.stdout + ran.stderr


def test_nothing_was_written_into_the_home(user: User) -> None:
    """Asking for the version leaves no folder behind; pip has left its cache."""
    user.run("imem", "--version")

    assert {path.name for path in user.home.iterdir()} <= {".cache"}


async def test_the_path_of_a_newcomer(running: User) -> None:
    """
    The wheel in an empty environment, `imem up`, the five lines of the README, and what others then find.

    The lines run as they are written. A new process finds what they remembered by its first search, in other words and
    at the default budget, and so do a command and the protocol's own client with `imem mcp`.
    """
    assert "IMEM_DEADLINE_MS" not in running.env
    first = next(block for block in blocks("README.md") if block.language == "python")
    assert len([line for line in first.text.splitlines() if line.strip()]) == 5
    (running.home / "first.py").write_text(first.text, encoding="utf-8")
    ran = running.run("python", "first.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "High-bandwidth memory is sold out until 2027." in ran.stdout

    (running.home / "asks.py").write_text(ASKS_FIRST, encoding="utf-8")
    for asked in (running.run("python", "asks.py"), running.run("imem", "memories", "search", QUESTION, "--json")):
        assert (asked.returncode, asked.stderr) == (0, "")
        answer = json.loads(asked.stdout)
        assert (answer["quality"], answer.get("reason")) == ("exact", None)
        [item] = answer["items"]
        assert (item["namespace"], item["similarity"] > 0) == ("symbol/MU", True)

    server = StdioServerParameters(
        command=str(running.programs / "imem"), args=["mcp"], env=running.env, cwd=running.home
    )
    async with Client(server) as client:
        assert "brief" in {tool.name for tool in (await client.list_tools()).tools}
        found = await client.call_tool("search_memories", {"query": QUESTION})
        assert found.structured_content is not None
        assert [item["namespace"] for item in found.structured_content["items"]] == ["symbol/MU"]


def test_a_briefing_beside_modules_of_the_same_names(running: User, tmp_path: Path) -> None:
    """A user's own ``cache.py``, ``sync.py``, ``journal.py`` and ``recall/`` are imported beside ours."""
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES), encoding="utf-8")
    loaded = running.run("imem", "load", str(tmp_path / "lines.jsonl"))
    assert loaded.returncode == 0, loaded.stdout + loaded.stderr
    for name in ("cache.py", "sync.py", "journal.py", "recall/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("OWN = True\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(BESIDE_OWN_MODULES, encoding="utf-8")

    ran = running.run("python", "program.py", cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["history"] == ["a0"]
    assert found["from"].startswith(f"{running.environment}/lib/")
