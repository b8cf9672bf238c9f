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
    from imem.credibility.forecasts.replay import PolicyReplay

app = typer.Typer()
replay_app = typer.Typer(help="Show what other settings would have decided; change nothing.", no_args_is_help=True)
app.add_typer(replay_app, name="replay")

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


Changed = Annotated[
    list[str],
    typer.Option("--setting", metavar="NAME=VALUE", help="deviation=0.5, or noise=2 (in standard deviations)."),
]


@replay_app.command()
def policy(*, setting: Changed, as_of: AsOf = None, clock: OnClock = "known", as_json: Json = False) -> None:
    """Compare which checkpoints are off, and how many cases there are, by other settings and by those in force."""
    options = checked_options(as_of, clock)
    with wrong_usage():
        settings = dict(_setting(one) for one in setting)
    replay = run_question(lambda memory: memory.replay_policy(settings, **options))
    print_answer(replay.model_dump(mode="json"), lambda: _replayed(replay), as_json=as_json)


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise BadInput("--setting", f"{text!r:.60} is no NAME=NUMBER.") from None


def _replayed(replay: PolicyReplay) -> Iterator[str]:
    settings = ", ".join(f"{name}={value:g}" for name, value in replay.settings.items())
    yield f"Of {replay.measured} measured checkpoints {replay.off} are off, in {replay.cases} decisions."
    yield f"With {settings} it would be {replay.off_then}, in {replay.cases_then}."
    for title, found in (("Off by these settings alone", replay.gained), ("Off by those in force alone", replay.lost)):
        if found:
            yield f"{title}:"
        for one in found:
            yield f"  {shown(one.decision_id)} {_line(one).strip()}"


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
    left = ", after the position was left" if one.counterfactual else ""
    return f"{head}; it was {one.actual:g}{off} ({one.verdict}){left}"


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
