"""
The pages of the documentation as programs: their blocks, and what is done with each.

A block is what stands between two fences. A comment on the line before it, which readers do not see, may say:

``<!-- not run: REASON -->``
    why it cannot be run here; the reasons are few, and counted by a test.
``<!-- file: NAME -->``
    that it is a file of this name, which the blocks below use.
``<!-- append: NAME -->``
    that it comes at the end of this file of the checkout; a test of its page applies it, to a copy.
``<!-- exit: N -->``
    with which code its last command ends, where that is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

RUN: Final = frozenset({"console", "python", "sql"})
"""Languages of blocks that are run."""

_BLOCK: Final = re.compile(
    r"(?:^[ ]*<!-- (?P<marker>not run|file|append|exit): (?P<value>.+?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<language>[a-z]+)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """
    One block of a page.

    Attributes:
        page: where, from the root.
        line: its first line there.
        language: as the fence says.
        text: what it holds.
        marker, value: what the comment before it says; empty without one.
    """

    page: str
    line: int
    language: str
    text: str
    marker: str
    value: str

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a console block, each with the output that the page shows."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0][:-1]}{line.removeprefix('> ')}", [])
            elif found:
                found[-1][1].append(line)
        return found


def pages() -> list[str]:
    """Return every page that is written by hand, from the root."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(page.relative_to(ROOT)) for page in found if "_build" not in page.parts]


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        indent = found["indent"]
        body = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], body, found["marker"] or "", found["value"] or "")


def unlike(shown: list[str], printed: str) -> list[str]:
    """
    Return the lines of *shown* that are not among those that were *printed*, in this order.

    A line of ``…`` stands for lines that are left out, ``…`` within one for any text; spaces count as one.
    """
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    missing = []
    for wanted in (" ".join(line.split()) for line in shown):
        if wanted in {"", "…"}:
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
        if not any(pattern.fullmatch(line) for line in lines):
            missing.append(wanted)
    return missing
