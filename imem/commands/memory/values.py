"""``imem value``, ``imem differences`` and ``imem sources``: which value counts, what differs, and who was right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imem.commands.memory.ask import AsOf, OnClock, checked_options, run_question
from imem.journal.errors import BadInput, shown
from imem.terminal.command import Json, print_answer, wrong_usage

if TYPE_CHECKING:
    from imem.credibility.disputes.reading import MetricValue, Period, SourceRecord

app = typer.Typer()

SubjectId = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject's id, such as company:MU.")]
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
    asked, options = _period(period), checked_options(as_of, clock)
    answer = run_question(
        lambda memory: memory.value(subject, metric, asked, unit=unit, basis=basis, used_by=used_by, **options)
    )
    print_answer(answer.to_dict(), lambda: _lines(answer), as_json=as_json)


@app.command()
def differences(
    subject: SubjectId,
    *,
    metric: Annotated[str | None, typer.Option("--metric", help="One metric alone.")] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = False,
) -> None:
    """List what documents about a subject state differently: contradictions, and roundings, signs and splits."""
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.differences(subject, metric=metric, **options))
    print_answer(list(answer), lambda: _listed(answer), as_json=as_json)


@app.command()
def sources(*, as_of: AsOf = None, clock: OnClock = "known", as_json: Json = False) -> None:
    """List the sources of data that contradicted another: score, contradictions, and how often they were right."""
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.sources(**options))
    print_answer(list(answer), lambda: _sources(answer), as_json=as_json)


def _period(text: str) -> Period:
    begins, dots, ends = text.partition("..")
    with wrong_usage():
        return (_day(begins), _day(ends)) if dots else _day(text)


def _day(text: str) -> datetime:
    try:
        if len(text) == len("2019-12-31"):
            return datetime.combine(date.fromisoformat(text), time(0), tzinfo=UTC)
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadInput("PERIOD", f"{shown(text)} is no day and no time, such as 2019-12-31.") from None


def _lines(answer: MetricValue) -> Iterator[str]:
    row = answer.to_dict()
    if answer.standing is None:
        yield f"No data point was known as of {answer.as_of:%Y-%m-%d %H:%M} UTC."
        return
    head = "uncertain" if answer.value is None else f"{answer.value:,.12g} {shown(row['unit'])}"
    state = " (provisional)" if answer.provisional and answer.value is not None else ""
    by = f", by {row['level']}" if "level" in row else ""
    yield f"{head}{state}, {answer.standing.confidence:.0%} sure{by}, as of {answer.as_of:%Y-%m-%d %H:%M} UTC"
    if answer.point is not None:
        yield f"  stated by {_source(row)}"
    for rival in row["rivals"]:
        decided = f"; {rival['level']}, {rival['confidence']:.0%} sure" if "level" in rival else ""
        yield f"  against {rival['value']:,.12g} by {_source(rival)}: {rival['difference']}{decided}"


def _listed(answer: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in answer:
        a, b = (f"{row[side]['value']:,.12g} by {_source(row[side])}" for side in "ab")
        yield f"{shown(row['metric'])} {row['period_end'][:10]} {row['difference']}: {a}, then {b}"
    if not answer:
        yield "No documents differ."


def _sources(answer: Sequence[SourceRecord]) -> Iterator[str]:
    for one in answer:
        record = f"{one.correct} of {one.outcomes} outcomes right" if one.outcomes else "no outcome yet"
        found = f"{one.contradictions} contradiction{'' if one.contradictions == 1 else 's'}"
        yield f"{shown(one.name)}  {one.score:.4f}  {found}, {record} (type {shown(one.type)}, weight {one.weight:.2f})"
    if not answer:
        yield "No source has contradicted another."


def _source(row: Mapping[str, Any]) -> str:
    return f"{shown(row['source'])} in {shown(row['document'])}, known {row['known_at'][:10]}"
