"""What `.ci/run` does with tests that fail: once more, alone. Tried on folders of tests of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "repeat_failed.py"

INI = """
[pytest]
addopts = -p no:anyio -p no:asyncio -p no:langsmith_plugin -p no:valkey -p no:hypothesispytest -m 'not slow'
markers = slow: left out by default
"""

TIMES = """
from pathlib import Path
import os, pytest, signal

def first(name, most=1):
    file = Path(__file__).with_name(name)
    with file.open("a") as noted:
        noted.write(".")
    return file.stat().st_size <= most
"""

KILLED = "os.kill(os.getpid(), signal.SIGKILL)"

AWRY = {
    "an assertion": "def test_it():\n    assert not first('it', {most})",
    "one of several values": """
        @pytest.mark.parametrize("value", ["a b", "[c]::d", "é"])
        def test_it(value):
            assert value != "[c]::d" or not first('it', {most})""",
    "the test of a class": "class TestIt:\n    def test_it(self):\n        assert not first('it', {most})",
    "a set-up": """
        @pytest.fixture
        def made():
            assert not first('it', {most})
        def test_it(made): pass""",
    "a clean-up": """
        @pytest.fixture
        def made():
            yield
            assert not first('it', {most})
        def test_it(made): pass""",
    "a process that ends": f"def test_it():\n    if first('it', {{most}}):\n        {KILLED}",
    "a process that ends, then an assertion": f"""
        def test_it():
            if first('ended'):
                {KILLED}
            assert not first('it', {{most}} - 1)""",
    "a test left out by default": "@pytest.mark.slow\ndef test_it():\n    assert not first('it', {most})",
}
"""What goes wrong, as often as is said."""


def folder_of(tmp_path: Path, *modules: str) -> Path:
    """Make a folder of tests: some that pass, and *modules*."""
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_others.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    for number, module in enumerate(modules):
        (tmp_path / f"test_{number}.py").write_text(f"{TIMES}\n{dedent(module)}\n")
    return tmp_path


def ci(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    sys.stdout.write(run.stdout + run.stderr)
    return run


def flaky(folder: Path) -> list[str]:
    file = folder / "build" / "flaky.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def closing(run: subprocess.CompletedProcess[str]) -> str:
    return run.stdout.splitlines()[-1]


@pytest.mark.parametrize("what", AWRY)
def test_what_fails_once_is_named_and_fails_nothing(tmp_path: Path, what: str) -> None:
    """The run ends with pytest's own line of a run that passed, and the name is kept."""
    folder = folder_of(tmp_path, AWRY[what].format(most=1))

    run = ci(folder, "-n2", "--dist", "loadfile", "-m", "slow or not slow")

    assert run.returncode == 0
    assert re.fullmatch(r"=+ 1 passed in .* =+", closing(run))
    [name] = flaky(folder)
    assert f"flaky: {name}\n" in run.stdout
    assert name.startswith("test_0.py::")


@pytest.mark.parametrize("what", AWRY)
def test_what_fails_twice_fails(tmp_path: Path, what: str) -> None:
    """A third run would have passed: nothing is tried more than twice."""
    folder = folder_of(tmp_path, AWRY[what].format(most=2))

    run = ci(folder, "-n2", "--dist", "loadfile", "-m", "slow or not slow")

    assert run.returncode != 0
    assert "flaky:" not in run.stdout
    assert flaky(folder) == []


def test_one_that_fails_twice_hides_none_that_failed_once(tmp_path: Path) -> None:
    """The run fails; the other is named all the same, also where everything runs in one process."""
    once, twice = (AWRY["an assertion"].format(most=most).replace("'it'", f"'{most}'") for most in (1, 2))
    folder = folder_of(tmp_path, once, twice)

    run = ci(folder, "-n0")

    assert run.returncode == 1
    assert re.fullmatch(r"=+ 1 failed, 1 passed in .* =+", closing(run))
    assert flaky(folder) == ["test_0.py::test_it"]


def test_nothing_is_repeated_where_nothing_failed(tmp_path: Path) -> None:
    """The one run is the whole of it."""
    folder = folder_of(tmp_path)

    run = ci(folder, "-n", "2")

    assert run.returncode == 0
    assert run.stdout.count("passed in") == 1
    assert flaky(folder) == []


WHOLE_RUNS = {
    "no test": ("", ("-k", "none_of_them")),
    "a file that cannot be collected": ("assert not first('it')\ndef test_it(): pass", ()),
    "an argument that is wrong": ("", ("no_such_file.py",)),
    "an interruption": ("def test_it():\n    if first('it'):\n        raise KeyboardInterrupt", ()),
    "an end in the midst of it": (f"def test_it():\n    if first('it'):\n        {KILLED}", ()),
    "an end of its own": (
        "def test_it():\n    assert not first('it')\ndef test_then():\n    pytest.exit('enough', 1)",
        (),
    ),
    "a first failure that is the last": (
        "def test_it():\n    assert not first('it')\ndef test_then():\n    assert not first('then')",
        ("-x",),
    ),
    "more failures than chance makes": (
        "@pytest.mark.parametrize('n', range(21))\ndef test_it(n):\n    assert not first(f'it{n}')",
        (),
    ),
    "what is left out the second time": (
        "def test_it():\n    if not first('it'):\n        pytest.skip('not now')\n    assert False",
        (),
    ),
}
"""What says nothing of all tests, or has a cause that is no chance; each would pass when tried again."""


@pytest.mark.parametrize(
    ("what", "processes"),
    # Where the process that ends is one of several, a test failed, and the others have run.
    [(what, n) for what in WHOLE_RUNS for n in ("-n0", "-n1") if (what, n) != ("an end in the midst of it", "-n1")],
)
def test_a_run_that_tells_nothing_fails(tmp_path: Path, what: str, processes: str) -> None:
    """Whatever the second try of a part of it would bring."""
    module, arguments = WHOLE_RUNS[what]
    folder = folder_of(tmp_path, module)

    run = ci(folder, processes, *arguments)

    assert run.returncode != 0
    assert flaky(folder) == []


def test_twenty_failures_are_repeated(tmp_path: Path) -> None:
    """As many as may still be chance."""
    folder = folder_of(
        tmp_path, "@pytest.mark.parametrize('n', range(20))\ndef test_it(n):\n    assert not first(f'it{n}')"
    )

    assert ci(folder, "-n1").returncode == 0
    assert len(flaky(folder)) == 20


def test_a_test_that_runs_make_gets_pytest_itself(tmp_path: Path) -> None:
    """The program that stands in for pytest does so for one make alone, not for those that tests call."""
    module = """
        def test_it():
            assert "MAKEFLAGS" not in os.environ
            assert "MAKELEVEL" not in os.environ"""
    folder = folder_of(tmp_path, module)
    (folder / "Makefile").write_text("PYTEST := false\ntest:\n\t@$(PYTEST) -n0\n")

    run = subprocess.run(
        ["make", "test", f"PYTEST={sys.executable} {PROGRAM}"], cwd=folder, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, indent(run.stdout + run.stderr, "  ")


def test_the_full_check_repeats_and_make_test_does_not(root: Path) -> None:
    """Both stages that run tests; by hand nothing hides a test that sometimes fails."""
    script = (root / ".ci" / "run").read_text(encoding="utf-8")

    assert re.findall(r'make (\w+) "\$\{repeating\[@\]\}"', script) == ["e2e", "test"]
    assert "repeat_failed" not in (root / "Makefile").read_text(encoding="utf-8")
