"""``imem jobs``: the pipelines, when they run, and what they reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imem.journal.errors import BadInput, shown
from imem.terminal.command import Json, print_answer, run

if TYPE_CHECKING:
    from imem.jobs.pipeline import Cadence
    from imem.jobs.reports import StoredReport
    from imem.services.stores import Stores

BUDGET_MS = 5000
"""How long the answer may take, in milliseconds."""

app = typer.Typer()


@app.command()
def jobs(
    name: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="All kept reports of this one.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the pipelines, their schedule, and what each did last, or what one did in its runs."""
    schedules, reports = run(lambda stores: _read(stores, name))
    value = {"schedules": schedules, "reports": [one.to_dict() for one in reports]}
    print_answer(value, lambda: _lines(schedules, reports), as_json=as_json)


async def _read(stores: Stores, name: str | None) -> tuple[dict[str, str], list[StoredReport]]:
    from imem.jobs.reports import stored_reports  # noqa: PLC0415 - a command imports what it needs
    from imem.journal.actors import Action, Resource, ResourceType  # noqa: PLC0415 - as above
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above
    from imem.workers.pipelines import PIPELINES  # noqa: PLC0415 - as above

    schedules = {one.name: _schedule(one.cadence_of(stores.settings)) for one in PIPELINES}
    if name is not None and name not in schedules:
        raise BadInput("PIPELINE", f"there is no pipeline {shown(name)}.")
    deadline = Deadline.after_ms(BUDGET_MS)
    reports = await stores.gateway.authorize_and_execute(
        Resource(ResourceType.GRAPH, "reports of pipelines"),
        Action.READ,
        lambda: stored_reports(stores.database, name, deadline=deadline),
        deadline=deadline,
    )
    return schedules if name is None else {name: schedules[name]}, reports


def _schedule(cadence: Cadence) -> str:
    from imem.jobs.pipeline import Daily, Every  # noqa: PLC0415 - as above

    if isinstance(cadence, Every):
        return f"every {cadence.seconds:g} s"
    days = ("Sundays" if cadence.sundays else "daily") if isinstance(cadence, Daily) else "first day of a quarter"
    return f"{days} at {cadence.hour:02}:{cadence.minute:02} UTC"


def _lines(schedules: Mapping[str, str], reports: Sequence[StoredReport]) -> Iterator[str]:
    by_name: dict[str, list[StoredReport]] = {}
    for one in reports:
        by_name.setdefault(one.pipeline, []).append(one)
    for name, schedule in schedules.items():
        yield f"{name}  {schedule}"
        for one in by_name.get(name, []):
            took_s = (one.finished_at - one.started_at).total_seconds()
            yield f"  {one.started_at:%Y-%m-%d %H:%M:%S} UTC, {took_s:.1f} s: {_text(one)}"
        if name not in by_name:
            yield "  no report yet"


def _text(one: StoredReport) -> str:
    if one.error is not None:
        return shown(one.error)
    said = [
        f"{name} {_value(value)}" for name, value in one.report.items() if value not in (None, 0, False, "", [], {})
    ]
    return ", ".join(said) or "nothing to do"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_value, value))
    return "yes" if value is True else shown(str(value))
