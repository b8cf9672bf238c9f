"""Every command and every program of the documentation, run as it stands there, page by page from top to bottom."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
import psycopg
import pytest

from imem.commands import demo
from imem.ingest.examples import EXAMPLES
from imem.journal.settings import Settings
from imem.local import state
from imem.local.folders import Folders
from tests import forking
from tests.conftest import KEPT, temporary_home
from tests.docs.pages import ROOT, RUN, Block, blocks, pages, unlike
from tests.forking import SPARING
from tests.http_server import Answer, Asked, serving
from tests.imem.local.programs import until

LAST: Final = ("docs/how-to/look-after-the-stack.md", "docs/how-to/restore.md", "docs/tutorial/first-briefing.md")
"""Pages that stop the stack: they come last, so that it is started seldom."""

REASONS: Final = {
    "installs": 8,
    "another server": 8,
    "starts in the foreground": 4,
    "takes minutes": 4,
    "a fragment": 6,
}
"""Why a block may not be run, and how many may say so at most."""

NOT_RUN: Final = frozenset({"not run", "file", "append"})
"""What the marker of a block says that is not run by itself."""

READS: Final = ("imem brief", "imem agents", "imem similar", "imem history")
"""Commands that may be typed again until their answer is whole."""

TIMEOUT_S: Final = 300.0

WORDS: Final = 256
"""Numbers in a vector of words."""

BIN: Final = Path(sys.executable).parent


@dataclass
class Reader:
    """
    Somebody who does what a page says.

    Attributes:
        folder: where they type.
        env: what they have set.
    """

    folder: Path
    env: dict[str, str]
    done: list[str] = field(default_factory=list)

    def types(self, command: str, code: int, shown: list[str], place: str) -> None:
        """Type a command into a shell; what it sets stays set."""
        left = self.folder / ".environment"
        # What a person sets in their shell is there for the next command as well.
        script = f"set -a\n{command}\ncode=$?\nenv -0 > {left}\nexit $code\n"

        def typed() -> subprocess.CompletedProcess[str] | None:
            run = subprocess.run(
                ["bash", "-c", script], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            # What the page before recorded may not be scored yet, and the answer says so: it is whole a little later.
            return None if run.returncode == 3 != code and command.startswith(READS) else run

        run = until(typed, f"{place}: the answer of {command} is whole")
        said = f"{place}: $ {command}\n{run.stdout}{run.stderr}"
        # In part, as long as the worker makes vectors of the examples: that takes it minutes.
        # The doctor says so meanwhile.
        late = command.startswith(("imem ask", "imem panel", "imem doctor"))
        assert run.returncode in {code, 3 if late else code}, said
        assert "Traceback" not in run.stderr, said
        assert unlike(shown, run.stdout + run.stderr) == [], said
        self.env = dict(pair.partition("=")[::2] for pair in left.read_text().split("\0") if pair)
        self.done.append(command)

    def runs(self, block: Block) -> None:
        """Run a program as a script of its own."""
        script = self.folder / "script.py"
        script.write_text(block.text)
        run = forking.run("script", str(script), env=self.env, cwd=self.folder)
        assert run.returncode == 0, f"{block.place}\n{run.stdout}{run.stderr}"

    def asks(self, block: Block) -> None:
        """Have Postgres answer, as the application."""
        settings = state.with_local_endpoints(Settings.read(self.env))
        assert settings.postgres_url is not None
        with psycopg.connect(settings.postgres_url.get_secret_value(), autocommit=True) as connection:
            for statement in block.text.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())


@dataclass
class Home:
    """A home with a stack that runs and holds the examples."""

    env: dict[str, str]

    def up(self) -> None:
        """See to it that the stack runs."""
        if state.running(Folders(Path(self.env["IMEM_HOME"]))) is None:
            imem(self.env, "up", "--detach")
        # What a page before has recorded is no reason for this one to find the memory behind.
        imem(self.env, "sync", "status", "--wait", "600")


def vectors_of_words(asked: Asked) -> Answer:
    """Answer as an endpoint of models does: texts are near one another by the words that they share."""
    vectors = np.full((len(texts := json.loads(asked.body)["input"]), WORDS), 0.01)
    for number, text in enumerate(texts):
        for word in set(re.findall(r"\w+", text.casefold())):
            vectors[number, crc32(word.encode()) % WORDS] += 1.0
    data = [{"index": number, "embedding": vector.tolist()} for number, vector in enumerate(vectors)]
    return Answer(body=json.dumps({"data": data}).encode())


def imem(env: Mapping[str, str], *words: str) -> None:
    run = forking.run("imem", *words, env=env)
    assert run.returncode == 0, f"imem {' '.join(words)}\n{run.stdout}{run.stderr}"


def compared(env: Mapping[str, str]) -> bool:
    """Whether the worker has made up its mind about what is alike: until then an answer says that it is not whole."""
    return forking.run("imem", "similar", "MU", env=env).returncode == 0


@contextmanager
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """Lend the variables of a reader whose stack is in a home of its own; *folder* gets the program."""
    with temporary_home() as top, serving(vectors_of_words) as models:
        env = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_") or name in KEPT}
        env |= {"IMEM_HOME": str(top / "home"), "PATH": f"{forking.program(folder).parent}:{BIN}:{os.environ['PATH']}"}
        # However busy the machine is, a page's answers are whole.
        env |= {"IMEM_POSTGRES_POOL_SIZE": "4", "COLUMNS": "120", "IMEM_DEADLINE_MS": "30000", "PYTHONPATH": SPARING}
        # The vectors of the examples would take a third of the time; tests/e2e does without this what the README says.
        env |= {
            "IMEM_EMBEDDING_URL": models.url,
            "IMEM_EMBEDDING_MODEL": "words",
            "IMEM_EMBEDDING_DIMENSION": str(WORDS),
        }
        yield env


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Start a stack once, with an example loaded."""
    with environment(tmp_path_factory.mktemp("bin")) as env:
        try:
            imem(env, "up", "--detach")
            imem(env, "load", str(ROOT / "examples" / "trading_desk" / "trading_desk.jsonl.gz"))
            imem(env, "sync", "status", "--wait", "600")
            until(partial(compared, env), "analyses have been compared")
            yield Home(env)
        finally:
            imem(env, "down", "--purge", "--yes")


def trials() -> list[str]:
    """Return the pages that begin a stack of their own, with a time of its own; tests/docs/test_trials.py runs them."""
    return [
        page for page in pages()
        if any("$ imem up --detach --trial" in block.text and block.marker not in NOT_RUN for block in blocks(page))
    ]  # fmt: skip


def _that_run(*, last: bool) -> Iterator[str]:
    found = [page for page in pages() if page not in trials()]
    for page in (page for page in LAST if page in found) if last else (page for page in found if page not in LAST):
        if any(block.language in RUN and block.marker not in NOT_RUN for block in blocks(page)):
            yield page


@pytest.mark.e2e
@pytest.mark.parametrize("page", list(_that_run(last=False)))
def test_page_runs_from_top_to_bottom(home: Home, page: str, tmp_path: Path) -> None:
    """Commands end as they should and print what is shown; programs run; files are what their names say."""
    read(home, page, tmp_path)


@pytest.mark.e2e
def test_what_the_demo_says_to_try_next_answers(home: Home, tmp_path: Path) -> None:
    """Each command as it is printed; whoever typed a name that nobody knows would end with 1."""
    home.up()
    reader = Reader(tmp_path, dict(home.env))
    for command, _ in demo.NEXT:
        reader.types(command, 0, [], "demo")


@pytest.mark.e2e
@pytest.mark.parametrize("page", list(_that_run(last=True)))
def test_page_that_stops_the_stack_runs_from_top_to_bottom(home: Home, page: str, tmp_path: Path) -> None:
    """As those before it."""
    read(home, page, tmp_path)


def read(home: Home, page: str, tmp_path: Path) -> None:
    """Do what a page says."""
    home.up()
    follow(Reader(tmp_path, dict(home.env)), page, tmp_path)


def follow(reader: Reader, page: str, tmp_path: Path) -> None:
    """Do what its blocks say, one after the other."""
    (tmp_path / ".venv").symlink_to(BIN.parent)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page):
        if block.marker == "file":
            path = tmp_path / block.value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.marker in NOT_RUN:
            continue
        elif block.language == "console":
            commands = block.commands
            for number, (command, shown) in enumerate(commands, 1):
                last = number == len(commands)
                code = int(block.value) if block.marker == "exit" and last else 0
                reader.types(command, code, shown, block.place)
        elif block.language == "python":
            reader.runs(block)
        elif block.language == "sql":
            reader.asks(block)


def test_what_is_not_run_has_a_reason_and_is_little() -> None:
    """The reasons are few and counted; a block in a language that is run has a marker or is run."""
    found = [block for page in pages() for block in blocks(page)]
    reasons = Counter(block.value for block in found if block.marker == "not run")

    assert set(reasons) <= set(REASONS)
    assert {reason: count for reason, count in reasons.items() if count > REASONS[reason]} == {}
    run = [block for block in found if block.language in RUN and not block.marker.startswith("not")]
    assert len(run) > 3 * sum(reasons.values()) / 2
    assert [block.place for block in run if block.language == "console" and not block.commands] == []


def test_other_blocks_are_what_they_say() -> None:
    """JSON is JSON, line by line where it is lines; TOML is TOML."""
    for block in (block for page in pages() for block in blocks(page)):
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language in {"json", "jsonl"}:
            try:
                json.loads(block.text)
            except ValueError:
                for line in block.text.splitlines():
                    json.loads(line)


def test_the_demo_names_what_the_examples_hold() -> None:
    """What it tells people to try next, in the README as well."""
    named = {"company:ORCL", "trading_desk:MU-20260602/research", "FluSight-ensemble"}
    lines = [command for command, _ in demo.NEXT]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [sum(name in line for name in named) for line in lines] == [1, 1, 1]
    assert [line for line in lines if line not in readme] == []
    held = ""
    for name in EXAMPLES:
        with gzip.open(ROOT / "examples" / name / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            held += file.read()
    assert [name for name in named if f'"{name}"' not in held] == []


def test_output_is_compared_loosely_and_not_blindly() -> None:
    """What is left out may be anything; what is shown must be there, in order."""
    printed = "a 1 b\nmore\n  c   d\n"

    assert unlike(["a … b", "…", "c d"], printed) == []
    assert unlike(["c d", "a … b"], printed) == ["a … b"]
    assert unlike(["x"], printed) == ["x"]
