"""The groups in which ``imem`` without arguments lists its commands, the everyday ones first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Everyday": ("up", "load", "brief", "ask", "remember"),
    "Look up": (
        "memories", "history", "similar", "debates", "precedents", "text", "value", "contradictions", "sources",
        "agents", "agent", "panel", "forecasts", "signals", "trades", "reflections", "patterns", "lessons", "view",
        "query", "schema", "working",
    ),
    "People": (
        "tasks", "gates", "alerts", "debate", "credibility", "regime", "postmortems", "learning", "replay", "start",
        "pause", "resume", "extend", "pauses", "erase",
    ),
    "Operate": (
        "demo", "status", "down", "doctor", "logs", "metrics", "migrate", "mcp", "jobs", "sync", "snapshot",
        "checkpoints", "archive", "graph", "rebuild", "clock",
    ),
}  # fmt: skip
"""The commands of each group, in the order in which they are shown."""


class GroupedCommands(TyperGroup):
    """The commands in their groups; a command without a group comes last."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for panel, names in GROUPS.items():
            for name in names:
                if name in self.commands:
                    # Typer reads the panel of a command from this attribute.
                    vars(self.commands[name])["rich_help_panel"] = panel

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, group by group."""
        known = super().list_commands(ctx)
        grouped = [name for names in GROUPS.values() for name in names if name in known]
        return [*grouped, *(name for name in known if name not in grouped)]
