"""``imem debate``: debates that run, one with every turn, and the acts of its sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from imem.commands.memory.ask import AsOf, OnClock, checked_options, run_question
from imem.journal.clock import SystemClock
from imem.journal.errors import UnknownDebate
from imem.kg.kinds.enums import DebatePriority
from imem.terminal.command import Json, print_answer

if TYPE_CHECKING:
    from imem.debates.service import DebateProgress
    from imem.memory import Memory
    from imem.recall.sections.debates import RecordedDebate

ACT_MS: Final = 10_000
"""Budget of an act, in milliseconds: a command connects first."""

RATIONALE_CHARS: Final = 280


class ShowByDefault(TyperGroup):
    """Commands of debates; what is none of them is the id of one, and without an id those that run are listed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the arguments for those of ``show`` or ``list`` unless they begin with a command."""
        given = args[0] if args else ""
        if given in {*self.commands, *ctx.help_option_names}:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, ["list" if not given or given.startswith("-") else "show", *args])


app = typer.Typer()
group = typer.Typer(
    cls=ShowByDefault, help="List the debates that run, show one (`imem debate DEBATE`), and take part in one."
)
app.add_typer(group, name="debate")

DebateId = Annotated[str, typer.Argument(metavar="DEBATE", help="Its id, as `imem debate` and `imem debates` show it.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="The text of the turn.")]
MaybeText = Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The text of the turn.")]
Value = Annotated[
    str | None, typer.Option("--value", help="The position: a number in the unit of the metric, or a rating.")
]
Evidence = Annotated[
    list[str] | None, typer.Option("--evidence", metavar="FINDING", help="A finding that it rests on; repeat.")
]


@group.command("list")
def list_(
    *,
    agent: Annotated[str | None, typer.Option("--agent", help="With this side or judge alone.")] = None,
    analysis: Annotated[str | None, typer.Option("--analysis", help="About findings of this analysis alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many, at most 200.")] = 200,
    as_json: Json = False,
) -> None:
    """List the debates that run, as `imem debate` does: those whose time is over first at the top."""
    found = run_question(lambda memory: memory.running_debates(agent=agent, analysis_id=analysis, limit=limit))
    from imem.debates.rendering import progress_document  # noqa: PLC0415 - a command imports what it needs

    print_answer(
        [progress_document(one) for one in found],
        lambda: [line for one in found for line in _progress(one)] or ["No debate runs."],
        as_json=as_json,
    )


@group.command()
def show(debate: DebateId, *, as_of: AsOf = None, clock: OnClock = "known", as_json: Json = False) -> None:
    """Show a debate with every turn; of one that runs also the positions, whose turn it is, and what counts."""
    options = checked_options(as_of, clock)

    async def ask(memory: Memory) -> tuple[RecordedDebate, DebateProgress | None]:
        found = await memory.debate(debate, **options)
        if as_of is not None:
            return found, None
        try:
            return found, await memory.debate_progress(debate)
        except UnknownDebate:  # It was recorded whole, and never ran here.
            return found, None

    answer, progress = run_question(ask)
    document = answer.model_dump(mode="json", exclude_none=True)
    if progress is not None:
        from imem.debates.rendering import progress_document  # noqa: PLC0415 - as above

        document["progress"] = progress_document(progress)
    print_answer(document, lambda: list(_whole(answer, progress)), as_json=as_json)


@group.command()
def challenge(
    finding: Annotated[str, typer.Argument(metavar="FINDING", help="The id of a finding of another agent.")],
    basis: Annotated[str, typer.Argument(metavar="BASIS", help="Why; the first turn of the debate.")],
    *,
    value: Value = None,
    evidence: Evidence = None,
    required: Annotated[
        list[str] | None,
        typer.Option("--required", metavar="TEXT", help="Evidence that the other side must show; repeat."),
    ] = None,
    priority: Annotated[
        str, typer.Option("--priority", help="critical_path, valuation or supporting.")
    ] = DebatePriority.SUPPORTING.value,
    judge: Annotated[
        str | None, typer.Option("--judge", help="The judge at level 2 where records do not decide.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="By default the beginning of the statement.")] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="The metric of the positions; the finding's by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Challenge a finding of another agent, and show the debate that this opens; a repeat changes nothing."""
    found = run_question(
        lambda memory: memory.challenge(
            finding, basis, value=_value(value), evidence=evidence or (), required=required or (), priority=priority,
            judge=judge, topic=topic, metric=metric, deadline_ms=ACT_MS,
        )
    )  # fmt: skip
    _print(found, as_json=as_json)


@group.command()
def respond(
    debate: DebateId, text: Text, *, value: Value = None, evidence: Evidence = None, as_json: Json = False
) -> None:
    """Say something in a debate; of the challenged side it acknowledges the challenge."""
    found = run_question(
        lambda memory: memory.respond(debate, text, value=_value(value), evidence=evidence or (), deadline_ms=ACT_MS)
    )
    _print(found, as_json=as_json)


@group.command()
def acknowledge(debate: DebateId, *, as_json: Json = False) -> None:
    """Acknowledge a challenge of your finding, which gives both sides the time of level 1."""
    _print(run_question(lambda memory: memory.acknowledge(debate, deadline_ms=ACT_MS)), as_json=as_json)


@group.command()
def accept(debate: DebateId, text: MaybeText = None, *, as_json: Json = False) -> None:
    """Accept the position of the other side, which ends the debate."""
    _print(run_question(lambda memory: memory.accept(debate, text, deadline_ms=ACT_MS)), as_json=as_json)


@group.command()
def stand(debate: DebateId, text: MaybeText = None, *, as_json: Json = False) -> None:
    """Say that you have nothing to add; once both sides have said so, level 1 ends."""
    _print(run_question(lambda memory: memory.stand(debate, text, deadline_ms=ACT_MS)), as_json=as_json)


@group.command()
def withdraw(debate: DebateId, text: MaybeText = None, *, as_json: Json = False) -> None:
    """Take your challenge back, which ends the debate."""
    _print(run_question(lambda memory: memory.withdraw(debate, text, deadline_ms=ACT_MS)), as_json=as_json)


@group.command()
def judge(
    debate: DebateId,
    winner: Annotated[str, typer.Argument(metavar="AGENT", help="The side whose position counts.")],
    text: Text,
    *,
    as_json: Json = False,
) -> None:
    """Decide a debate as the judge that it names, at level 2."""
    _print(run_question(lambda memory: memory.judge(debate, winner, text, deadline_ms=ACT_MS)), as_json=as_json)


def _value(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _print(found: DebateProgress, *, as_json: bool) -> None:
    from imem.debates.rendering import progress_document  # noqa: PLC0415 - as above

    print_answer(progress_document(found), lambda: list(_progress(found)), as_json=as_json)


def _progress(found: DebateProgress) -> Iterator[str]:
    from imem.debates.rendering import progress_lines  # noqa: PLC0415 - as above

    return progress_lines(found, SystemClock().now())


def _whole(answer: RecordedDebate, progress: DebateProgress | None) -> Iterator[str]:
    from imem.recall.sections.debates import debate_text, turn_text  # noqa: PLC0415 - as above

    if progress is None:
        yield debate_text(answer.debate)
    else:
        yield from _progress(progress)
        for resolution in answer.debate.resolutions:
            yield from _resolution(resolution.core, resolution.groups.get("review", {}))
        yield f"  comparable debates: imem precedents {progress.debate_id}"
    yield ""
    yield from map(turn_text, answer.turns)


def _resolution(core: dict[str, Any], review: dict[str, Any]) -> Iterator[str]:
    """Yield how a debate was resolved, and which analyses rest on the finding."""
    from imem.journal.texts.prompt_text import name, quoted  # noqa: PLC0415 - as above

    won = "nobody" if core.get("winning_agent") is None else name(core["winning_agent"])
    apart = core.get("credibility_differential")
    after = "" if core.get("resolution_time_seconds") is None else f" after {core['resolution_time_seconds']:,} s"
    scores = "" if apart is None else f", scores {apart:.2f} apart"
    yield f"  resolved for {won}: {quoted(core['winning_position'])}{after}{scores}"
    if review.get("override_rationale"):
        yield f"    a person's rationale: {quoted(review['override_rationale'], RATIONALE_CHARS)}"
    if review.get("downstream_impact"):
        yield f"    what rests on the finding: {', '.join(map(quoted, review['downstream_impact']))}"
