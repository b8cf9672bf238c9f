"""What ``imem`` without arguments lists: every command in one group, the everyday ones first."""

from __future__ import annotations

import re

import typer.main
from typer.testing import CliRunner

from imem.cli import app
from imem.commands.table import GROUPS


def test_each_command_is_in_one_group() -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(vars(typer.main.get_command(app))["commands"])


def test_the_everyday_commands_are_listed_first_and_the_groups_have_headings() -> None:
    shown = CliRunner().invoke(app, [], env={"COLUMNS": "120", "TERM": "dumb"}).output
    assert re.findall(r"─ ([A-Z][a-z ]+) ─", shown) == ["Options", *GROUPS]
    _, _, listed = shown.partition("─ Everyday ─")
    assert re.findall(r"^│ ([a-z]+) ", listed, re.MULTILINE) == [name for names in GROUPS.values() for name in names]
    assert len(GROUPS["Everyday"]) == 5
