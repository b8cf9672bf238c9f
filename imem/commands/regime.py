"""``imem regime``: the regime of a market, its history, and what people say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from imem.commands.memory.ask import AsOf, OnClock, checked_options, run_question
from imem.journal.errors import BadInput, shown
from imem.kg.kinds.enums import Regime
from imem.terminal.command import Json, moment, print_answer, run

if TYPE_CHECKING:
    from imem.credibility.regimes.readings import DatedReading, MarketRegime
    from imem.kg.model import RegimeReading
    from imem.memory import Memory
    from imem.services.stores import Stores

RECORD_MS: Final = 60_000
"""Budget of recording readings, in milliseconds."""

SHOWN: Final = 10
"""Readings that are shown by default."""

ALL_MS: Final = 30_000
"""Budget of reading all readings, in milliseconds."""

app = typer.Typer()
regime_app = typer.Typer(help="The regime of a market.")
app.add_typer(regime_app, name="regime")

Market = Annotated[str, typer.Option("--market", help="The market.")]


@regime_app.callback(invoke_without_command=True)
def regime(
    context: typer.Context,
    *,
    market: Market = "US",
    limit: Annotated[int, typer.Option("--limit", help="How many readings.")] = SHOWN,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = False,
) -> None:
    """Show the regime of the market, and the newest readings; the first is in force."""
    if context.invoked_subcommand is not None:
        return
    options = checked_options(as_of, clock)
    answer = run_question(lambda memory: memory.regime(market=market, limit=limit, **options))
    print_answer(answer.to_dict(), lambda: _lines(answer), as_json=as_json)


@regime_app.command("set")
def set_(
    name: Annotated[Regime, typer.Argument(metavar="REGIME", help="|".join(Regime), show_choices=False)],
    *,
    market: Market = "US",
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="Since when: a time with its zone. Now by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Record in the name of IMEM_ACTOR that the market is in a regime, until a later reading."""
    reading = run(lambda stores: _set(stores, name, market, at))
    print_answer(
        reading, lambda: [f"{reading['regime']} since {reading['observed_at']}: {reading['id']}"], as_json=as_json
    )


@regime_app.command()
def withdraw(
    reading: Annotated[str, typer.Argument(metavar="ID", help="The reading's id, as `imem regime --json` shows it.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why it does not count.")],
    market: Market = "US",
    as_json: Json = False,
) -> None:
    """Take a reading back: from now on it does not count; as of an earlier day it does."""
    answer = run_question(lambda memory: _withdraw(memory, market, reading, reason))
    print_answer(answer.to_dict(), lambda: _lines(answer), as_json=as_json)


@regime_app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or JSON of dated indicators.", dir_okay=False)],
    *,
    market: Market = "US",
    as_json: Json = False,
) -> None:
    """Record the regimes of the past that a file of dated indicators gives; repeating it writes nothing."""
    counts = run(lambda stores: _import(stores, path, market))
    print_answer(counts, lambda: [f"{counts['readings']:,} readings, {counts['new']:,} of them new."], as_json=as_json)


async def _set(stores: Stores, name: Regime, market: str, at: str | None) -> dict[str, str]:
    from imem.credibility.regimes.readings import reading_id  # noqa: PLC0415 - a command imports what it needs
    from imem.journal.clock import SystemClock  # noqa: PLC0415 - as above
    from imem.kg.kinds.fields import moment_text  # noqa: PLC0415 - as above
    from imem.kg.model import RegimeReading  # noqa: PLC0415 - as above

    observed_at = moment(at, "--at") or SystemClock().now()
    actor = stores.gateway.actor.id
    reading = RegimeReading(
        id=reading_id(market, actor, observed_at), market=market, observed_at=observed_at, regime=name, stale=False,
        source=actor,
    )  # fmt: skip
    await _record(stores, [reading], stated=False)
    return {"id": reading.id, "regime": name.value, "observed_at": moment_text(observed_at)}


async def _record(stores: Stores, readings: Sequence[RegimeReading], *, stated: bool) -> int:
    """Record all *readings* or none, known since they were observed if *stated*; return how many are new."""
    from imem.ingest.recorder import prepare, record_all  # noqa: PLC0415 - as above
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above
    from imem.journal.events.entry import AppendStatus  # noqa: PLC0415 - as above
    from imem.kg.load_format.lines import record_of  # noqa: PLC0415 - as above

    lines = [record_of(one, known_at=one.observed_at if stated else None) for one in readings]
    prepared = [prepare(line) for line in lines]
    receipts = await record_all(stores.gateway, prepared, deadline=Deadline.after_ms(RECORD_MS))
    return sum(receipt.verdict is AppendStatus.NEW for receipt in receipts)


async def _withdraw(memory: Memory, market: str, key: str, reason: str) -> MarketRegime:
    from imem.services.parts.regime_api import MOST  # noqa: PLC0415 - as above

    known = (await memory.regime(market=market, limit=MOST, deadline_ms=ALL_MS)).readings
    found = next((one.reading for one in known if one.reading.id == key), None)
    if found is None:
        raise BadInput("ID", f"there is no reading {shown(key)} of {shown(market)} that counts.")
    await memory.correct(found.model_copy(update={"withdrawn": True}), reason)
    return await memory.regime(market=market, limit=SHOWN)


async def _import(stores: Stores, path: Path, market: str) -> dict[str, int]:
    from imem.credibility.regimes.providers import INDICATORS  # noqa: PLC0415 - as above
    from imem.credibility.regimes.readings import readings_of  # noqa: PLC0415 - as above
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above
    from imem.journal.endpoints.feeds import FileFeed  # noqa: PLC0415 - as above

    provider = FileFeed(path, INDICATORS)
    found = await provider.rows(deadline=Deadline.after_ms(RECORD_MS))
    readings = readings_of(found, provider.name, market=market)
    return {"readings": len(readings), "new": await _record(stores, readings, stated=True)}


def _lines(answer: MarketRegime) -> Iterator[str]:
    stale = " (stale)" if answer.stale else ""
    yield f"{shown(answer.market)}: {answer.regime.value}{stale}, as of {answer.as_of:%Y-%m-%d %H:%M} UTC"
    if not answer.readings:
        yield "No reading is known."
    for one in answer.readings:
        yield f"  {_line(one)}"


def _line(one: DatedReading) -> str:
    reading = one.reading
    values = [
        f"{label} {value:{form}}"
        for label, value, form in (
            ("S&P 500", reading.sp500_return_12m, "+.1%"),
            ("rate", reading.fed_funds, ".2f"),
            ("VIX", reading.vix, ".1f"),
        )
        if value is not None
    ]
    stale = ["stale"] if reading.stale else []
    text = ", ".join([reading.regime.value, *stale, *values])
    return f"{reading.observed_at:%Y-%m-%d %H:%M} UTC  {text}  by {shown(reading.source)}"
