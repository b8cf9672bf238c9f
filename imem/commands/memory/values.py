"""``imem value``, ``imem contradictions`` and ``imem sources``: which value counts, what differs, and who was right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imem.commands.memory.ask import AsOf, Limit, OnClock, Subject, checked_options, run_question
from imem.commands.memory.sections import section_text
from imem.journal.errors import BadInput, shown
from imem.terminal.command import Json, parse_period, print_answer, print_section, wrong_usage

if TYPE_CHECKING:
    from imem.credibility.disputes.reading import SourceRecord

app = typer.Typer()

SubjectId = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject's id, such as company:MU, or a ticker.")]
Metric = Annotated[str, typer.Argument(help="The metric, as data points name it.")]


@app.command()
def value(
    subject: SubjectId,
    metric: Metric,
    period: Annotated[
        str,
        typer.Argument(help="A day, or two as 2019-01-01..2019-12-31. A day means 00:00 UTC; times name their zone."),
    ],
    *,
    unit: Annotated[str | None, typer.Option("--unit", help="Needed where there are values in several units.")] = None,
    basis: Annotated[
        str | None, typer.Option("--basis", help="Needed where there are several accounting bases.")
    ] = None,
    used_by: Annotated[
        str | None, typer.Option("--used-by", metavar="ANALYSIS", help="An analysis that rests on the value.")
    ] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = False,
) -> None:
    """Show which value of a metric counts, how sure it is, and what contradicts it."""
    options = checked_options(as_of, clock)
    with wrong_usage():
        asked = parse_period(period)
    answer = run_question(
        lambda memory: memory.value(subject, metric, asked, unit=unit, basis=basis, used_by=used_by, **options)
    )

    def lines() -> Iterable[str]:
        from imem.recall.rendering.metric_values import value_lines  # noqa: PLC0415 - a command imports what it needs

        return value_lines(answer)

    print_answer(answer.to_dict(), lines, as_json=as_json)


@app.command()
def contradictions(
    subject: Subject,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Compare all data points anew; list roundings, signs and stock splits, too.")
    ] = False,
    metric: Annotated[str | None, typer.Option("--metric", help="One metric alone; goes with --all.")] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """
    List which data about a subject contradict each other, what counts, and who decides until when.

    Open ones come first, then by priority. The person who decides is shown only without `--as-of`.
    """
    options = checked_options(as_of, clock)
    with wrong_usage():
        if metric is not None and not every:
            raise BadInput("--metric", "goes with --all.")
        if limit is not None and every:
            raise BadInput("--limit", "does not go with --all.")
    if every:
        rows = run_question(lambda memory: memory.differences(subject, metric=metric, **options))
        print_answer(list(rows), lambda: _differences(rows), as_json=as_json)
        return
    answer = run_question(lambda memory: memory.contradictions(subject, limit=limit, **options))
    print_section(answer, lambda: [section_text("contradictions", answer)], as_json=as_json)


def _differences(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    from imem.recall.rendering.metric_values import difference_lines  # noqa: PLC0415 - as above

    return list(difference_lines(rows)) or ["No documents differ."]


@app.command()
def sources(*, as_of: AsOf = None, clock: OnClock = "known", as_json: Json = False) -> None:
    """List the sources of data that contradicted another: score, contradictions, and how often they were right."""
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.sources(**options))
    print_answer(list(answer), lambda: _sources(answer), as_json=as_json)


def _sources(answer: Sequence[SourceRecord]) -> Iterator[str]:
    for one in answer:
        record = f"{one.correct} of {one.outcomes} outcomes right" if one.outcomes else "no outcome yet"
        found = f"{one.contradictions} contradiction{'' if one.contradictions == 1 else 's'}"
        yield f"{shown(one.name)}  {one.score:.4f}  {found}, {record} (type {shown(one.type)}, weight {one.weight:.2f})"
    if not answer:
        yield "No source has contradicted another."
