"""The status of a stack for a person: a table, or a line per change where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from imem.journal.errors import shown
from imem.journal.modes import Health
from imem.local.process import ProcessIdentity
from imem.local.state import ChildState, StackState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imem.jobs.backlog import Waiting

_COLOURS = {"ready": "green", "elsewhere": "green", "restarting": "yellow", "gone": "red"}
_REFRESHES_PER_S = 4


def memory_mb(child: ChildState) -> float | None:
    """Return the resident memory of *child* and all below it, in megabytes."""
    if child.pid is None:
        return None
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        process = psutil.Process(child.pid)
        return sum(_resident(one) for one in (process, *process.children(recursive=True))) / 1e6
    return None


def _resident(process: psutil.Process) -> int:
    """Return what *process* alone holds in bytes: memory shared with others, as in Postgres, counts in one of them."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        info = process.memory_info()
        return int(info.rss) if process.ppid() != 0 else 0
    return 0


def with_ended_children(state: StackState) -> StackState:
    """Return *state* with children that have died meanwhile marked ``gone``."""
    for name, child in state.children.items():
        if child.pid is not None and child.start_time is not None:
            alive = ProcessIdentity(child.pid, child.start_time, state.supervisor.boot).alive
            if not alive:
                state = state.with_child(name, state="gone", note="its process has ended")
    return state


def to_json(state: StackState | None) -> dict[str, Any]:
    """Return what ``imem status --json`` prints: no endpoint, because those hold passwords."""
    if state is None:
        return {"running": False, "ready": False, "children": {}}
    children = {
        name: {
            "state": child.state,
            "pid": child.pid,
            "port": child.port,
            "memory_mb": round(memory, 1) if (memory := memory_mb(child)) is not None else None,
            "restarts": child.restarts,
            "note": child.note,
            "log": child.log or None,
        }
        for name, child in state.children.items()
    }
    return {
        "running": True,
        "ready": state.ready and not state.unready,
        "supervisor": state.supervisor.pid,
        "children": children,
    }


def health_json(health: Health, left: Sequence[Waiting] | None) -> dict[str, Any]:
    """Return what ``imem status --json`` adds about the mode, and about what the pipelines have to do."""
    behind_s = round(health.behind_s, 3) if health.behind_s is not None else None
    pipelines = None if left is None else [one.to_dict() for one in left]
    mode = {"mode": health.mode.value, "away": list(health.away), "full": list(health.full), "behind_s": behind_s}
    return {**mode, "pipelines": pipelines}


def backlog_lines(left: Sequence[Waiting] | None) -> Iterator[str]:
    """Return the lines about what the pipelines still have to do; None: it could not be counted."""
    if left is None:
        yield "Pipelines: what they have to do could not be counted in time."
    elif not left:
        yield "Pipelines: nothing waits."
    else:
        far = any(one.far_behind for one in left)
        yield f"Pipelines{' are far behind, and answers lack what waits' if far else ''}:"
        for one in left:
            yield f"  {one}{f'; the last run failed: {shown(one.error)}' if one.error is not None else ''}"


def mode_line(health: Health) -> str:
    """Return the sentence about the mode."""
    said = f"Mode: {health.mode.value}."
    if health.away:
        said += f" No answer from: {', '.join(health.away)}."
    if health.full:
        said += f" No memory left, so that writes are refused: {', '.join(health.full)}."
    if health.behind_s:
        said += f" The graph is {health.behind_s:.1f} s behind."
    return said


def table(state: StackState) -> Group:
    """Return the status table and, in lines of their own, which may be folded, the notes."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("server", "state"):
        rows.add_column(title, no_wrap=True)
    for title in ("port", "pid", "memory", "restarts"):
        rows.add_column(title, justify="right", no_wrap=True)
    for name, child in state.children.items():
        memory = memory_mb(child)
        rows.add_row(
            name,
            Text(child.state, style=_COLOURS.get(child.state, "cyan")),
            str(child.port or ""),
            str(child.pid or ""),
            f"{memory:.0f} MB" if memory is not None else "",
            str(child.restarts or ""),
        )
    notes = [Text(f"{name}: {child.note}", overflow="fold") for name, child in state.children.items() if child.note]
    return Group(rows, *notes)


@contextmanager
def watching(console: Console, *, quiet: bool = False) -> Iterator[Callable[[StackState], None]]:
    """
    Give a function that shows every new state: in a live table on a terminal, else as a line per change.

    With *quiet* nothing is shown.
    """
    if quiet:
        yield lambda _state: None
    elif console.is_terminal:
        latest: list[StackState] = []
        with Live(
            console=console,
            refresh_per_second=_REFRESHES_PER_S,
            get_renderable=lambda: table(latest[-1]) if latest else Text("starting"),
        ):
            yield lambda state: latest.__setitem__(slice(None), [state])
    else:
        yield _Lines(sys.stderr.write)


class _Lines:
    """Writes a line for every change of a child's state."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._seen: dict[str, tuple[str, str]] = {}

    def __call__(self, state: StackState) -> None:
        for name, child in state.children.items():
            # A note that counts megabytes is for a live table; here its first word says enough.
            key = (child.state, child.note.partition(" ")[0])
            if self._seen.get(name) != key:
                self._seen[name] = key
                self._write(f"{name}: {child.state}{f' ({child.note})' if child.note else ''}\n")
