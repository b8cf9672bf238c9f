"""``imem trades``: recent trades of a deployment or a skill, as they are put into a prompt."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from imem.commands.memory.ask import AsOf, Budget, checked_options, run_question
from imem.terminal.command import Json, print_answer

app = typer.Typer()


@app.command()
def trades(
    deployment: Annotated[str | None, typer.Argument(metavar="[DEPLOYMENT]", help="What trades.")] = None,
    *,
    skill: Annotated[
        str | None, typer.Option("--skill", help="All deployments of a skill that you may read, instead of one.")
    ] = None,
    skill_version: Annotated[str | None, typer.Option("--skill-version", help="Only this version.")] = None,
    k: Annotated[int, typer.Option("-k", help="Most closed trades, 0 to 30.")] = 10,
    include_open: Annotated[bool, typer.Option("--open/--no-open", help="Whether open positions are shown.")] = True,
    as_of: AsOf = None,
    deadline_ms: Budget = None,
    as_json: Json = False,
) -> None:
    """
    Show the newest trades, exactly as an agent gets them, and how many tokens they take.

    `--json` prints the rows with everything that the ledger has of them.
    """
    asked = checked_options(as_of, "known", deadline_ms)
    found = run_question(
        lambda memory: memory.trades.recent(
            deployment=deployment,
            skill=skill,
            skill_version=skill_version,
            k=k,
            include_open=include_open,
            as_of=asked["as_of"],
            deadline_ms=asked["deadline_ms"],
        )
    )
    print_answer(
        {"tokens": found.tokens, "closed": _rows(found.closed), "open": _rows(found.open)},
        lambda: [found.text.rstrip("\n") or "No trades."],
        as_json=as_json,
    )
    if not as_json:
        typer.echo(f"About {found.tokens:,} tokens.", err=True)


def _rows(found: tuple[Any, ...]) -> list[dict[str, Any]]:
    from imem.postmortem.trades.model import plain_values  # noqa: PLC0415 - a command imports what it needs

    return [plain_values(trade) for trade in found]
