"""Scores over time against a plain model that looks at one moment at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.history import (
    DatedStatement,
    OutcomeValue,
    Question,
    QuestionKey,
    ScoreVersion,
    StatedClaim,
    ValidityInterval,
    scores_of,
)
from imem.credibility.settlement import NO_SCOPE
from imem.kg.asof import AsOfClock
from imem.kg.kinds.metrics import Metric, metric_of

START = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = 10
DAYS = 25
FINDINGS = {"f1": "ann", "f2": "bob", "f3": "bob", "f4": "base"}


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def up() -> Metric:
    found = metric_of("up")
    assert found is not None
    return found


@st.composite
def statements(
    draw: st.DrawFn, values: st.SearchStrategy[Any], *, most: int = 3, corrections: bool = True
) -> list[Any]:
    """Statements of one record: equal cores and differing corrections, of any times."""
    core = draw(values)
    found: list[DatedStatement[Any]] = []
    for number in range(draw(st.integers(0, most))):
        known = draw(st.integers(0, 20))
        corrects = corrections and draw(st.booleans())
        recorded = day(known + draw(st.integers(0, 4)))
        value = draw(values) if corrects or not corrections else core
        found.append(DatedStatement(day(known), recorded, f"{known:03}|x|{number:03}", corrects, value))
    return found


answers = st.builds(
    OutcomeValue,
    st.just(""),
    st.just(0),
    st.sampled_from([0.0, 1.0]),
    st.just(NO_SCOPE),
    st.sampled_from([False, False, True]),
)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    question = Question(QuestionKey("market:q", "up", day(TARGET)))
    for name, vintage in (("o0", 0), ("o0b", 0), ("o1", 1)):
        made = draw(statements(answers))
        if made:
            question.outcomes[name] = [
                one._replace(value=one.value._replace(outcome_id=name, vintage=vintage)) for one in made
            ]
    for name, agent in FINDINGS.items():
        made = draw(statements(st.sampled_from([0.2, 0.5, 0.7])))
        if made:
            question.findings[name] = [
                one._replace(value=StatedClaim(agent, "flu", one.value, None, None)) for one in made
            ]
    for agent in ("base", "bob"):
        made = draw(statements(st.booleans(), most=2, corrections=False))
        if made:
            question.profiles[agent] = made
    return question


# The model: what stands at one moment, from nothing but what is visible then.


def visible(found: Iterable[DatedStatement[Any]], clock: AsOfClock, at: datetime) -> list[DatedStatement[Any]]:
    return [one for one in found if (one.known_at if clock is AsOfClock.KNOWN else one.recorded_at) <= at]


def stands(found: list[DatedStatement[Any]]) -> DatedStatement[Any] | None:
    corrections = sorted((one for one in found if one.corrects), key=lambda one: one.order_key)
    cores = sorted((one for one in found if not one.corrects), key=lambda one: one.order_key)
    return corrections[-1] if corrections else cores[0] if cores else None


def modelled_peers(
    claims: dict[str, tuple[Any, datetime]], finding: str, actual: float, baselines: set[str]
) -> float | None:
    """Return the mean loss of the others' newest claims, without baselines, with as long to go, by powers of two."""

    def stage(key: str) -> int:
        return math.floor(math.log2((day(TARGET) - claims[key][1]).total_seconds()))

    newest = {(stage(key), FINDINGS[key]): key for key in sorted(claims, key=lambda key: (claims[key][1], key))}
    others = [
        key
        for place, key in newest.items()
        if finding in claims and place[0] == stage(finding) and key != finding and place[1] not in baselines
    ]
    return fmean((claims[key][0] - actual) ** 2 for key in others) if others and finding in newest.values() else None


def modelled(question: Question, finding: str, clock: AsOfClock, at: datetime) -> tuple[Any, ...] | None:
    seen = {key: visible(found, clock, at) for key, found in question.outcomes.items()}
    there = [(one.value.vintage, one.order_key, key, one.value) for key in seen if (one := stands(seen[key]))]
    there = [one for one in there if not one[-1].withdrawn]
    if not there:
        return None
    answer = max(there)[3]

    def probability(key: str) -> float | None:
        made = visible(question.findings[key], clock, at)
        cores = [one for one in made if not one.corrects]
        if not cores or min(one.known_at for one in cores) >= day(TARGET):
            return None
        said = stands([one for one in made if not one.corrects or one.known_at < day(TARGET)])
        return None if said is None else said.value.probability

    def made_at(key: str) -> datetime:
        return min(one.known_at for one in visible(question.findings[key], clock, at) if not one.corrects)

    def is_baseline(agent: str) -> bool:
        described = sorted(visible(question.profiles.get(agent, []), clock, at), key=lambda one: one.order_key)
        return bool(described and described[-1].value)

    said = probability(finding)
    if said is None:
        return None
    given_by: dict[str, list[float]] = {}
    for key in question.findings:
        agent, forecast = FINDINGS[key], probability(key)
        if is_baseline(agent) and forecast is not None:
            given_by.setdefault(agent, []).append(forecast)
    reference = fmean(fmean(found) for found in given_by.values()) if given_by else None
    if is_baseline(FINDINGS[finding]):
        reference = None
    y = None if said == 0.5 else int((said > 0.5) == (answer.actual == 1.0))
    error = None if y is None else (said - answer.actual) ** 2
    return (
        answer.outcome_id,
        answer.vintage,
        said,
        answer.actual,
        y,
        error,
        reference,
        modelled_peers(
            {
                key: (stated, made_at(key))
                for key in question.findings
                if (stated := probability(key)) not in {None, 0.5}
            },
            finding,
            answer.actual,
            {agent for agent in FINDINGS.values() if is_baseline(agent)},
        ),
    )


def covers(span: ValidityInterval | None, at: datetime) -> bool:
    return span is not None and span.start <= at and (span.end is None or at < span.end)


def standing_scores(scores: Iterable[ScoreVersion], finding: str, clock: AsOfClock, at: datetime) -> list[ScoreVersion]:
    return [
        score
        for score in scores
        if score.finding_id == finding and covers(score.known if clock is AsOfClock.KNOWN else score.recorded, at)
    ]


def shown(score: ScoreVersion) -> tuple[Any, ...]:
    content = score.content
    return (
        content.outcome_id, content.vintage, content.stated, content.actual, content.y, content.brier,
        content.reference, content.peer_loss,
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(questions())
def test_scores_stand_as_one_moment_shows_them(question: Question) -> None:
    """On either clock and at every moment, exactly the score stands that follows from what counts by then."""
    scores = scores_of(question, up())

    for clock in AsOfClock:
        for number in range(DAYS):
            for finding in question.findings:
                found = standing_scores(scores, finding, clock, day(number))
                expected = modelled(question, finding, clock, day(number))
                assert [shown(score) for score in found] == ([] if expected is None else [pytest.approx(expected)])


@settings(max_examples=100, deadline=None)
@given(questions(), st.integers(0, 20))
def test_what_comes_later_changes_nothing_before(question: Question, cut: int) -> None:
    """Leaving out everything that counts after a moment leaves every score at that moment as it was."""
    for clock in AsOfClock:
        before = Question(question.key)
        for whole, part in ((question.outcomes, before.outcomes), (question.findings, before.findings)):
            for key, found in whole.items():
                kept = visible(found, clock, day(cut))
                if kept:
                    part[key] = kept
        before.profiles = {agent: visible(found, clock, day(cut)) for agent, found in question.profiles.items()}
        full, partial = scores_of(question, up()), scores_of(before, up())
        for finding in question.findings:
            assert [one.content for one in standing_scores(full, finding, clock, day(cut))] == [
                one.content for one in standing_scores(partial, finding, clock, day(cut))
            ]


@settings(max_examples=100, deadline=None)
@given(questions(), st.randoms(use_true_random=False))
def test_identities_are_unique_and_the_order_of_statements_is_nothing(question: Question, random: Any) -> None:
    scores = scores_of(question, up())
    for found in (*question.outcomes.values(), *question.findings.values(), *question.profiles.values()):
        random.shuffle(found)

    assert sorted(scores_of(question, up())) == sorted(scores)
    identities = [(score.finding_id, score.content.vintage, score.revision) for score in scores]
    assert len(set(identities)) == len(identities)


def test_who_becomes_a_baseline_loses_the_reference_even_where_the_mean_stays() -> None:
    """Two baselines of one mind: the mean forecast does not move when the second is described, its own score does."""

    def said(known: int, value: Any) -> list[DatedStatement[Any]]:
        return [DatedStatement(day(known), day(known), f"{known:03}|x|000", corrects=False, value=value)]

    question = Question(QuestionKey("market:q", "up", day(TARGET)))
    question.outcomes["o"] = said(12, OutcomeValue("o", 0, 1.0))
    for name, agent in (("f3", "bob"), ("f4", "base")):
        question.findings[name] = said(1, StatedClaim(agent, "flu", 0.2, None, None))
    question.profiles = {"base": said(0, value=True), "bob": said(20, value=True)}

    found = {
        (score.finding_id, score.known.start): score.content.reference
        for score in scores_of(question, up())
        if score.known is not None
    }

    # From then on f4 has no peer, either: a new score of it begins.
    assert found == {
        ("f3", day(12)): 0.2, ("f3", day(20)): None, ("f4", day(12)): None, ("f4", day(20)): None,
    }  # fmt: skip


@pytest.mark.parametrize(("known", "counts"), [(TARGET - 1, True), (TARGET, False), (TARGET + 1, False)])
def test_a_claim_counts_only_when_known_before_its_target(known: int, *, counts: bool) -> None:
    """At the very moment of the target it is as late as any."""
    question = Question(QuestionKey("market:q", "up", day(TARGET)))
    answer = OutcomeValue("o", 0, 1.0)
    question.outcomes["o"] = [DatedStatement(day(12), day(12), "012|x|000", corrects=False, value=answer)]
    said = StatedClaim("ann", "flu", 0.2, None, None)
    question.findings["f"] = [DatedStatement(day(known), day(known), f"{known:03}|x|000", corrects=False, value=said)]

    assert bool(scores_of(question, up())) is counts
