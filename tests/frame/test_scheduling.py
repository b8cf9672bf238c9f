"""How tests are handed to the processes of a run: each once, the longest first, and a graph in two of them only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import GRAPHS, LongestFirst, seconds

PROCESSES = 4
FILES = {"tests/a.py": ("@graph", 1), "tests/b.py": ("@graph", 9), "tests/c.py": ("", 30), "tests/d.py": ("", 20)}
"""What a file's tests need, and the seconds of the file."""

SINGLE = "tests/e.py::test_1"
"""A test that is named by itself, and is longer than anything else."""


class Process:
    """Runs what it is given, each test once it knows the next one, as the real ones do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.given: list[int] = []
        self.ran: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def next(self) -> int | None:
        left = self.given[len(self.ran) :]
        if len(left) > 1 or (left and self.shutting_down):
            self.ran.append(left[0])
            return left[0]
        return None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> tuple[LongestFirst, list[Process], list[str]]:
    """Run everything; return the scheduler, the processes, and the names of the tests."""
    expected = {name: float(taken) for name, (_, taken) in FILES.items()} | {SINGLE: 99.0}
    monkeypatch.setattr("tests.scheduling.seconds", lambda: expected)
    names = [f"{name}::test_{n}{mark}" for name, (mark, _) in FILES.items() for n in range(3)]
    names += [f"tests/e.py::test_{n}" for n in range(3)]
    names += [f"tests/graph_{n}.py::test{mark}" for n in range(6) for mark in ("@graph", "_light")]
    config: Any = SimpleNamespace(getvalue=lambda _: [f"{PROCESSES}*popen"], option=SimpleNamespace(loadscopereorder=1))
    scheduler, processes = LongestFirst(config, SimpleNamespace(loadscopesched=lambda *_: None)), []
    for number in range(PROCESSES):
        process: Any = Process(number)
        processes.append(process)
        scheduler.add_node(process)
        scheduler.add_node_collection(process, names)
    scheduler.schedule()
    moved = True
    while moved:
        moved = False
        for process in processes:
            if (index := process.next()) is not None:
                moved = True
                scheduler.mark_test_complete(process, index, 1.0)
    return scheduler, processes, names


def test_each_test_runs_once_and_graphs_in_two_processes(
    run: tuple[LongestFirst, list[Process], list[str]],
) -> None:
    """No other process gets a test that would start one."""
    scheduler, processes, names = run

    assert sorted(index for process in processes for index in process.ran) == list(range(len(names)))
    assert scheduler.tests_finished
    assert {process.number for process in processes for index in process.ran if names[index].endswith("@graph")} == set(
        range(GRAPHS)
    )


def test_the_longest_come_first_and_files_stay_together(
    run: tuple[LongestFirst, list[Process], list[str]],
) -> None:
    """What only two processes may run comes first there; a test that is named by itself needs not its file."""
    scheduler, processes, names = run

    first = [names[process.ran[0]].partition("::")[0] for process in processes]
    assert first == ["tests/b.py", "tests/a.py", "tests/e.py", "tests/c.py"]
    assert names[processes[2].ran[0]] == SINGLE
    for name in FILES:
        assert sum(any(names[index].startswith(name) for index in process.ran) for process in processes) == 1
    assert scheduler.measured[SINGLE] == 1.0
    assert scheduler.measured["tests/c.py"] == 3.0


def test_the_list_of_long_files_names_what_there_is(root: Path) -> None:
    """A file or test that was renamed would no longer come first."""
    named = [unit.partition("::") for unit in seconds()]

    assert named
    assert [file for file, _, _ in named if not (root / file).is_file()] == []
    texts = {file: (root / file).read_text(encoding="utf-8") for file, _, _ in named}
    assert [test for file, _, test in named if f"def {test.partition('[')[0]}" not in texts[file]] == []
