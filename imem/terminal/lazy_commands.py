"""
A group of commands whose modules are imported one at a time.

To import the modules of all commands takes longer than most commands do. The group knows each command's name and first
sentence from a table, and imports the module of the command that is typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer.main
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """
    A command that is not imported yet.

    Attributes:
        module: the module whose Typer ``app`` holds it, below the package of the table.
        help: the first paragraph of its help.
    """

    module: str
    help: str


class LazyCommands(TyperGroup):
    """
    A group that lists its commands from a table, and imports a command when it is typed.

    ``commands`` holds outlines, which suffice for help, completion of names and suggestions; ``resolve_command``
    returns the command itself.

    Attributes:
        package: the package of the modules that the table names.
        groups: heading of the help → name → entry, in the order of the help.
    """

    package: ClassVar[str]
    groups: ClassVar[Mapping[str, Mapping[str, CommandEntry]]]

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._modules: dict[str, str] = {}
        for heading, entries in self.groups.items():
            for name, entry in entries.items():
                self._modules[name] = entry.module
                self.add_command(TyperCommand(name, help=entry.help, rich_help_panel=heading))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command and the arguments that are left; imports the command's module."""
        name, outline, rest = super().resolve_command(ctx, args)
        return name, None if outline is None else self.load(outline.name or ""), rest

    def load(self, name: str) -> Any:
        """
        Return the command itself. The module of a command of the table is imported now.

        Raises:
            KeyError: neither the table nor the program added such a command, or the module has none.
        """
        module = self._modules.get(name)
        return self.commands[name] if module is None else self.module_commands(module)[name]

    def module_commands(self, module: str) -> Mapping[str, Any]:
        """Return the commands that a module of the table defines; imports it."""
        return typer.main.get_group(import_module(f"{self.package}.{module}").app).commands
