"""
The package as its users get it: ``pip install`` into an empty environment, ``imem up``, the README's first lines.

Marked ``e2e`` and run by ``make e2e`` alone: pip writes a gigabyte, and a whole stack is started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from imem.journal.settings import Settings
from tests.docs.pages import blocks
from tests.e2e.newcomer import PASSED_ON, ROOT

pytestmark = pytest.mark.e2e


class User:
    """A user with a home and an environment of their own, in which the package and its dependencies are installed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.programs = home / "venv" / "bin"
        passed_on = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        # Of the caller's, what leads to the registries, and the jars: the other tests fetch them from nothing.
        passed_on["IMEM_CACHE_DIR"] = str(Settings.read({}).cache_dir)
        self.env = {**passed_on, "PATH": os.defpath, "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8"}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the home."""
        return subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.home, env=self.env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """
    Build the wheel, and install it with pip and no lock.

    What it depends on is chosen by what the wheel itself declares.
    """
    out, home = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("user")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    venv.create(home / "venv", with_pip=True)
    someone = User(home)
    installed = someone.run("pip", "install", "--quiet", str(next(out.glob("*.whl"))))
    assert installed.returncode == 0, installed.stderr
    try:
        yield someone
    finally:
        down = someone.run("imem", "down", "--purge", "--yes")
    assert down.returncode == 0, down.stdout + down.stderr


async def test_the_first_lines_of_the_readme_and_a_client_of_its_tools(user: User) -> None:
    """They run as they are written; the protocol's own client finds with `imem mcp` what they remembered."""
    up = user.run("imem", "up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr

    first = next(block for block in blocks("README.md") if block.language == "python")
    assert len([line for line in first.text.splitlines() if line.strip()]) == 5
    (user.home / "first.py").write_text(first.text, encoding="utf-8")
    ran = user.run("python", "first.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "High-bandwidth memory is sold out until 2027." in ran.stdout

    server = StdioServerParameters(command=str(user.programs / "imem"), args=["mcp"], env=user.env, cwd=user.home)
    async with Client(server) as client:
        assert "brief" in {tool.name for tool in (await client.list_tools()).tools}
        found = await client.call_tool("search_memories", {"query": "Is there enough HBM for AI chips?"})
        assert found.structured_content is not None
        assert [item["namespace"] for item in found.structured_content["items"]] == ["symbol/MU"]
