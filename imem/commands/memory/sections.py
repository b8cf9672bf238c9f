"""Commands that print single sections: those that a briefing's last lines name."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Final

import typer

from imem.commands.memory.ask import AsOf, Limit, OnClock, Subject, checked_options, run_question
from imem.terminal.command import Json, print_section

if TYPE_CHECKING:
    from imem.recall.answers import BriefingSection

app = typer.Typer()

PURPOSES: Final = {
    "history": "List the analyses of a subject, newest first, with findings, decisions and outcomes.",
    "debates": "List the debates on a subject and how they ended.",
    "patterns": "List the active patterns of a subject's sector, and of none, the most successful first.",
    "lessons": "List the lessons that bear on a subject, newest first.",
}
"""Section → help of its command. The method of the memory, the command and the section have one name."""


def _add_command(name: str, purpose: str) -> None:
    @app.command(name, help=purpose)
    def section(
        subject: Subject, *, as_of: AsOf = None, clock: OnClock = "known", limit: Limit = None, as_json: Json = False
    ) -> None:
        options = checked_options(as_of, clock)
        answer = run_question(methodcaller(name, subject, limit=limit, **options))
        print_section(answer, lambda: [section_text(name, answer)], as_json=as_json)


def section_text(name: str, answer: BriefingSection) -> str:
    """Return a section that is read by itself as lines, or that there is nothing."""
    from imem.recall.section_registry import SECTIONS_BY_NAME  # noqa: PLC0415 - a command imports what it needs

    nothing = "Nothing is known." if answer.reason is None else "Nothing could be asked."
    return SECTIONS_BY_NAME[name].text(answer) or nothing


for _name, _purpose in PURPOSES.items():
    _add_command(_name, _purpose)
