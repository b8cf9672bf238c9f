"""``imem learning`` for patterns: what is proposed, tested and approved, whatever its status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.memory.ask import AsOf, checked_options, run_question
from imem.journal.errors import shown
from imem.terminal.command import Json, json_object, print_answer, wrong_usage

if TYPE_CHECKING:
    from imem.patterns.mining import Mined
    from imem.patterns.planning import TestPlan
    from imem.patterns.reading import ListedPattern

app = typer.Typer()

Status = Annotated[str | None, typer.Option(help="Only patterns with this status, such as candidate.")]
PatternId = Annotated[str, typer.Argument(metavar="PATTERN", help="The key of a pattern.")]
NewStatus = Annotated[
    str, typer.Argument(metavar="STATUS", help="rejected_human_override, deprecated or probationary.")
]
Reason = Annotated[str, typer.Option(help="Why.")]
DefinitionFile = Annotated[Path, typer.Argument(metavar="FILE", help="A JSON file that defines the pattern.")]


@app.command("plan-test")
def plan_test(file: DefinitionFile, *, as_of: AsOf = None, as_json: Json = False) -> None:
    """Show what a test of a pattern would have to go by: cases, periods, power, and the earliest date of a verdict."""
    options = checked_options(as_of, "known")
    with wrong_usage():
        definition = json_object(file, "FILE")
    found = run_question(lambda memory: memory.plan_pattern_test(definition, as_of=options.get("as_of")))
    print_answer(found.model_dump(mode="json"), lambda: _plan(found), as_json=as_json)


Metric = Annotated[str, typer.Argument(metavar="METRIC", help="The metric of the questions.")]
Reference = Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose forecasts are the reference.")]
Category = Annotated[str, typer.Option(help="Names the domain whose table judges them.")]
Compared = Annotated[str, typer.Option(help="The period in which cases are compared: week, month or quarter.")]
Propose = Annotated[bool, typer.Option("--propose", help="Propose all of them, as one run.")]


@app.command()
def mine(
    metric: Metric, reference: Reference, *, category: Category, period: Compared = "month", propose: Propose = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Look for conditions under which outcomes lie off the best forecast, in the cases that may shape patterns."""
    found = run_question(
        lambda memory: memory.mine_patterns(metric, reference, category=category, period=period, propose=propose)
    )
    print_answer(found.model_dump(mode="json"), lambda: _mined(found, proposed=propose), as_json=as_json)


def _mined(found: Mined, *, proposed: bool) -> Iterator[str]:
    yield (
        f"{len(found.proposals)} of {found.search_space} conditions and claims, in {found.training} training cases; by"
        f" chance {found.expected:.0f} would be as strong."
    )
    for one in found.proposals:
        yield f"  {shown(one.words)}"
    if proposed:
        yield "Proposed: they are tested together on the cases that this run did not look at."


@app.command("propose-pattern")
def propose_pattern(file: DefinitionFile, *, as_json: Json = False) -> None:
    """Propose a pattern: it is tested, and no agent sees it before a person approved it."""
    with wrong_usage():
        definition = json_object(file, "FILE")
    key = run_question(lambda memory: memory.propose_pattern(definition))
    print_answer({"pattern_id": key}, lambda: [f"Proposed: {key}"], as_json=as_json)


@app.command()
def patterns(*, status: Status = None, as_json: Json = False) -> None:
    """List patterns, the newest first, refuted ones with their reasons."""
    found = run_question(lambda memory: memory.all_patterns(status=status))
    print_answer([one.model_dump(mode="json") for one in found], lambda: _lines(found), as_json=as_json)


@app.command()
def pattern(key: PatternId, *, as_json: Json = False) -> None:
    """Show a pattern, and what its tests said."""
    found = run_question(lambda memory: memory.pattern_tests(key))
    print_answer(found.model_dump(mode="json"), lambda: _one(found), as_json=as_json)


@app.command("set-pattern")
def set_pattern(key: PatternId, status: NewStatus, *, reason: Reason) -> None:
    """Withdraw a pattern for good (rejected_human_override), or deprecate or hold (probationary) an active one."""
    run_question(lambda memory: memory.set_pattern_status(key, status, reason=reason))
    typer.echo("It has its effect within seconds.")


def _lines(found: Sequence[ListedPattern]) -> Iterator[str]:
    if not found:
        yield "There are none."
    for one in found:
        waits = f", waits for {one.waits_for}" if one.waits_for else ""
        until = f" until {one.until:%Y-%m-%d}" if one.until else ""
        yield f"{shown(one.pattern_id)}: {one.status} since {one.since:%Y-%m-%d}{waits}{until}"
        yield f"  {shown(one.says)}"
        if one.reason:
            yield f"  {shown(one.reason)}"


def _one(found: ListedPattern) -> Iterator[str]:
    yield from _lines([found])
    searched = "" if found.search_space_size is None else f", one of {found.search_space_size} candidates of its run"
    yield f"  proposed by {shown(found.proposed_by)}{searched}"
    for test in found.tests:
        p = "" if test.p is None else f", p {test.p:.4f}"
        said = "passed" if test.passed else f"failed: {test.failure or 'no reason is recorded'}"
        ended = "" if test.ended_at is None else f"{test.ended_at:%Y-%m-%d} "
        yield f"  {ended}{test.kind}: {test.sample_size} cases{p}; {shown(said)}"


def _plan(found: TestPlan) -> Iterator[str]:
    yield shown(found.says)
    for name, part in (("training", found.training), ("validation", found.validation), ("test", found.test)):
        yield f"{name}: {part.matching} matching cases of {part.cases}, in {part.periods} periods"
    yield f"matching cases of {found.subjects} subjects; {found.embargoed} cases cross a boundary and are left out"
    if found.hit_rate is not None:
        yield f"hit rate in training: {found.hit_rate:.2f}"
    if found.smallest_effect is not None:
        yield f"the test would find {found.smallest_effect:.2f} standard deviations with a probability of 80 %"
    yield from found.missing
    yield (
        "No case came in a year: there is no date of a verdict."
        if found.verdict_at is None
        else f"A verdict is possible from {found.verdict_at:%Y-%m-%d} on."
    )
