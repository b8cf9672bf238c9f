"""Named queries about agents, debates, contradictions and learning, with rows worked out by hand."""

from __future__ import annotations

from typing import Any

import neo4j
import pytest

from imem.kg.model import (
    Agent,
    AgentCredibility,
    Analysis,
    ContradictionPriority,
    ContradictionStatus,
    DataContradiction,
    Debate,
    DebateResolution,
    Decision,
    Domain,
    FailureAnalysis,
    Finding,
    Human,
    HumanInsight,
    Lesson,
    LessonPriority,
    LessonSource,
    Outcome,
    Pattern,
    PatternStatus,
    PostMortem,
    PostmortemStatus,
    RootCause,
    SourceCredibility,
    SuccessClass,
    SuccessValidation,
)
from imem.kg.queries import topic_search
from tests.kg.queries.build import Row, Story, ask, at

pytestmark = pytest.mark.spec("GR-8")

MU = "company:MU"


# Agents


def test_credibility_of_an_agent_in_a_domain(driver: neo4j.Driver) -> None:
    score = AgentCredibility.Score(
        sample_size=20, posterior_mean=0.6, last_updated=at("06-01"), decay_halflife_years=2.0
    )
    story = Story().tell(Agent(name="bull"), Domain(name="equity"), Domain(name="flu"))
    story.tell(AgentCredibility(agent_id="bull", domain="equity", score=score))
    story.tell(AgentCredibility(agent_id="bear", domain="equity"), AgentCredibility(agent_id="bull", domain="flu"))
    story.write(driver)
    (row,) = ask(driver, "agent_credibility_in", agent="bull", domain="equity", limit=1)
    assert row["credibility"]["id"] == "bull/equity"
    assert row["credibility"]["posterior_mean"] == 0.6
    assert ask(driver, "agent_credibility_in", agent="bear", domain="flu", limit=1) == []


def finding(name: str, domain: str = "equity", agent: str = "bull") -> Finding:
    return Finding(id=name, analysis_id="a", subject_id=MU, agent=agent, domain=domain, statement=name)


def outcome(name: str, vintage: int = 0, **more: Any) -> Outcome:
    fields: Row = {"subject_id": MU, "metric": "return_1s", "target_at": at("06-04"), "actual": 0.02}
    return Outcome(id=name, observed_at=at("06-04"), vintage=vintage, **(fields | more))


def accuracy(driver: neo4j.Driver, agent: str = "bull", domain: str | None = None) -> list[tuple[Any, ...]]:
    rows = ask(driver, "accuracy_full_scan", agent=agent, domain=domain, limit=1)
    return [(row["agent"], row["settled"], row["abstained"], row["accuracy"]) for row in rows]


def test_accuracy_counts_the_newest_vintage_and_does_not_score_abstentions(driver: neo4j.Driver) -> None:
    """Right, wrong after a revision, abstained, and one that nothing has settled."""
    story = Story().tell(Agent(name="bull"), Agent(name="silent"))
    story.tell(finding("right"), finding("revised"), finding("abstained"), finding("open"), finding("flu", "flu"))
    story.tell(finding("other", agent="bear"))
    story.tell(outcome("first", 0), outcome("final", 1), outcome("withdrawn", 2, withdrawn=True))
    story.settled("right", "first", correct=1.0)
    story.settled("revised", "first", correct=1.0).settled("revised", "final", correct=0.0)
    story.settled("revised", "withdrawn", correct=1.0)
    story.settled("abstained", "first", correct=None)
    story.settled("flu", "first", correct=1.0)
    story.settled("other", "first", correct=0.0)
    story.write(driver)
    assert accuracy(driver, domain="equity") == [("bull", 3, 1, 0.5)]
    assert accuracy(driver) == [("bull", 4, 1, pytest.approx(2 / 3))]
    assert accuracy(driver, domain="macro") == [("bull", 0, 0, None)]
    assert accuracy(driver, "silent") == [("silent", 0, 0, None)]
    assert accuracy(driver, "unknown") == []


# Debates


def debate(name: str, topic: str = "Buy or sell?", day: str = "06-01", **state: Any) -> Debate:
    group = Debate.State(**({"state": "closed", "provisional": False} | state)) if state else None
    return Debate(id=name, subject_id=MU, topic=topic, challenger_agent="bear", challenged_agent="bull",
                  participants=["bear", "bull"], timestamp=at(day), state=group)  # fmt: skip


def resolution(name: str, of: str, **groups: Any) -> DebateResolution:
    return DebateResolution(id=name, debate_id=of, winning_position="Hold.", **groups)


def similar(driver: neo4j.Driver, topic: str, levels: list[str] | None = None, limit: int = 5) -> list[str]:
    rows = ask(driver, "similar_debates", search=topic_search(topic), levels=levels, limit=limit)
    return [row["debate"]["id"] for row in rows]


def test_similar_debates_newest_first_by_topic_and_level(driver: neo4j.Driver) -> None:
    """Words count by their stems; a debate that shares one word of three is not similar."""
    story = Story()
    story.tell(debate("old", "Is the gross margin of Micron sustainable?", "03-01", resolution_level="2_facilitator"))
    story.tell(debate("new", "Gross margins: sustainable or not", "05-01", resolution_level="3_human"))
    story.tell(debate("open", "Sustainable gross margin", "04-01"))
    story.tell(debate("other", "Does the market overreact to weather?", "06-01"))
    story.tell(debate("one word", "How will the gross domestic product of a large economy be revised?", "06-02"))
    story.tell(resolution("r", "old"))
    story.write(driver)
    assert similar(driver, "gross margin sustainable") == ["new", "open", "old"]
    assert similar(driver, "GROSS MARGINS sustainability?!", limit=2) == ["new", "open"]
    assert similar(driver, "gross margin sustainable", ["2_facilitator", "3_human"]) == ["new", "old"]
    assert similar(driver, "weather") == ["other"]
    assert similar(driver, "bankruptcy") == []
    rows = ask(driver, "similar_debates", search=topic_search("Micron"), levels=None, limit=5)
    assert [[one["id"] for one in row["resolutions"]] for row in rows] == [["r"]]


@pytest.mark.parametrize("typed", ["", "?!", '"', "a AND (", "topic:x~", "\\", "[1 TO"])
def test_nothing_that_people_type_breaks_the_search(driver: neo4j.Driver, typed: str) -> None:
    Story().tell(debate("d")).write(driver)
    assert isinstance(similar(driver, typed), list)


def test_defaults_that_a_person_overrode_afterwards(driver: neo4j.Driver) -> None:
    """The override says why, the resolution whether it was right; an override before the default is another one."""
    story = Story().tell(Human(id="ann"), Human(id="bob"))
    for name, level in (("d1", "5_gate_review"), ("d2", "5_gate_review"), ("d3", "4_fallback")):
        story.tell(debate(name, defaulted_at=at("06-02"), resolution_level=level))
    story.tell(debate("d4", resolution_level="3_human"))
    for name in ("d1", "d2", "d3", "d4"):
        tracked = DebateResolution.Outcome(accuracy_tracked=True, outcome_correctness=0.5 if name == "d1" else None)
        story.tell(resolution(f"r {name}", name, outcome=tracked))
    for human, name, day in (
        ("ann", "d1", "06-03"),
        ("bob", "d2", "06-05"),
        ("bob", "d3", "06-01"),
        ("ann", "d4", "06-06"),
    ):
        story.link(
            "OVERRODE", ("Human", human), ("DebateResolution", f"r {name}"), at=at(day), rationale=f"Because {name}."
        )
    story.write(driver)
    rows = ask(driver, "conservative_defaults_overridden", limit=5)
    assert [
        (r["debate"]["id"], r["resolution"]["id"], r["human"], r["overridden_at"], r["rationale"], r["correctness"])
        for r in rows
    ] == [
        ("d2", "r d2", "bob", at("06-05"), "Because d2.", None),
        ("d1", "r d1", "ann", at("06-03"), "Because d1.", 0.5),
    ]
    assert len(ask(driver, "conservative_defaults_overridden", limit=1)) == 1


def test_facilitators_success_counts_what_is_tracked_and_known(driver: neo4j.Driver) -> None:
    story = Story()
    for number, (level, tracked, correctness) in enumerate([
        ("2_facilitator", True, 1.0), ("2_facilitator", True, 0.5), ("2_facilitator", True, None),
        ("2_facilitator", False, 0.0), ("3_human", True, 0.0),
    ]):  # fmt: skip
        story.tell(debate(f"d{number}", resolution_level=level))
        score = DebateResolution.Outcome(accuracy_tracked=tracked, outcome_correctness=correctness)
        story.tell(resolution(f"r{number}", f"d{number}", outcome=score))
    story.write(driver)
    assert ask(driver, "facilitator_success_rate", limit=1) == [{"debates": 2, "mean_correctness": 0.75}]


# Contradictions


def contradiction(
    name: str,
    day: str = "06-01",
    priority: ContradictionPriority = ContradictionPriority.CRITICAL,
    sources: str = "ab",
    **resolution: Any,
) -> DataContradiction:
    computed: Row = {"priority": priority, "status": ContradictionStatus.UNCERTAIN, **resolution}
    group = DataContradiction.Resolution(**computed) if resolution else None
    return DataContradiction(
        id=name,
        subject_id=MU,
        data_point="eps",
        source_a=sources[0],
        source_b=sources[1],
        value_a=1.0,
        value_b=2.0,
        timestamp=at(day),
        resolution=group,
    )


def source(name: str, **score: Any) -> SourceCredibility:
    group: Row = {"temporal_decay_halflife": 1.0, "contradiction_count": 0, "last_updated": at("06-01")}
    return SourceCredibility(source_name=name, source_type="filing", score=SourceCredibility.Score(**(group | score)))


def test_credibility_of_a_source(driver: neo4j.Driver) -> None:
    story = Story().tell(source("a", base_accuracy=0.9), source("b"))
    story.link("RESOLVED_BY_SOURCE", ("DataContradiction", "c"), ("SourceCredibility", "stub")).write(driver)
    (row,) = ask(driver, "source_credibility", source="a", limit=1)
    assert (row["source"]["source_type"], row["source"]["base_accuracy"]) == ("filing", 0.9)
    assert ask(driver, "source_credibility", source="stub", limit=1) == []


def test_gate_3_sees_critical_provisional_unreviewed_oldest_first(driver: neo4j.Driver) -> None:
    waiting: Row = {"provisional": True, "reviewed_at_gate3": False}
    story = Story().tell(
        contradiction("new", "06-03", **waiting), contradiction("old", "06-01", **waiting),
        contradiction("high", priority=ContradictionPriority.HIGH, **waiting), contradiction("unresolved"),
        contradiction("reviewed", provisional=True, reviewed_at_gate3=True),
        contradiction("final", provisional=False, reviewed_at_gate3=False),
    )  # fmt: skip
    story.write(driver)
    rows = ask(driver, "contradictions_for_gate3", limit=5)
    assert [row["contradiction"]["id"] for row in rows] == ["old", "new"]
    assert len(ask(driver, "contradictions_for_gate3", limit=1)) == 1


def test_win_rate_of_a_source(driver: neo4j.Driver) -> None:
    """Of three contradictions it took part in and some source decided, it was believed in two; one is undecided."""
    story = Story().tell(source("a", base_accuracy=0.8), source("b"), source("c"), source("z"))
    for name, sources, winner in (
        ("1", "ab", "a"),
        ("2", "ba", "a"),
        ("3", "ab", "b"),
        ("4", "ab", None),
        ("5", "bc", "c"),
    ):
        story.tell(contradiction(name, sources=sources))
        if winner:
            story.link("RESOLVED_BY_SOURCE", ("DataContradiction", name), ("SourceCredibility", winner))
    story.write(driver)
    assert ask(driver, "source_win_rate", source="a", limit=1) == [
        {"source": "a", "won": 2, "decided": 3, "win_rate": pytest.approx(2 / 3), "base_accuracy": 0.8}
    ]
    assert ask(driver, "source_win_rate", source="z", limit=1) == [
        {"source": "z", "won": 0, "decided": 0, "win_rate": None, "base_accuracy": None}
    ]


def test_contradictions_a_person_decided_newest_first(driver: neo4j.Driver) -> None:
    story = Story()
    for name, day, level in (("a", "06-01", "3_human"), ("b", "06-03", "3_human"), ("c", "06-04", "2_credibility"),
                             ("d", "05-31", "3_human")):  # fmt: skip
        story.tell(contradiction(name, day, resolution_level=level, provisional=False, reviewed_at_gate3=True))
    story.write(driver)
    rows = ask(driver, "contradictions_arbitrated", since=at("06-01"), limit=5)
    assert [row["contradiction"]["id"] for row in rows] == ["b", "a"]
    assert len(ask(driver, "contradictions_arbitrated", since=at("06-01"), limit=1)) == 1


# Learning


def postmortem(name: str, decision: str, checkpoint: int = 30) -> PostMortem:
    return PostMortem(id=name, decision_id=decision, checkpoint=checkpoint, deviation=0.4, trigger_date=at("06-01"))


def decision(name: str, day: str = "06-01") -> Decision:
    return Decision(id=name, subject_id=MU, type="trade", agents_involved=["bull"], decided_at=at(day))


def lesson(name: str, **fields: Any) -> Lesson:
    said = fields.pop("state", None)
    if said is not None:
        said = {"effectiveness_tracked": False, "reviewed": False} | said
        said.setdefault("state", "applied" if said["applied"] else "approved")
    state = None if said is None else Lesson.State(**said)
    return Lesson(
        id=name,
        source=LessonSource.COMBINED,
        category="process",
        insight=name,
        recommended_action="Look twice.",
        priority=LessonPriority.HIGH,
        state=state,
        **fields,
    )


def test_postmortems_too_long_under_review_by_priority(driver: neo4j.Driver) -> None:
    """Counted from the day their state was stated, not from the trigger."""
    story = Story()
    for name, priority, day, status in (
        ("low", 0.1, "06-01", PostmortemStatus.IN_REVIEW),
        ("high", 0.9, "06-02", PostmortemStatus.IN_REVIEW),
        ("longer", 0.9, "06-01", PostmortemStatus.IN_REVIEW),
        ("fresh", 1.0, "06-03", PostmortemStatus.IN_REVIEW),
        ("done", 1.0, "06-01", PostmortemStatus.COMPLETED),
    ):
        story.tell(postmortem(name, f"d {name}"))
        story.late(PostMortem, name, state=PostMortem.State(status=status, priority=priority), known=at(day))
    story.tell(decision("d high")).write(driver)
    rows = ask(driver, "postmortems_pending", opened_before=at("06-03"), limit=5)
    assert [(row["postmortem"]["id"], (row["decision"] or {}).get("type")) for row in rows] == [
        ("longer", None),
        ("high", "trade"),
        ("low", None),
    ]
    assert len(ask(driver, "postmortems_pending", opened_before=at("06-03"), limit=1)) == 1


def failure(name: str, of: str, cause: RootCause = RootCause.TIMING) -> FailureAnalysis:
    return FailureAnalysis(
        id=name, postmortem_id=of, root_cause_category=cause, root_cause_details="Too early.", foreseeability_rating=3
    )


def test_postmortem_of_a_decision_whole(driver: neo4j.Driver) -> None:
    story = Story().tell(decision("d"), postmortem("late", "d", 90), postmortem("early", "d", 30))
    story.tell(failure("f", "late"), lesson("l2", postmortem_id="late"), lesson("l1", postmortem_id="late"))
    story.tell(
        HumanInsight(
            id="h",
            postmortem_id="late",
            primary_reason="timing",
            factors_missed="x",
            warning_signs_missed="y",
            future_actions="z",
            foreseeability_rating=2,
            review_date=at("06-20"),
        )
    )
    story.tell(outcome("o90", decision_id="d", checkpoint=90), outcome("o30", decision_id="d", checkpoint=30))
    story.write(driver)
    early, late = ask(driver, "postmortem_of_decision", decision_id="d", limit=5)
    assert (early["postmortem"]["id"], early["failure_analyses"], early["lessons"]) == ("early", [], [])
    assert [one["id"] for one in early["outcomes"]] == ["o30"]
    assert late["decision"]["id"] == "d"
    names = {
        column: [one["id"] for one in late[column]]
        for column in ("failure_analyses", "insights", "lessons", "outcomes")
    }
    assert names == {"failure_analyses": ["f"], "insights": ["h"], "lessons": ["l1", "l2"], "outcomes": ["o90"]}


def test_applied_lessons_of_a_cause_newest_first(driver: neo4j.Driver) -> None:
    story = Story().tell(postmortem("p", "d"), postmortem("q", "d2"))
    story.tell(failure("f1", "p"), failure("f2", "p"), failure("f3", "q", RootCause.BLACK_SWAN))
    for name, of, applied, day in (("a", "p", True, "06-01"), ("b", "p", True, "06-03"), ("c", "p", False, None),
                                   ("d", "q", True, "06-04"), ("e", "p", True, None)):  # fmt: skip
        state = {"applied": applied, "applied_date": at(day) if day else None}
        story.tell(lesson(name, postmortem_id=of, state=state))
    story.tell(lesson("stateless", postmortem_id="p")).write(driver)
    rows = ask(driver, "lessons_by_cause", root_cause="timing", limit=10)
    assert [(row["lesson"]["id"], row["postmortem_id"]) for row in rows] == [("b", "p"), ("a", "p"), ("e", "p")]
    assert len(ask(driver, "lessons_by_cause", root_cause="timing", limit=1)) == 1


def test_success_validation_stats_of_a_class(driver: neo4j.Driver) -> None:
    story = Story()
    for name, kind, skill, market in (
        ("a", SuccessClass.LUCKY_SUCCESS, 0.1, 0.8),
        ("b", SuccessClass.LUCKY_SUCCESS, 0.3, 0.4),
        ("c", SuccessClass.GENUINE_SUCCESS, 0.9, 0.1),
    ):
        story.tell(
            SuccessValidation(
                id=name,
                decision_id=name,
                thesis_score=0.5,
                market_contribution=market,
                sector_contribution=0.0,
                stock_specific_contribution=0.0,
                skill_ratio=skill,
                classification=kind,
            )
        )
    story.write(driver)
    (row,) = ask(driver, "success_validation_stats", classification="lucky_success", limit=1)
    assert (row["classification"], row["validations"]) == ("lucky_success", 2)
    assert (row["mean_skill_ratio"], row["mean_market_contribution"]) == (pytest.approx(0.2), pytest.approx(0.6))


def test_patterns_pending_revision_by_number_of_lessons(driver: neo4j.Driver) -> None:
    """Applied lessons, lessons that revised this pattern, and patterns that are not active do not count."""
    story = Story()
    for name, status in (("p", PatternStatus.ACTIVE), ("q", PatternStatus.ACTIVE), ("r", PatternStatus.DEPRECATED)):
        group = Pattern.Status(status=status, quarantined=False)
        story.tell(Pattern(pattern_id=name, name=name, category="c", status=group))
    story.tell(lesson("a"), lesson("b", state={"applied": False}), lesson("c", state={"applied": True}), lesson("d"))
    for name, of in (("a", "p"), ("a", "q"), ("b", "q"), ("c", "p"), ("d", "p"), ("a", "r"), ("never told", "p")):
        story.link("AFFECTS_PATTERN", ("Lesson", name), ("Pattern", of))
    story.link("REVISED_BY", ("Pattern", "p"), ("Lesson", "d"))
    story.write(driver)
    rows = ask(driver, "patterns_pending_revision", limit=5)
    assert [(row["pattern"]["pattern_id"], row["lessons"], row["lesson_ids"]) for row in rows] == [
        ("q", 2, ["a", "b"]),
        ("p", 1, ["a"]),
    ]
    assert len(ask(driver, "patterns_pending_revision", limit=1)) == 1


def test_effect_of_lessons_on_later_decisions(driver: neo4j.Driver) -> None:
    """A decision counts once by the mean of its outcomes, each by its newest vintage; earlier ones do not count."""
    tracked: Row = {"applied": True, "effectiveness_tracked": True}
    story = Story().tell(Agent(name="bull"), Agent(name="bear"))
    story.tell(lesson("l", state={**tracked, "applied_date": at("06-10")}))
    story.tell(lesson("too old", state={**tracked, "applied_date": at("05-01")}))
    story.tell(lesson("untracked", state={"applied": True, "applied_date": at("06-10")}))
    story.tell(lesson("unapplied", state={**tracked, "applied": False, "applied_date": at("06-10")}))
    for name in ("l", "too old", "untracked", "unapplied"):
        for agent in ("bull", "bear"):
            story.link("AFFECTS_AGENT", ("Lesson", name), ("Agent", agent))
    story.tell(decision("before", "06-09"), decision("d1", "06-11"), decision("d2", "06-12"), decision("open", "06-13"))
    for of, metric, vintage, value in (("before", "close", 0, 1.0), ("d1", "close", 0, 0.0), ("d1", "close", 1, 0.8),
                                       ("d1", "revenue", 0, 0.4), ("d2", "close", 0, 1.0)):  # fmt: skip
        assessed = Outcome.Assessment(accuracy=value)
        story.tell(outcome(f"{of} {metric} {vintage}", vintage, decision_id=of, metric=metric, assessment=assessed))
    story.write(driver)
    rows = ask(driver, "lesson_effect", since=at("06-01"), limit=5)
    assert rows == [
        {"lesson_id": "l", "applied_date": at("06-10"), "agent": "bear", "decisions": 0, "mean_accuracy": None},
        {
            "lesson_id": "l",
            "applied_date": at("06-10"),
            "agent": "bull",
            "decisions": 2,
            "mean_accuracy": pytest.approx(0.8),
        },
    ]


def test_a_stub_of_an_analysis_is_never_similar(driver: neo4j.Driver) -> None:
    """Similarity may name an analysis before its record is applied."""
    Story().tell(Analysis(id="a", subject_id=MU, date=at("06-01"), kind="k")).write(driver)
    Story().link("PERFORMED", ("Agent", "bull"), ("Analysis", "stub")).write(driver)
    Story().similar("Analysis", "a", "stub", score=0.9, rank=1).write(driver)
    assert ask(driver, "similar_analyses", analysis_id="a", limit=5) == []
