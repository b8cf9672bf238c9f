"""``imem agents`` and ``imem credibility``: whom to trust, what it rests on, and what people say about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from imem.commands.memory.ask import AsOf, OnClock, ReadOptions, checked_options, run_question
from imem.journal.clock import SystemClock
from imem.journal.errors import shown
from imem.journal.settings import Settings
from imem.kg.kinds.enums import OverrideReason
from imem.terminal.command import DEGRADED, Json, print_answer, run_within, until, wrong_usage
from imem.terminal.intervals import IntervalRow, interval_lines, write_svg

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from imem.credibility.reconcile import ReconciliationReport
    from imem.credibility.scores.calibration import CalibrationBin
    from imem.credibility.scores.people import PeopleFacts
    from imem.credibility.scores.reading import AgentScore, BehindScore
    from imem.journal.events.entry import Receipt
    from imem.kg.kinds.base import StrictModel
    from imem.kg.model import Kind
    from imem.memory import Memory
    from imem.recall.model import TrackRecordsSection, TrackRecordsTable
    from imem.recall.scores import ScoreExplanation
    from imem.recall.sections.track_records import TrackRecordItem
    from imem.services.stores import Stores

M = TypeVar("M", bound="StrictModel")

ASK_MS = 30_000
"""Budget of a command, in milliseconds."""

SHOWN_CLAIMS = 5

Agent = Annotated[str, typer.Argument(help="Its name.")]
Domain = Annotated[str, typer.Argument(help="The domain of its claims.")]
Reason = Annotated[str, typer.Option("--reason", help="Why.")]

app = typer.Typer()
group = typer.Typer(
    help="Record people's statements about scores; run the nightly recomputation at once.", no_args_is_help=True
)
app.add_typer(group, name="credibility")


@app.command()
def agents(
    agent: Annotated[str | None, typer.Argument(help="Its name; without one, all agents.")] = None,
    *,
    domain: Annotated[str | None, typer.Option("--domain", help="One domain alone.")] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context", metavar="NAME=VALUE", help="With a name: a dimension of the context asked about; repeat."
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write a picture of the intervals into this file.")] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    as_json: Json = False,
) -> None:
    """
    Show the track record of each agent; with a name, also that agent's scores, and what each number rests on.

    A list names the best first in each domain, baselines last; agents whose claims nothing has settled yet have "no
    outcomes yet".

    Exit code 3: something that was recorded is not in the scores of an agent yet, or the answer is an old one.
    """
    if agent is None and context:
        raise typer.BadParameter("goes with the name of an agent.", param_hint="--context")
    options = checked_options(as_of, clock)
    asked = dict(_pair(text) for text in context) if context else None

    async def ask(memory: Memory) -> tuple[TrackRecordsSection | TrackRecordsTable, list[ScoreExplanation]]:
        if agent is not None:
            return await _one_agent(memory, agent, domain, asked, options)
        moments, domains = options["as_of"], None if domain is None else [domain]
        table = await memory.track_records(
            None, domains, as_of=None if moments is None else [moments], unscored=True, clock=clock, deadline_ms=ASK_MS
        )
        return table, []

    table, explained = run_question(ask)
    records = table.items
    if svg is not None:
        write_svg(svg, _drawn(records), "Share right, 95 %")
    document = table.model_dump(mode="json", exclude_none=True)
    if agent is not None:
        document["scores"] = [one.model_dump(mode="json") for one in explained]
    print_answer(document, lambda: _table_lines(agent, records, explained), as_json=as_json)
    if reasons := {one.reason for one in explained if one.reason is not None}:
        typer.echo(f"Incomplete: {'; '.join(sorted(reasons))}.", err=True)
        raise typer.Exit(DEGRADED)


async def _one_agent(
    memory: Memory, name: str, domain: str | None, context: Mapping[str, str] | None, options: ReadOptions
) -> tuple[TrackRecordsSection, list[ScoreExplanation]]:
    """Return the track record of an agent, and what its score in each domain rests on."""
    within: Any = {**options, "deadline_ms": ASK_MS}
    section = await memory.track_record(name, domain, **within)
    table = await memory.credibility([name], None if domain is None else [domain], context=context, **within)
    return section, [
        await memory.explain(name, one.record.domain, context=context, limit=SHOWN_CLAIMS, **within)
        for one in table.items
    ]


def _drawn(records: Sequence[TrackRecordItem]) -> list[IntervalRow]:
    from imem.recall.sections.track_records import ranked  # noqa: PLC0415 - a command imports what it needs

    return [
        IntervalRow(f"{shown(one.agent)} in {shown(one.domain)}", one.lower, one.mean, one.upper, f"n {one.n}")
        for one in ranked(records)
        if one.n
    ]


def _table_lines(
    agent: str | None, records: Sequence[TrackRecordItem], explained: Sequence[ScoreExplanation]
) -> Iterator[str]:
    from imem.recall.sections.track_records import track_table  # noqa: PLC0415 - as above

    if not (table := track_table(records)):
        yield f"No claim of {shown(agent) if agent is not None else 'any agent'} was ever settled."
        return
    yield table
    if agent is None:
        yield from ["", *chart] if (chart := interval_lines(_drawn(records))) else []
    for one in explained:
        yield ""
        yield from _lines(one)


def interval_row(score: AgentScore) -> IntervalRow:
    """Return a score as a row to draw."""
    body, record = score.posterior, score.record
    return IntervalRow(shown(record.domain), body.lower, body.mean, body.upper, f"n {record.n}, {score.confidence}")


def _lines(found: ScoreExplanation) -> Iterator[str]:
    score = found.score
    record, body, designed = score.record, score.posterior, score.designed
    interval = f"{_share(body.mean)} ({_share(body.lower)} to {_share(body.upper)})"
    yield f"{shown(record.agent)} in {shown(record.domain)}: {interval}"
    yield from (f"  {line}" for line in interval_lines([interval_row(score)]))
    yield f"  rests on {record.n} observations, {record.rows} claims, worth {record.effective_n:.1f} equally weighted"
    if score.people.pin is not None:
        pin = score.people.pin
        ends = "" if pin.until is None else f" until {pin.until:%Y-%m-%d %H:%M} UTC"
        yield f"  pinned at {pin.score:g}{ends} ({shown(pin.id)}): {shown(pin.reason)}"
    yield from (f"  {line}" for line in found.formula)
    if score.wilson is not None and designed.overall_accuracy is not None:
        wilson = f"{_share(score.wilson.lower)} to {_share(score.wilson.upper)}"
        yield f"  plain share right {_share(designed.overall_accuracy)}; Wilson of the base accuracy {wilson}"
    for dimension, values in score.contexts.items():
        shares = ", ".join(
            f"{shown(value)} {_share(one.accuracy)} of {one.observations:g}" for value, one in values.items()
        )
        yield f"  by {dimension.replace('_', ' ')}: {shares}"
    yield from (f"  {line}" for line in _course(score))
    yield from (f"  {line}" for line in _people(score.people))
    yield f"  flags: {', '.join(score.flags) or 'none'}"
    yield f"  the newest of {found.total} claims:"
    yield from (f"    {_claim(one)}" for one in found.claims)


def _course(score: AgentScore) -> Iterator[str]:
    trend, rank, calibration = score.trend, score.rank, score.calibration
    if trend.slope is not None and trend.direction is not None:
        fit = f"over {trend.points} weeks, R squared {trend.r_squared:.2f}"
        yield f"trend as designed: {trend.direction.value}, {trend.slope:+.3f} a year {fit}"
    if rank.p_value is not None:
        yield f"trend of {rank.buckets} buckets: {rank.slope:+.3f} a year, Kendall p {rank.p_value:.4f}"
    if calibration.stated is not None:
        used = "shown alone: no probability is changed" if calibration.applied else "too little: below 50 observations"
        factor = "" if calibration.factor is None else f", factor {calibration.factor:.3f} ({used})"
        yield f"calibration: stated {_share(calibration.stated)}, came true {_share(calibration.realised)}{factor}"
        yield f"  by probability: {'; '.join(map(_bin, calibration.bins))}"
    if score.record.brier is not None:
        skill = "" if score.record.skill is None else f", skill {score.record.skill:+.3f} vs {score.record.reference}"
        yield f"Brier {score.record.brier:.4f}, log score {score.record.log_score:.4f}{skill}"


def _bin(one: CalibrationBin) -> str:
    return f"{_share(one.stated / one.claims)} came true {_share(one.happened / one.claims)} of {one.claims}"


def _people(people: PeopleFacts) -> Iterator[str]:
    overrides = people.overrides
    if overrides.rate is not None:
        reasons = ", ".join(f"{reason} {count}" for reason, count in overrides.reasons.items())
        right = (
            ""
            if overrides.outcome_accuracy is None
            else f", right {_share(overrides.outcome_accuracy)} of {overrides.known}"
        )
        rate = f"{overrides.counts.overrides} of {overrides.counts.recommendations} ({_share(overrides.rate)})"
        yield f"overridden {rate}{right}: {reasons}"
    for dimension, values in overrides.by_context.items():
        rates = ", ".join(f"{shown(value)} {one.overrides} of {one.recommendations}" for value, one in values.items())
        yield f"overridden by {dimension.replace('_', ' ')}: {rates}"
    yield from (f"to be reviewed: {review}" for review in overrides.reviews)
    yield from (
        f"approved correction {shown(one.id)} of {shown(one.metric)}: {one.kind.value} bias {one.bias:+g}"
        for one in people.corrections
    )


def _claim(one: BehindScore) -> str:
    beside = "" if one.corrected is None else f" (corrected {one.corrected.value:g}, factor {one.corrected.bias:+g})"
    return (
        f"{one.target_at:%Y-%m-%d} {shown(one.subject_id)} {shown(one.metric)}: stated {one.stated:g}{beside}, "
        f"came {one.actual:g}, {'right' if one.right else 'wrong'}, weight {one.weight:.4f}"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise typer.BadParameter(f"--context: {shown(text)[:60]} is not NAME=VALUE.")
    return name, value


# What people say


@group.command()
def pin(
    name: Agent,
    domain: Domain,
    score: Annotated[float, typer.Argument(help="The score that it shall have, 0 to 1.")],
    *,
    reason: Reason,
    end: Annotated[str | None, typer.Option("--until", help="When it ends by itself.")] = None,
    as_json: Json = False,
) -> None:
    """Hold the score of an agent in a domain; the computed ones are shown beside it."""
    from imem.kg.model import CredibilityPin  # noqa: PLC0415 - a command imports what it needs

    now = SystemClock().now()
    key = _key("pin", name, domain, now)
    made = _made(
        CredibilityPin, id=key, agent=name, domain=domain, score=score, reason=reason, pinned_at=now,
        until=None if end is None else until(end),
    )  # fmt: skip
    _record(made, key, as_json=as_json)


@group.command()
def unpin(
    key: Annotated[str, typer.Argument(metavar="PIN", help="Its id, as `imem agents NAME` shows it.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Take a pin out."""
    from imem.kg.model import CredibilityPin  # noqa: PLC0415 - as above

    end = {"end": _made(CredibilityPin.End, ended_at=SystemClock().now(), end_reason=reason)}
    receipt = run_question(lambda memory: memory.record_groups(CredibilityPin, key, end))
    _print(receipt, key, as_json=as_json)


@group.command()
def override(
    name: Agent,
    domain: Domain,
    *,
    reason: Annotated[OverrideReason, typer.Option("--reason", help="Why.")],
    finding: Annotated[str | None, typer.Option("--finding", help="The finding that was overridden.")] = None,
    analysis: Annotated[str | None, typer.Option("--analysis", help="Or the analysis.")] = None,
    decision: Annotated[str | None, typer.Option("--decision", help="Or the decision.")] = None,
    rationale: Annotated[str | None, typer.Option("--rationale", help="The facts that were overlooked.")] = None,
    as_json: Json = False,
) -> None:
    """Record that a person overrode what an agent recommended; the same again is another override."""
    from imem.kg.model import HumanOverride  # noqa: PLC0415 - as above

    now = SystemClock().now()
    key = _key("override", name, domain, now)
    made = _made(
        HumanOverride, id=key, agent=name, domain=domain, finding_id=finding, analysis_id=analysis,
        decision_id=decision, reason=reason, rationale=rationale, overridden_at=now,
    )  # fmt: skip
    _record(made, key, as_json=as_json)


def _key(kind: str, name: str, domain: str, now: datetime) -> str:
    """Return an id that says what it is of, and when."""
    from imem.kg.kinds.fields import dated_key  # noqa: PLC0415 - as above

    return dated_key(name, domain, at=f"{now:%Y%m%dT%H%M%S%f}", prefix=f"{kind}:")


def _made(model: type[M], **values: Any) -> M:
    with wrong_usage():
        return model(**values)


def _record(made: Kind, key: str, *, as_json: bool) -> None:
    _print(run_question(lambda memory: memory.record(made)), key, as_json=as_json)


def _print(receipt: Receipt, key: str, *, as_json: bool) -> None:
    document = {"id": key, "event_id": str(receipt.event_id), "verdict": receipt.verdict.value}
    print_answer(document, lambda: [f"{shown(key)}: {receipt.verdict.value}"], as_json=as_json)


@group.command()
def rebuild(*, as_json: Json = False) -> None:
    """
    Recompute all scores, track records and verdicts from the journal, and mend what differs.

    The worker does so every night. Exit code 3: something differed; it is mended.
    """

    def opened(settings: Settings) -> AbstractAsyncContextManager[Stores]:
        from imem.services.stores import Stores  # noqa: PLC0415 - as above

        return Stores.open(settings, pipelines=True)

    async def work(stores: Stores) -> ReconciliationReport:
        from imem.credibility.reconcile import reconcile  # noqa: PLC0415 - as above

        halflife = stores.settings.credibility_halflife_years
        return await reconcile(stores.database, stores.gateway, halflife_years=halflife)

    report = run_within(opened, work)
    counts = {
        "scores": report.scores, "track_records": report.track_records, "decisions": report.decisions,
        "differing": report.differing,
    }  # fmt: skip
    print_answer(
        counts, lambda: [", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counts.items())], as_json=as_json
    )
    if report.differing:
        raise typer.Exit(DEGRADED)
