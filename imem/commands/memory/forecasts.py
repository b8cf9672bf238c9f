"""``imem forecasts``: what decisions expected, and what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.memory.ask import AsOf, OnClock, checked_options, run_question
from imem.journal.errors import BadInput, shown
from imem.terminal.command import Json, print_answer, wrong_usage

if TYPE_CHECKING:
    from imem.credibility.forecasts.reading import DecisionForecast, ForecastReport

app = typer.Typer()

DecisionId = Annotated[
    str | None, typer.Argument(metavar="[DECISION]", help="The id of a decision; without one, how all of them stand.")
]


@app.command()
def forecasts(
    decision: DecisionId = None, *, as_of: AsOf = None, clock: OnClock = "known", as_json: Json = False
) -> None:
    """Show what a decision forecast beside what happened; or how the forecasts of all decisions stand."""
    if decision is None:
        with wrong_usage():
            if as_of is not None:
                raise BadInput("--as-of", "goes with a decision.")
        report = run_question(lambda memory: memory.forecast_report())
        print_answer(report.model_dump(mode="json"), lambda: _report(report), as_json=as_json)
        return
    options = checked_options(as_of, clock)
    found = run_question(lambda memory: memory.forecasts(decision, **options))
    print_answer([one.model_dump(mode="json") for one in found], lambda: _lines(found), as_json=as_json)


def _lines(found: Sequence[DecisionForecast]) -> Iterator[str]:
    if not found:
        yield "The decision forecast nothing that an outcome could be compared with."
    for one in found:
        yield _line(one)


def _line(one: DecisionForecast) -> str:
    interval = "" if one.low is None else f" ({one.low:g} to {one.high:g})"
    head = f"{one.days:>4} days, {one.target_at:%Y-%m-%d}: {shown(one.metric)} {one.predicted:g}{interval}"
    if one.actual is None:
        return f"{head}; {'no outcome is recorded' if one.state == 'awaiting_data' else 'not over'}"
    off = "" if one.deviation is None else f", deviation {one.deviation:.2f}"
    return f"{head}; it was {one.actual:g}{off} ({one.verdict})"


def _report(report: ForecastReport) -> Iterator[str]:
    yield (
        f"{report.measured} checkpoints measured, {report.scheduled} not over, {report.awaiting_data} without an "
        f"outcome; {report.unmeasurable} decisions forecast nothing."
    )
    for title, listed in (("Without an outcome:", report.waiting), ("Off:", report.off)):
        if listed:
            yield title
        for one in listed:
            yield f"  {shown(one.decision_id)}: {_line(one).strip()}"
