"""Named queries about subjects, with rows worked out by hand."""

from __future__ import annotations

from typing import Any

import neo4j
import pytest

from imem.kg.model import (
    Agent,
    Analysis,
    Company,
    ContradictionPriority,
    ContradictionStatus,
    DataContradiction,
    Debate,
    DebateResolution,
    Decision,
    Finding,
    Lesson,
    LessonPriority,
    LessonSource,
    LessonState,
    Market,
    Outcome,
    Pattern,
    PatternStatus,
    PostMortem,
)
from imem.kg.queries import names_search
from tests.kg.queries.build import Row, Story, as_of, ask, at

pytestmark = pytest.mark.spec("GR-8")


def analysis(name: str, day: str, subject: str = "company:MU", **more: Any) -> Analysis:
    return Analysis(id=name, subject_id=subject, date=at(day), kind="research", **more)


def finding(
    name: str, of: str, agent: str = "bull", domain: str = "equity", subject: str = "company:MU", **more: Any
) -> Finding:
    return Finding(id=name, analysis_id=of, subject_id=subject, agent=agent, domain=domain, statement=name, **more)


def outcome(name: str, vintage: int = 0, **more: Any) -> Outcome:
    fields: Row = {"subject_id": "company:MU", "metric": "return_1s", "target_at": at("06-04"), "actual": 0.02}
    return Outcome(id=name, observed_at=at("06-04"), vintage=vintage, **(fields | more))


def history(driver: neo4j.Driver, subject: str = "company:MU", day: str | None = None, **more: Any) -> list[Row]:
    parameters: Row = {"findings_limit": 5, "detailed": 5, "limit": 5, **as_of(day), **more}
    return ask(driver, "company_history", subject_id=subject, **parameters)


def speakers(driver: neo4j.Driver, subject: str, **more: Any) -> list[Row]:
    (row,) = ask(driver, "speakers_of_subject", subject_id=subject, **{"limit": 10, **more})
    found: list[Row] = row["speakers"]
    return found


@pytest.fixture
def micron(driver: neo4j.Driver) -> neo4j.Driver:
    """Two analyses of Micron: a decision and its outcome belong to the first, a settled finding to both."""
    claim: Row = {"metric": "return_1s", "target_at": at("06-04"), "direction": "positive"}
    story = Story()
    story.tell(Company(ticker="MU", profile=Company.Profile(name="Micron Technology", sector="Technology")))
    story.tell(Agent(name="bull"), Agent(name="bear"))
    story.tell(analysis("first", "06-01"), known=at("06-01"))
    story.tell(
        finding("f1", "first", importance=0.2, **claim),
        finding("f2", "first", agent="bear", importance=0.9),
        finding("f3", "first", agent="bear", domain="macro"),
        known=at("06-01"),
    )
    story.link("PERFORMED", ("Agent", "bull"), ("Analysis", "first"), known=at("06-01"), role="lead")
    story.tell(analysis("second", "06-03"), known=at("06-03"))
    story.tell(finding("f4", "second", **claim), known=at("06-03"))
    story.tell(
        Decision(id="buy", analysis_id="first", subject_id="company:MU", type="trade", agents_involved=["bull"],
                 decided_at=at("06-02")),
        known=at("06-02"),
    )  # fmt: skip
    story.tell(outcome("o-review", decision_id="buy", checkpoint=30, metric="close"), known=at("06-05"))
    story.tell(outcome("o1"), known=at("06-05"))
    story.settled("f1", "o1", correct=1.0, brier=0.25).settled("f4", "o1", correct=1.0)
    story.write(driver)
    return driver


def test_history_has_the_newest_first_with_all_that_belongs_to_each(micron: neo4j.Driver) -> None:
    """The whole row, from who performed it to what became of the decision."""
    second, first = history(micron)
    assert [row["analysis"] for row in (second, first)] == ["second", "first"]
    assert first["subject"] == "company:MU"
    assert first["own"] is True
    assert first["performed_by"] == ["bull"], "keys alone: roles and scores change, and the journal dates them"
    assert first["findings"] == ["f1", "f2", "f3"], "of who ran it first, then by importance, then by id"
    assert (first["makers"], first["baselines"]) == (["bull"], [])
    assert first["findings_total"] == 3
    assert first["decisions"] == [{"decision": "buy", "outcomes": ["o-review"]}]
    assert second["decisions"] == []
    assert second["performed_by"] == []
    assert {row["total"] for row in (first, second)} == {2}


def test_history_as_of_a_day_knows_only_what_was_known(micron: neo4j.Driver) -> None:
    """Analyses, decisions and outcomes appear one after the other as days pass."""
    assert history(micron, day="05-31") == []
    (row,) = history(micron, day="06-01")
    assert (row["analysis"], row["decisions"], row["total"]) == ("first", [], 1)
    (row,) = history(micron, day="06-02")
    assert row["decisions"][0]["outcomes"] == []
    second, first = history(micron, day="06-04")
    assert (second["analysis"], first["decisions"][0]["outcomes"]) == ("second", [])
    second, first = history(micron, day="06-05")
    assert first["decisions"][0]["outcomes"] == ["o-review"]


def test_history_is_bounded_and_says_how_much_there_is(micron: neo4j.Driver) -> None:
    (row,) = history(micron, limit=1, findings_limit=1)
    assert (row["analysis"], row["total"]) == ("second", 2)
    _, first = history(micron, findings_limit=1)
    assert first["findings"] == ["f1"]
    assert first["findings_total"] == 3


def test_baselines_are_last_and_an_agent_that_is_described_later_comes_in_addition(micron: neo4j.Driver) -> None:
    """What it was before, the graph does not know: the journal says so, for whoever may have been one."""
    described = Agent.Profile(specialization="anything", kind="baseline")
    Story().late(Agent, "bear", known=at("06-02"), profile=described).write(micron)
    _, first = history(micron, findings_limit=2)
    assert (first["findings"], first["baselines"]) == (["f1", "f2"], ["bear"])
    (first,) = history(micron, day="06-01", findings_limit=1)
    assert (first["findings"], first["baselines"]) == (["f2", "f3", "f1"], ["bear", "bear"])


def test_history_on_the_recorded_clock_hides_what_was_recorded_later(driver: neo4j.Driver) -> None:
    """An old fact imported later was not recorded then."""
    story = Story().tell(Company(ticker="MU"))
    story.tell(analysis("imported", "06-01"), known=at("06-01"), recorded=at("06-20"))
    story.write(driver)
    assert len(history(driver, day="06-10")) == 1
    assert history(driver, **as_of("06-10", clock="recorded")) == []
    assert len(history(driver, **as_of("06-20", clock="recorded"))) == 1


def test_what_a_later_correction_touched_comes_in_addition(driver: neo4j.Driver) -> None:
    """A correction known later pushes no row out of an earlier answer, neither an analysis nor a finding."""
    story = Story().tell(Company(ticker="MU"))
    story.tell(analysis("old", "06-01"), known=at("06-01"))
    story.tell(analysis("new", "06-02"), known=at("06-02"))
    story.tell(finding("a", "new", importance=0.5), finding("b", "new", importance=0.4), known=at("06-02"))
    story.correct(analysis("old", "06-03"), known=at("06-10"))
    story.correct(finding("b", "new", importance=0.9), known=at("06-10"))
    story.write(driver)
    before = history(driver, day="06-05", limit=1, findings_limit=1)
    assert [row["analysis"] for row in before] == ["old", "new"]
    assert before[1]["findings"] == ["b", "a"]
    after = history(driver, day="06-10", limit=1, findings_limit=1)
    assert [row["analysis"] for row in after] == ["old"]


def question(name: str, series: str | None = "ca-1") -> Market:
    return Market(market_id=name, question=f"Will {name} rise?", series_id=series)


def test_history_of_a_market_includes_its_series_after_its_own(driver: neo4j.Driver) -> None:
    """Each question usually has one analysis: the others of its series are the history."""
    story = Story().tell(question("w1"), question("w2"), question("w3"), question("tx", "tx-1"), question("lone", None))
    for name, day in (("w1", "06-01"), ("w2", "06-08"), ("w3", "06-15"), ("tx", "06-16"), ("lone", "06-17")):
        story.tell(analysis(f"on {name}", day, f"market:{name}"), known=at(day))
    story.write(driver)
    rows = history(driver, "market:w2")
    assert [(row["analysis"], row["own"], row["subject"]) for row in rows] == [
        ("on w2", True, "market:w2"),
        ("on w3", False, "market:w3"),
        ("on w1", False, "market:w1"),
    ]
    assert [row["analysis"] for row in history(driver, "market:w2", day="06-08")] == ["on w2", "on w1"]
    assert [row["analysis"] for row in history(driver, "market:lone")] == ["on lone"]


def test_a_question_belongs_to_a_series_from_when_that_was_known(driver: neo4j.Driver) -> None:
    """On either end: neither the other question's series counts earlier, nor that of the one asked for."""
    story = Story().tell(question("w1"), known=at("06-10")).tell(question("w2"), known=at("06-01"))
    story.tell(question("w3"), known=at("06-01"), recorded=at("06-20"))
    for name in ("w1", "w2", "w3"):
        story.tell(analysis(f"on {name}", "06-01", f"market:{name}"), known=at("06-01"))
        story.tell(finding(f"f {name}", f"on {name}", f"of {name}", "flu", f"market:{name}"), known=at("06-01"))
    story.write(driver)

    def seen(market: str, **moment: Any) -> tuple[set[str], set[str]]:
        rows = speakers(driver, market, **moment)
        return {row["analysis"] for row in history(driver, market, **moment)}, {row["agent"] for row in rows}

    assert seen("market:w2", **as_of("06-05")) == ({"on w2", "on w3"}, {"of w2", "of w3"})
    assert seen("market:w1", **as_of("06-05")) == ({"on w1"}, {"of w1"})
    assert seen("market:w2", **as_of("06-10")) == ({"on w1", "on w2", "on w3"}, {"of w1", "of w2", "of w3"})
    assert seen("market:w1", **as_of("06-10", clock="recorded")) == ({"on w1", "on w2"}, {"of w1", "of w2"})


def test_a_stub_is_no_analysis(driver: neo4j.Driver) -> None:
    """A link may arrive before the analysis it speaks of."""
    Story().link("PERFORMED", ("Agent", "bull"), ("Analysis", "early"), known=at("06-01")).write(driver)
    Story().tell(Company(ticker="MU")).write(driver)
    assert history(driver) == []


def test_a_subject_known_later_hides_nothing(driver: neo4j.Driver) -> None:
    """A subject is only a reference: what was said of it counts, whenever its own record came."""
    Story().tell(analysis("a", "06-01"), known=at("06-01")).tell(Company(ticker="MU"), known=at("06-20")).write(driver)
    assert [row["analysis"] for row in history(driver, day="06-02")] == ["a"]


def test_speakers_are_counted_by_agent_and_domain(micron: neo4j.Driver) -> None:
    rows = speakers(micron, "company:MU", **as_of())
    assert [(row["agent"], row["domain"], row["findings"], row["claims"]) for row in rows] == [
        ("bull", "equity", 2, 2),
        ("bear", "equity", 1, 0),
        ("bear", "macro", 1, 0),
    ]
    rows = speakers(micron, "company:MU", limit=1, **as_of("06-02"))
    assert [(row["agent"], row["domain"], row["findings"]) for row in rows] == [("bear", "equity", 1)]


def test_speakers_of_a_market_include_its_series_once(driver: neo4j.Driver) -> None:
    story = Story().tell(question("w1"), question("w2"))
    for name in ("w1", "w2"):
        story.tell(analysis(f"on {name}", "06-01", f"market:{name}"))
        story.tell(finding(f"f {name}", f"on {name}", "ensemble", "flu", f"market:{name}"))
    story.write(driver)
    (row,) = speakers(driver, "market:w1", **as_of())
    assert (row["agent"], row["domain"], row["findings"]) == ("ensemble", "flu", 2)


def test_peers_are_found_from_both_ends(driver: neo4j.Driver) -> None:
    """The link is stored once, from the smaller key."""
    story = Story().tell(Company(ticker="AMD"), Company(ticker="MU"), Company(ticker="NVDA"), Company(ticker="WDC"))
    story.link("PEER_OF", ("Company", "MU"), ("Company", "AMD"), similarity=0.4)
    story.link("PEER_OF", ("Company", "MU"), ("Company", "WDC"), similarity=0.8)
    story.link("PEER_OF", ("Company", "MU"), ("Company", "NVDA"))
    story.write(driver)
    rows = ask(driver, "peers", subject_id="company:MU", limit=5)
    assert [(row["peer"]["ticker"], row["similarity"]) for row in rows] == [("WDC", 0.8), ("AMD", 0.4), ("NVDA", None)]
    (row,) = ask(driver, "peers", subject_id="company:AMD", limit=5)
    assert row["peer"]["ticker"] == "MU"


def debate(name: str, day: str, **more: Any) -> Debate:
    sides: Row = {"challenger_agent": "bear", "challenged_agent": "bull", "participants": ["bear", "bull"]}
    return Debate(id=name, subject_id="company:MU", topic="Buy or sell?", timestamp=at(day), **sides, **more)


def test_debates_say_who_challenged_whom_and_how_it_ended(micron: neo4j.Driver) -> None:
    story = Story().tell(debate("d1", "06-01", disputed_finding="f1"), known=at("06-01"))
    story.tell(debate("d2", "06-03"), known=at("06-03"))
    story.tell(
        DebateResolution(id="r1", debate_id="d1", winning_position="Hold.", winning_agent="bear"), known=at("06-02")
    )
    story.write(micron)
    rows = ask(micron, "debates_of_subject", subject_id="company:MU", limit=5, **as_of())
    assert [(r["debate"], r["challenger"], r["challenged"], r["total"]) for r in rows] == [
        ("d2", "bear", "bull", 2),
        ("d1", "bear", "bull", 2),
    ]
    assert rows[0]["disputed"] is None
    assert rows[0]["resolutions"] == []
    assert rows[1]["disputed"] == "f1"
    assert rows[1]["resolutions"] == ["r1"]
    (row,) = ask(micron, "debates_of_subject", subject_id="company:MU", limit=5, **as_of("06-01"))
    assert (row["debate"], row["resolutions"]) == ("d1", [])


def test_a_debate_corrected_later_comes_in_addition(driver: neo4j.Driver) -> None:
    story = Story().tell(debate("d1", "06-01"), debate("d2", "06-02"), known=at("06-02"))
    story.correct(debate("d1", "06-05"), known=at("06-10")).write(driver)
    rows = ask(driver, "debates_of_subject", subject_id="company:MU", limit=1, **as_of("06-03"))
    assert [row["debate"] for row in rows] == ["d1", "d2"]


def contradiction(name: str, day: str, **more: Any) -> DataContradiction:
    fields: Row = {
        "data_point": "eps",
        "source_a": "a",
        "source_b": "b",
        "value_a": 1.0,
        "value_b": 2.0,
    }
    return DataContradiction(id=name, subject_id="company:MU", timestamp=at(day), **(fields | more))


def test_contradictions_of_a_subject_newest_first(driver: neo4j.Driver) -> None:
    story = Story()
    for name, day in (("c1", "06-01"), ("c2", "06-03"), ("c3", "06-02")):
        story.tell(contradiction(name, day), known=at(day))
    story.tell(contradiction("other", "06-01").model_copy(update={"subject_id": "company:AMD"}))
    story.correct(contradiction("c1", "06-01", value_a=3.0), known=at("06-10")).write(driver)
    rows = ask(driver, "contradictions_of_subject", subject_id="company:MU", limit=2, **as_of())
    assert [(row["contradiction"], row["total"]) for row in rows] == [("c2", 3), ("c3", 3)]
    rows = ask(driver, "contradictions_of_subject", subject_id="company:MU", limit=1, **as_of("06-02"))
    assert [(row["contradiction"], row["total"]) for row in rows] == [("c1", 2), ("c3", 2)]


def test_open_contradictions_stand_before_resolved_ones_by_priority(driver: neo4j.Driver) -> None:
    """One that was resolved later was perhaps open: it comes in addition."""
    story = Story()
    for name, day, priority in (
        ("c1", "06-01", ContradictionPriority.CRITICAL),
        ("c2", "06-02", ContradictionPriority.LOW),
        ("c3", "06-03", ContradictionPriority.HIGH),
    ):
        computed = DataContradiction.Resolution(
            priority=priority, status=ContradictionStatus.UNCERTAIN, provisional=True, reviewed_at_gate3=False
        )
        story.tell(contradiction(name, day, resolution=computed), known=at(day))
    settled = computed.model_copy(update={"status": ContradictionStatus.RESOLVED, "provisional": False})
    story.late(DataContradiction, "c3", known=at("06-05"), resolution=settled).write(driver)

    def shown(day: str | None, limit: int) -> list[str]:
        rows = ask(driver, "contradictions_of_subject", subject_id="company:MU", limit=limit, **as_of(day))
        return [row["contradiction"] for row in rows]

    assert shown(None, 5) == ["c1", "c2", "c3"]
    assert shown(None, 1) == ["c1"]
    assert shown("06-04", 1) == ["c3", "c1"]


def lesson(name: str, *domains: str, **more: Any) -> Lesson:
    return Lesson(
        id=name,
        source=LessonSource.AI_ANALYSIS,
        category="process",
        insight=name,
        recommended_action="Look twice.",
        affected_domains=list(domains) or None,
        priority=LessonPriority.HIGH,
        **{"state": lesson_state(LessonState.APPROVED), **more},
    )


def lesson_state(state: LessonState, *, reviewed: bool = False) -> Lesson.State:
    applied = state is LessonState.APPLIED
    return Lesson.State(state=state, reviewed=reviewed, applied=applied, effectiveness_tracked=False)


def lessons(
    driver: neo4j.Driver, day: str | None = None, limit: int = 10, active: tuple[str, ...] = ()
) -> list[tuple[str, list[str]]]:
    given: Row = {"subject_id": "company:MU", "active": list(active), "limit": limit, **as_of(day)}
    return [(row["lesson"], row["via"]) for row in ask(driver, "lessons_of_subject", **given)]


def pattern(name: str, status: PatternStatus = PatternStatus.ACTIVE, **more: Any) -> Pattern:
    return Pattern(pattern_id=name, name=name, category="momentum",
                   status=Pattern.Status(status=status, quarantined=False), **more)  # fmt: skip


def test_lessons_come_through_domains_active_patterns_and_decisions(micron: neo4j.Driver) -> None:
    """Each way is named; a pattern that was not active opens none, whatever it is now."""
    story = Story()
    story.tell(lesson("by domain", "macro"), known=at("06-01"))
    story.tell(lesson("elsewhere", "flu"), known=at("06-01"))
    story.tell(lesson("whole words only", "mac"), known=at("06-01"))
    story.tell(lesson("by pattern"), lesson("by candidate"), known=at("06-02"))
    story.tell(pattern("active"), pattern("candidate", PatternStatus.CANDIDATE))
    for which, name in (("active", "by pattern"), ("candidate", "by candidate")):
        story.link("IDENTIFIED_PATTERN", ("Analysis", "first"), ("Pattern", which), known=at("06-02"))
        story.link("AFFECTS_PATTERN", ("Lesson", name), ("Pattern", which), known=at("06-02"))
    story.tell(
        PostMortem(id="pm", decision_id="buy", checkpoint=30, deviation=0.4, trigger_date=at("06-05")),
        known=at("06-05"),
    )
    story.tell(lesson("by decision", "equity", postmortem_id="pm"), known=at("06-06"))
    story.write(micron)
    assert lessons(micron, active=("active", "elsewhere")) == [
        ("by decision", ["decision", "domain"]),
        ("by pattern", ["pattern"]),
        ("by domain", ["domain"]),
    ]
    assert lessons(micron, active=("candidate",), limit=2) == [
        ("by decision", ["decision", "domain"]),
        ("by candidate", ["pattern"]),
    ]
    rows = ask(micron, "lessons_of_subject", subject_id="company:MU", active=["active"], limit=2, **as_of())
    assert [(row["patterns"], row["domains"], row["total"]) for row in rows] == [
        ([], ["equity", "macro"], 3),
        (["active"], ["equity", "macro"], 3),
    ]
    assert lessons(micron, "06-02", active=("active",)) == [("by pattern", ["pattern"]), ("by domain", ["domain"])]
    assert lessons(micron, "06-02") == [("by domain", ["domain"])]
    assert lessons(micron, "05-31") == []


def test_lessons_are_those_that_agents_see(micron: neo4j.Driver) -> None:
    """One whose state changed after the moment is given to the caller to judge, in addition to the limit."""
    story = Story()
    for state in LessonState:
        for reviewed in (False, True):
            one = lesson(f"{state} {reviewed}", "macro", state=lesson_state(state, reviewed=reviewed))
            story.tell(one, known=at("06-01"))
    story.tell(lesson("stateless", "macro", state=None), known=at("06-01"))
    story.tell(lesson("retired", "macro"), known=at("06-01"))
    story.late(Lesson, "retired", state=lesson_state(LessonState.RETIRED), known=at("06-09"))
    story.write(micron)
    seen = ["applied False", "applied True", "approved False", "approved True", "pending_gate6 True"]
    assert [name for name, _ in lessons(micron)] == seen
    assert [name for name, _ in lessons(micron, "06-05", limit=1)] == ["retired", "applied False"]


@pytest.mark.parametrize("clock", ["known", "recorded"])
def test_the_newest_lessons_stand_first_by_the_clock(micron: neo4j.Driver, clock: str) -> None:
    """By when they could be known, in whatever order they were loaded; on the recorded clock by when they were."""
    story = Story()
    for name, known in (("second", "06-02"), ("third", "06-03"), ("first", "06-01")):
        story.tell(lesson(name, "macro"), known=at(known), recorded=at("06-05"))
    story.tell(lesson("third", "macro"), known=at("06-02"), recorded=at("06-09")).write(micron)
    given: Row = {"subject_id": "company:MU", "active": [], "limit": 2, **as_of("06-06", clock=clock)}
    rows = ask(micron, "lessons_of_subject", **given)
    found = [row["lesson"] for row in rows]
    assert found == (["second", "third"] if clock == "known" else ["first", "third"])
    assert [row["total"] for row in rows] == [3, 3]


def test_a_lesson_whose_domains_changed_later_is_given_to_the_caller_to_judge(micron: neo4j.Driver) -> None:
    """Before the correction it affected the subject's domain; the graph no longer says so."""
    story = Story().tell(lesson("moved", "macro"), lesson("kept", "macro"), known=at("06-02"))
    story.correct(lesson("moved", "flu"), known=at("06-10")).write(micron)
    assert lessons(micron) == [("kept", ["domain"])]
    given: Row = {"subject_id": "company:MU", "active": [], "limit": 1, **as_of("06-05")}
    rows = ask(micron, "lessons_of_subject", **given)
    assert [(row["lesson"], row["via"]) for row in rows] == [("moved", []), ("kept", ["domain"])]
    assert [row["total"] for row in rows] == [1, 1], (
        "of those that were corrected since, the caller says whether they count"
    )
    assert rows[0]["newness"] == rows[1]["newness"], "known at the same moment"


@pytest.mark.parametrize(
    "hostile", ['a" OR "macro', "back\\slash", 'both\\" OR "macro', "*", "macro OR flu", "(", "AND"]
)
def test_a_hostile_domain_is_one_word_and_no_syntax(driver: neo4j.Driver, hostile: str) -> None:
    """Domains reach the full-text language inside quotes."""
    story = Story().tell(Company(ticker="MU"), analysis("a", "06-01"), finding("f", "a", domain=hostile))
    story.tell(lesson("same", hostile), lesson("macro", "macro"), lesson("flu", "flu")).write(driver)
    assert lessons(driver) == [("same", ["domain"])]


def test_similar_analyses_follow_the_stored_edges_of_this_one_only(micron: neo4j.Driver) -> None:
    story = Story().tell(Company(ticker="AMD"), analysis("amd", "06-01", "company:AMD"))
    story.write(micron)
    story.similar("Analysis", "second", "amd", score=0.7, rank=2, model_version="m1")
    story.similar("Analysis", "second", "first", score=0.9, rank=1, model_version="m1")
    story.similar("Analysis", "amd", "first", score=0.8, rank=1, model_version="m1")
    story.write(micron)
    rows = ask(micron, "similar_analyses", analysis_id="second", limit=10)
    shown = [(r["analysis"]["id"], r["subject"]["ticker"], r["score"], r["rank"], r["model_version"]) for r in rows]
    assert shown == [("first", "MU", 0.9, 1, "m1"), ("amd", "AMD", 0.7, 2, "m1")]
    assert [[one["id"] for one in row["decisions"]] for row in rows] == [["buy"], []]
    assert ask(micron, "similar_analyses", analysis_id="first", limit=10) == []


@pytest.fixture
def names(driver: neo4j.Driver) -> neo4j.Driver:
    story = Story()
    for ticker, name in (
        ("MU", "Micron Technology"),
        ("MSFT", "Microsoft"),
        ("NVDA", "NVIDIA"),
        ("BRK.B", "Berkshire"),
    ):
        story.tell(Company(ticker=ticker, profile=Company.Profile(name=name)))
    story.tell(Market(market_id="flu-ca", question="Will admissions in California rise?"))
    story.write(driver)
    return driver


@pytest.mark.parametrize(
    ("typed", "best"),
    [
        ("micron", "company:MU"),
        ("Micorn", "company:MU"),
        ("company:MUU", "company:MU"),
        ("Micro", "company:MSFT"),
        ("NVDIA", "company:NVDA"),
        ("nvidia corp", "company:NVDA"),
        ("brk", "company:BRK.B"),
        ("market:flu-c", "market:flu-ca"),
        ("californa", "market:flu-ca"),
    ],
)
def test_nearest_names_forgive_misspelling(names: neo4j.Driver, typed: str, best: str) -> None:
    rows = ask(names, "nearest_names", search=names_search(typed), limit=3)
    assert best in [row["subject_id"] for row in rows]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)


def test_of_very_many_equal_names_the_first_by_id_are_chosen(driver: neo4j.Driver) -> None:
    """Whatever the order in which they were stored: the last stored are the first by id."""
    story = Story()
    for nth in reversed(range(600)):
        story.tell(Company(ticker=f"Z{nth:03}", profile=Company.Profile(name="Equal Holding")))
    story.write(driver)
    rows = ask(driver, "nearest_names", search=names_search("Equal Holding"), limit=3)
    assert [row["subject_id"] for row in rows] == ["company:Z000", "company:Z001", "company:Z002"]


def test_nearest_names_say_the_name_and_put_the_exact_one_first(names: neo4j.Driver) -> None:
    row, *_ = ask(names, "nearest_names", search=names_search("microsoft"), limit=3)
    assert (row["subject_id"], row["name"]) == ("company:MSFT", "Microsoft")
    (row,) = ask(names, "nearest_names", search=names_search("California"), limit=3)
    assert row["name"] == "Will admissions in California rise?"


@pytest.mark.parametrize(
    "typed", ["", "   ", "!!!", '"', "a AND (", "NOT", "field:x", "[a TO b]", "~*?", "\\", "_", "x" * 5000, "é " * 500]
)
def test_nothing_that_people_type_breaks_the_search(names: neo4j.Driver, typed: str) -> None:
    assert isinstance(ask(names, "nearest_names", search=names_search(typed), limit=3), list)


def test_an_empty_search_finds_nothing(names: neo4j.Driver) -> None:
    assert ask(names, "nearest_names", search=names_search("?!"), limit=3) == []
