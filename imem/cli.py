"""
The command ``imem``.

Exit codes: 0 done, 1 failure, 2 wrong usage or a wrong setting, 3 it works but is degraded. A failure is one sentence
and the mend on standard error; a traceback appears with ``--debug`` alone: it may show what a sentence would not.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Annotated

import typer

import imem.commands
from imem.commands.table import ImemCommands
from imem.journal.errors import ImemError, SettingsError
from imem.terminal import output
from imem.terminal.version import version_of_this

USAGE = 2

_debug = False

app = typer.Typer(
    name="imem",
    cls=ImemCommands,
    help="Institutional memory for teams of analysis agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - the shape of a Typer callback
    if value:
        typer.echo(version_of_this())
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of failures.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print stored text as it is, into a file or a pipe."),
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Institutional memory for teams of analysis agents."""
    global _debug  # noqa: PLW0603 - one command line is one process
    _debug = debug
    if raw:
        if not output.unguard():
            raise typer.BadParameter(
                "a terminal would obey what is printed; write to a file or a pipe.", param_hint="--raw"
            )
        context.color = True  # Or else escape sequences would be taken out on their way into a file.


def main() -> None:
    """Run the command line; every failure ends as a sentence and an exit code."""
    sys.excepthook = _one_sentence
    imem.commands.is_command = True
    output.guard()
    try:
        # Called without Typer's own wrapper, which would put its printer of tracebacks in place of ours.
        typer.main.get_command(app)()
    except SettingsError as error:
        _one_sentence(type(error), error, error.__traceback__)
        sys.exit(USAGE)


def _one_sentence(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """
    Say what went wrong; as the last word of a program, Python then exits with code 1.

    The text of an unexpected error is not shown: it may hold anything, a password among it.
    """
    if _debug:
        sys.__excepthook__(kind, error, trace)
        return
    console = output.console(stderr=True, soft_wrap=True)
    if isinstance(error, KeyboardInterrupt):
        console.print("Interrupted.", markup=False)
    elif isinstance(error, ImemError):
        console.print(str(error), markup=False)
    else:
        console.print(
            f"Something unexpected went wrong ({kind.__name__}). `imem --debug …` shows where; please report it.",
            markup=False,
        )
