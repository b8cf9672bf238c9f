"""``imem brief``, and reads of single sections, records and queries."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import typer

from imem.journal.clock import SystemClock
from imem.journal.errors import ImemError
from imem.kg.similarity.scoring import MIN_SCORE
from imem.terminal.command import (
    DEGRADED,
    Json,
    moment,
    print_answer,
    print_json,
    print_section,
    run_within,
    wrong_usage,
)

if TYPE_CHECKING:
    from imem.memory import Memory

T = TypeVar("T")

app = typer.Typer()

Subject = Annotated[str, typer.Argument(help="A ticker, a market id, a subject id such as company:MU, or a name.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="T",
        help="The moment to answer for: a time with its zone, or a day (its end in UTC). Now by default.",
    ),
]
OnClock = Annotated[
    str,
    typer.Option(
        "--clock", metavar="known|recorded", help="Read what could have been known, or what was recorded here."
    ),
]
Budget = Annotated[
    int | None, typer.Option("--deadline-ms", help="When the answer is due, 10 to 30,000 ms; 10,000 by default.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="How many, at most 200.")]


class ReadOptions(TypedDict):
    """Arguments that every read of the memory takes beside its query."""

    as_of: datetime | None
    clock: str
    deadline_ms: int | None


def run_question(question: Callable[[Memory], Awaitable[T]], *, warm_up: bool = False) -> T:
    """
    Return the answer; a wrong argument ends with exit code 2, an unknown subject or debate with 1.

    Args:
        warm_up: whether everything is connected and loaded at once, rather than one by one.
    """
    from imem.memory import Memory  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return run_within(partial(Memory.open, warm_up=warm_up), question)


@app.command()
def brief(
    subject: Subject,
    *,
    as_of: AsOf = None,
    clock: OnClock = "known",
    for_agent: Annotated[str | None, typer.Option("--for-agent", help="Who asks.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Longest answer, in tokens as estimated; 1,900 by default.")
    ] = None,
    max_chars: Annotated[
        int | None, typer.Option("--max-chars", help="Longest answer, in characters, instead.")
    ] = None,
    deadline_ms: Budget = None,
    as_json: Json = False,
) -> None:
    """
    Say what is known of a subject: analyses, similar ones, debates, track records, contradictions, patterns, lessons.

    Exit code 0: everything was asked; 1: nothing is known of the subject; 3: something could not be asked, and the
    answer says what.
    """
    options = checked_options(as_of, clock, deadline_ms)
    answer = run_question(lambda memory: memory.brief(subject, for_agent=for_agent, **options))
    with wrong_usage():
        print_answer(
            answer.to_dict(),
            lambda: [answer.to_markdown(max_tokens=max_tokens, max_chars=max_chars).rstrip("\n")],
            as_json=as_json,
        )
    if answer.degraded:
        raise typer.Exit(DEGRADED)


@app.command()
def similar(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="An analysis, by its id, or a subject.")],
    *,
    min_score: Annotated[float, typer.Option("--min-score", help="How alike they must be, 0 to 1.")] = MIN_SCORE,
    as_of: AsOf = None,
    clock: OnClock = "known",
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """List analyses of other subjects similar to one, or to the newest of a subject, most similar first."""
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.similar(what, limit=limit, min_score=min_score, **options))

    def lines() -> list[str]:
        from imem.recall.sections.similar_analyses import similar_text  # noqa: PLC0415 - as above

        # What is overdue is told from what is not due yet.
        at = options.get("as_of") or SystemClock().now()
        return [similar_text(item, at) for item in answer.items] or ["None is similar enough."]

    print_section(answer, lines, as_json=as_json)


@app.command()
def view(
    name: Annotated[
        str, typer.Argument(help="top_patterns, agent_credibility, company_summaries or peer_comparisons.")
    ],
    key: Annotated[str, typer.Argument(help="A sector, an agent, or a subject; of patterns of no sector '*'.")],
    *,
    as_json: Json = True,  # noqa: ARG001 - rows are JSON anyhow; every command takes the option
) -> None:
    """
    Print a row of a materialised view as JSON, with when it was made.

    Exit code 0: there is one; 1: there is none, or the view was never made.
    """
    answer = run_question(lambda memory: memory.view(name, key))
    if answer is None:
        raise ImemError(f"The view {name} was never made.", mend="The worker makes it every quarter of an hour.")
    if answer.value is None:
        raise ImemError(f"{name} has no row for {key}.")
    made = {**asdict(answer), "built_at": answer.built_at.astimezone(UTC).isoformat()}
    print_json(made)


@app.command()
def precedents(
    debate_or_topic: Annotated[str, typer.Argument(metavar="DEBATE", help="The id of a debate, or a topic in words.")],
    *,
    k: Annotated[int, typer.Option("--limit", "-k", help="Most precedents, 1 to 50.")] = 5,
    as_of: AsOf = None,
    as_json: Json = False,
) -> None:
    """
    Show earlier debates that are comparable with a debate, and whether scores may decide it.

    Exit code 3: something is missing, such as an index that lags; the last line says what.
    """
    with wrong_usage():
        asked = moment(as_of)
    answer = run_question(lambda memory: memory.find_precedents(debate_or_topic, k=k, as_of=asked), warm_up=True)

    def lines() -> list[str]:
        from imem.debates.precedents.rendering import precedents_lines  # noqa: PLC0415 - as above

        return precedents_lines(answer)

    print_answer(answer.model_dump(mode="json", exclude_none=True), lines, as_json=as_json)
    if answer.reason is not None:
        raise typer.Exit(DEGRADED)


@app.command()
def text(
    kind: Annotated[str, typer.Argument(help="Such as Analysis.")],
    key: Annotated[str, typer.Argument(help="The record's key.")],
    *,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = False,
) -> None:
    """Print the long text of a record, verbatim."""
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.text(kind, key, **options))
    if answer is None:
        raise ImemError(f"No long text is recorded for {kind} {key}.")
    print_answer(answer.model_dump(mode="json"), lambda: [answer.body], as_json=as_json)


@app.command()
def query(
    name: Annotated[str, typer.Argument(help="Its name; the reference lists them.")],
    parameters: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="A parameter; JSON, or else text.")
    ] = None,
    *,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = True,  # noqa: ARG001 - rows are JSON anyhow; every command takes the option
) -> None:
    """Run a named query of the graph and print its rows as JSON."""
    options = checked_options(as_of, clock)
    values: dict[str, Any] = {}
    for setting in parameters or []:
        field, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r} is not of the form NAME=VALUE.")
        values[field] = _value(field, value)
    rows = run_question(lambda memory: memory.query(name, values, **options))
    print_json(rows)


def _value(field: str, text: str) -> Any:
    """
    Return what a person wrote for a parameter: JSON, or else text.

    Raises:
        typer.BadParameter: it is JSON that cannot be read; names the parameter.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
    except (RecursionError, ValueError):  # Nested too deeply, or a number of thousands of digits.
        raise typer.BadParameter(f"{field}: is nested too deeply or holds too long a number.") from None


def checked_options(as_of: str | None, clock: str, deadline_ms: int | None = None) -> ReadOptions:
    """Return the options of a question; what is wrong with them is wrong usage."""
    with wrong_usage():
        return {"as_of": moment(as_of), "clock": clock, "deadline_ms": deadline_ms}
