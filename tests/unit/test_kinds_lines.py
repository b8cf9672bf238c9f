"""Bad input is refused with the field and a reason; strange input is kept verbatim."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.journal.errors import BadInput
from imem.journal.events.canonical import canonical_json
from imem.kg.kinds.catalog import KINDS, from_graph, implied_links
from imem.kg.kinds.metrics import metric_of
from imem.kg.load_format.lines import (
    CorrectLine,
    LinkLine,
    RecordLine,
    correction_of,
    groups_of,
    link_of,
    parse_line,
    record_of,
)
from imem.kg.model import Agent, AgentCredibility, AgentKind, Analysis, Company, Debate, Decision, Finding, Market, Turn
from tests import strategies as given_

KNOWN = "2026-06-01T10:27:49Z"
FINDING: dict[str, Any] = {
    "id": "desk:MU-1/news",
    "analysis_id": "desk:MU-1",
    "subject_id": "company:MU",
    "agent": "news",
    "domain": "equity_direction",
    "statement": "Demand rises.",
}
MARKET: dict[str, Any] = {"market_id": "q", "question": "?"}
DEBATE: dict[str, Any] = {
    "id": "d",
    "subject_id": "company:MU",
    "topic": "t",
    "challenger_agent": "bear",
    "challenged_agent": "bull",
    "participants": ["bear", "bull"],
    "timestamp": KNOWN,
}
CONTRADICTION: dict[str, Any] = {
    "id": "c",
    "subject_id": "company:MU",
    "data_point": "eps",
    "source_a": "a",
    "source_b": "b",
    "value_a": 1,
    "value_b": 2,
    "timestamp": KNOWN,
}
ONE_DOCUMENT: dict[str, Any] = {**CONTRADICTION, "source_b": "a", "document_a": "d", "document_b": "d"}
POINT: dict[str, Any] = {
    "subject_id": "company:MU",
    "metric": "revenue",
    "period_start": "2020-01-01T00:00:00Z",
    "period_end": "2020-12-31T00:00:00Z",
    "unit": "USD",
    "value": 9.5e9,
    "source": "SEC_EDGAR",
    "document": "0000723125-21-000011",
    "filed_at": "2021-02-01T12:00:00Z",
}
OUTCOME: dict[str, Any] = {
    "id": "o",
    "subject_id": "company:MU",
    "metric": "return_1s",
    "target_at": KNOWN,
    "actual": 0.1,
    "observed_at": KNOWN,
    "vintage": 0,
}


def line(**members: Any) -> bytes:
    return json.dumps({"known_at": KNOWN, **members}).encode()


def finding(**changed: Any) -> bytes:
    return line(record="Finding", core={**FINDING, **changed})


def link(type_: str, start: dict[str, Any], end: dict[str, Any], **members: Any) -> bytes:
    return line(link=type_, **{"from": start, "to": end}, **members)


def core_of(raw: bytes) -> dict[str, Any]:
    stated = parse_line(raw)
    assert isinstance(stated, RecordLine)
    assert stated.core is not None
    return stated.core


def refused(raw: bytes, **options: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_line(raw, **options)
    return caught.value


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "line", "no JSON"),
        (b'{"record": "Finding"', "line", "at character 20"),
        (b"\xff\xfe{}", "line", "byte 0"),
        (b'{"record": "Fin\xc3', "line", "not UTF-8: byte 15"),
        (b"[1]", "line", "must be an object"),
        (b'"text"', "line", "must be an object"),
        (b"{}", "line", "must have one of"),
        (line(record="Finding", link="CITES"), "line", "must have one of"),
        (b"[" * 100_000, "line", "nested deeper"),
        (line(record="Finding", core={**FINDING, "distribution": nested(15)}), "line", "nested deeper than 16"),
        (b'{"record": "Agent", "record": "Human"}', "record", "stands twice"),
        (finding(distribution={"a": 1}).replace(b'{"a": 1}', b'{"a": 1, "a": 2}'), "a", "stands twice"),
        (finding(value=7).replace(b"7", b"7" * 5000), "line", "too many digits"),
        (b'{"x": "' + b"y" * (1 << 20) + b'"}', "line", "longer than 1,048,576 bytes"),
    ],
)
def test_a_line_that_cannot_be_read(raw: bytes, field: str, reason: str) -> None:
    error = refused(raw)

    assert (error.field, error.retryable) == (field, False)
    assert reason in error.reason


@pytest.mark.parametrize(
    ("changed", "field", "reason"),
    [
        ({"id": ""}, "core.id", "must not be empty"),
        ({"id": "x" * 201}, "core.id", "longer than 200"),
        ({"id": 7}, "core.id", "must be a string"),
        ({"id": None}, "core.id", "must be a string"),
        ({"agent": "a" * 91}, "core.agent", "longer than 90"),
        ({"agent": "a/b"}, "core.agent", "holds a /"),
        ({"domain": "a/b"}, "core.domain", "holds a /"),
        ({"subject_id": "MU"}, "core.subject_id", "company:<ticker>"),
        ({"subject_id": "company:"}, "core.subject_id", "company:<ticker>"),
        ({"subject_id": "company:" + "x" * 181}, "core.subject_id", "company:<ticker>"),
        ({"statement": "x" * 2001}, "core.statement", "longer than 2,000"),
        ({"unit": "x" * 201}, "core.unit", "longer than 200"),
        ({"unit": "a\0b"}, "core.unit", "NUL"),
        ({"unit": "a\ud800b"}, "core.unit", "surrogate"),
        ({"confidence": 1.0000001}, "core.confidence", "between 0 and 1"),
        ({"confidence": -0.1}, "core.confidence", "between 0 and 1"),
        ({"confidence": "0.5"}, "core.confidence", "must be a number"),
        ({"confidence": True}, "core.confidence", "must be a number"),
        ({"confidence": float("nan")}, "core.confidence", "between 0 and 1|finite"),
        ({"value": float("inf")}, "core.value", "finite"),
        ({"value": 10**400}, "core.value", "must be a number"),
        ({"key_drivers": "one"}, "core.key_drivers", "must be a list"),
        ({"key_drivers": ["x"] * 51}, "core.key_drivers", "more than 50"),
        ({"key_drivers": ["x", "y" * 201]}, "core.key_drivers.1", "longer than 200"),
        ({"key_drivers": ["x", None]}, "core.key_drivers.1", "must be a string"),
        ({"direction": "up"}, "core.direction", "'positive', 'negative' or 'neutral'"),
        ({"target_at": "2026-06-02T20:00:00"}, "core.target_at", "zone"),
        ({"target_at": "2026-06-02"}, "core.target_at", "zone"),
        ({"target_at": "2026-W01-1T10:27:49Z"}, "core.target_at", "zone"),
        ({"target_at": "2026-02-30T20:00:00Z"}, "core.target_at", "does not exist"),
        ({"target_at": "0001-01-01T00:00:00+14:00"}, "core.target_at", "outside the years 1800 to 2299"),
        ({"target_at": "2026-06-02T20:00:00.1234567Z"}, "core.target_at", "zone"),
        ({"target_at": 1780000000}, "core.target_at", "zone"),
        ({"distribution": [1]}, "core.distribution", "must be an object"),
        ({"distribution": "[1]"}, "core.distribution", "must be an object"),
        ({"distribution": "{"}, "core.distribution", "no JSON"),
        ({"distribution": '{"a": 1, "a": 2}'}, "core.distribution.a", "stands twice"),
        ({"distribution": {"a": float("nan")}}, "core.distribution", "not finite"),
        ({"distribution": '{"a": NaN}'}, "core.distribution", "not finite"),
        ({"distribution": {"a": 2**63}}, "core.distribution", "64 bits"),
        ({"distribution": {"a": "\0"}}, "core.distribution", "NUL"),
        ({"distribution": {"\ud800": 1}}, "core.distribution", "surrogate"),
        ({"distribution": {"a": "x" * 16_384}}, "core.distribution", "16,384 bytes"),
        ({"distribution": json.dumps(nested(17))}, "core.distribution", "nested deeper"),
        ({"confidense": 0.5}, "core.confidense", "no field of Finding"),
        ({"subject_id": "company:MU", "known_at": KNOWN}, "core.known_at", "no field of Finding"),
        ({"metric": "mood"}, "core.metric", "no registered metric"),
        ({"metric": "up\n"}, "core.metric", "no registered metric"),
        ({"metric": "up", "probability": 0.5}, "core.target_at", "needed beside a metric"),
        ({"metric": "up", "target_at": KNOWN, "direction": "positive"}, "core.probability", "binary"),
        ({"metric": "return_1s", "target_at": KNOWN, "value": 1}, "core.direction", "direction"),
        ({"metric": "close", "target_at": KNOWN, "probability": 1}, "core.value", "value"),
    ],
)
def test_a_field_that_is_wrong(changed: dict[str, Any], field: str, reason: str) -> None:
    error = refused(finding(**changed))

    assert error.field == field
    assert re.search(reason, error.reason), error.reason
    assert error.reason.endswith((".", "?"))


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (line(record="Findng", core={}), "record", "no kind of record"),
        (line(record=7), "record", "name of a kind"),
        (line(record="Finding", core=FINDING, note="x"), "note", "no field of a record line"),
        (line(record="Finding", core=[]), "core", "must be an object"),
        (line(record="Finding"), "core", "or else the key"),
        (line(record="Finding", key="other", core=FINDING), "key", "not the id"),
        (line(record="Finding", core=FINDING, groups=[]), "groups", "must be an object"),
        (line(record="Finding", core=FINDING, groups={"outcome": {}}), "groups.outcome", "no group of Finding"),
        (line(record="Company", core={"ticker": "x" * 181}), "core.ticker", "longer than 180"),
        (line(record="Company", core={"ticker": "MU", "subject_id": "company:NVDA"}), "core.subject_id", "ticker"),
        (line(record="Market", core={**MARKET, "subject_id": "company:q"}), "core.subject_id", "this market's id"),
        (line(record="Company", core={"ticker": "MU", "profile": {}}), "core.profile", 'belongs under "groups"'),
        (line(record="Company", core={"ticker": "MU"}, groups={"counters": {}}), "groups.counters", "never written"),
        (line(record="Company", core={"ticker": "MU"}, groups={"profile": 1}), "groups.profile", "must be an object"),
        (line(record="Agent", key="a", groups={"profile": {"specialization": "x"}}), "groups.profile.kind", "required"),
        (line(record="Agent", key="a/b", groups={"profile": {}}), "key", "holds a /"),
        (line(record="Agent", key="a"), "groups", "required where no core"),
        (line(record="Agent", key="a", groups={}), "groups", "required where no core"),
        (line(record="Agent", key="a", groups={"profile": {}}, body="x"), "body", "with the core"),
        (line(record="Agent", core={"name": "a"}, body=7), "body", "must be a string"),
        (line(record="Agent", core={"name": "a"}, body="a\0"), "body", "NUL"),
        (line(record="Agent", core={"name": "a"}, body="\ud800"), "body", "surrogate"),
        (line(record="Agent", core={"name": "a"}, body="é" * 32_769), "body", "65,536 bytes"),
        (line(record="Agent", core={"name": "a"}, turns=[]), "turns", "belong to a Debate"),
        (line(record="Debate", core=DEBATE, turns={}), "turns", "must be a list"),
        (line(record="Debate", core=DEBATE, turns=[{"number": 1, "speaker": "a"}]), "turns.0.text", "required"),
        (
            line(record="Debate", core=DEBATE, turns=[{"number": 1, "speaker": "a", "text": "x"}] * 2),
            "turns.1.number",
            "earlier turn",
        ),
        (line(record="Debate", core={**DEBATE, "participants": ["a/b"]}), "core.participants.0", "holds a /"),
        (line(record="Outcome", core={**OUTCOME, "vintage": -1}), "core.vintage", "at least 0"),
        (line(record="Outcome", core={**OUTCOME, "vintage": 1.0}), "core.vintage", "whole number"),
        (line(record="Outcome", core={**OUTCOME, "vintage": 2**63}), "core.vintage", "at most"),
        (line(record="Outcome", core={**OUTCOME, "metric": "mood"}), "core.metric", "no registered metric"),
        (line(record="Outcome", core={**OUTCOME, "metric": "up", "unit": None, "actual": 7}), "core.actual", "0 or 1"),
        (line(record="DataContradiction", core={**CONTRADICTION, "source_b": "a"}), "core.source_b", "document_a"),
        (line(record="DataContradiction", core=ONE_DOCUMENT), "core.document_b", "at odds"),
        (line(record="DataContradiction", core={**CONTRADICTION, "priority": "HIGH"}), "core.priority", "no field"),
        (line(record="DataContradiction", key="c", groups={"resolution": {}}), "groups.resolution", "credibility"),
        (line(record="DataPoint", core={**POINT, "period_end": "2019-01-01T00:00:00Z"}), "core.period_end", "before"),
        (line(record="DataPoint", core={**POINT, "period_end": "2021-01-01T00:00:00"}), "core.period_end", "zone"),
        (line(record="DataPoint", core={**POINT, "filed_at": "2021-02-01"}), "core.filed_at", "with its zone"),
        (line(record="DataPoint", core={**POINT, "value": float("nan")}), "core.value", "finite"),
        (line(record="DataPoint", core={**POINT, "value": float("inf")}), "core.value", "finite"),
        (line(record="DataPoint", core={**POINT, "unit": ""}), "core.unit", "must not be empty"),
        (line(record="DataPoint", core={**POINT, "id": "mine"}), "core.id", "must follow from"),
        (line(record="Pattern", key="p", groups={"status": {}}), "groups.status", "patterns subsystem"),
        (line(record="AgentCredibility", core={}), "record", "only the credibility subsystem"),
        (line(record="Decision", key="d", groups={"outcome": {"outcome": "success"}}), "groups.outcome", "credibility"),
        (line(correct="Finding", core=FINDING), "reason", "is required"),
        (line(correct="Finding", core=FINDING, reason="  "), "reason", "must say why"),
        (line(correct="Finding", core={}, reason="r"), "core.id", "required"),
        (line(correct="Finding", reason="r"), "core", "is required"),
        (line(correct="Finding", core=FINDING, reason="r", groups={}), "groups", "no field of a correction"),
        (line(correct="PostMortem", core={}, reason="r"), "correct", "postmortem subsystem"),
        (line(record="Finding", core=FINDING, occurred_at="2026-06-01T10:00:00"), "occurred_at", "zone"),
    ],
)  # fmt: skip
def test_a_record_that_is_wrong(raw: bytes, field: str, reason: str) -> None:
    error = refused(raw)

    assert error.field == field
    assert reason in error.reason


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (link("PERFORM", {"Agent": "a"}, {"Analysis": "b"}), "link", "no kind of link"),
        (link("PERFORMED", {"Agent": "a"}, {"Analysis": "b"}, note=1), "note", "no field of a link line"),
        (link("PERFORMED", {"Human": "a"}, {"Analysis": "b"}), "to", "from Agent to Analysis"),
        (link("PERFORMED", {"Agent": "a", "Human": "b"}, {"Analysis": "b"}), "from", "object of one member"),
        (link("PERFORMED", {"Agnt": "a"}, {"Analysis": "b"}), "from", "'Agnt' is no kind"),
        (link("PERFORMED", {"Agent": "a/b"}, {"Analysis": "b"}), "from.Agent", "holds a /"),
        (link("PERFORMED", {"Agent": "a"}, {"Analysis": "b" * 201}), "to.Analysis", "longer than 200"),
        (link("PERFORMED", {"Agent": "a"}, {"Analysis": "b"}, props={"role": 7}), "props.role", "must be a string"),
        (link("PERFORMED", {"Agent": "a"}, {"Analysis": "b"}, props={"at": KNOWN}), "props.at", "no field of PERF"),
        (link("CITES", {"Finding": "a"}, {"Finding": "b"}), "props.at", "required"),
        (link("CITES", {"Finding": "a"}, {"Finding": "a"}, props={"at": KNOWN}), "to", "starts from"),
        (link("SUPERSEDES", {"Debate": "a"}, {"Decision": "b"}), "to", "from Debate or Decision"),
        (link("STATED", {"Agent": "a"}, {"Finding": "b"}), "link", "written with the Finding"),
        (link("OUTCOME_OF", {"Outcome": "a"}, {"Company": "b"}), "link", "written with the Outcome"),
        (link("SETTLED_BY", {"Finding": "a"}, {"Outcome": "b"}), "link", "computed"),
        (link("SIMILAR_TO", {"Analysis": "a"}, {"Analysis": "b"}), "link", "computed"),
        (link("OVERRODE", {"Human": "a"}, {"DebateResolution": "b"}), "link", "only the gates subsystem"),
    ],
)  # fmt: skip
def test_a_link_that_is_wrong(raw: bytes, field: str, reason: str) -> None:
    error = refused(raw)

    assert error.field == field
    assert reason in error.reason


def test_history_must_say_when_it_was_known() -> None:
    raw = json.dumps({"record": "Finding", "core": FINDING}).encode()

    assert refused(raw).field == "known_at"
    assert parse_line(raw, needs_known_at=False).known_at is None
    assert refused(line(record="Finding", core=FINDING).replace(b"49Z", b"49")).field == "known_at"


def test_the_nearest_name_is_suggested() -> None:
    assert refused(finding(confidense=0.5)).mend == "Did you mean confidence?"
    assert refused(line(record="Findng", core={})).mend == "Did you mean Finding?"
    assert refused(link("PERFORM", {"Agent": "a"}, {"Analysis": "b"})).mend == "Did you mean PERFORMED?"


def test_a_message_is_bounded_and_printable_whatever_was_sent() -> None:
    for name in ("x" * 100_000, "\ud800", "a\x1b[31mb", "a\nb"):
        for raw in (finding(**{name: 1}), line(record=name), line(record="Finding", **{name: 1})):
            text = str(refused(raw))
            assert len(text) < 400
            assert text.isprintable()


def test_governed_kinds_and_groups_are_open_to_their_subsystem_alone() -> None:
    for info in KINDS.values():
        governed = [(name, group.governed) for name, group in info.groups.items() if group.governed]
        for name, owner in governed:
            raw = line(record=info.label, key="k", groups={name: {}})
            for writer in (None, "someone"):
                assert f"only the {owner} subsystem" in refused(raw, writer=writer).reason
            try:
                parse_line(raw, writer=owner)
            except BadInput as error:
                assert error.field.startswith(f"groups.{name}.")  # noqa: PT017  a required field, the group is open
        if info.governed:
            raw = line(record=info.label, core={})
            assert refused(raw).field == "record"
            assert refused(raw, writer=info.governed).field.startswith("core.")


def test_python_calls_pass_the_same_checks() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    forged = Finding.model_construct(**{**Finding(**FINDING).__dict__, "confidence": 2.0})
    with pytest.raises(BadInput, match=r"core\.confidence"):
        record_of(forged)
    with pytest.raises(BadInput, match="credibility subsystem"):
        record_of(Analysis(id="a", subject_id="company:MU", date=now, kind="k", outcome=Analysis.Outcome(outcome=1)))
    with pytest.raises(BadInput, match="only the credibility"):
        record_of(AgentCredibility(agent_id="a", domain="b"))
    with pytest.raises(BadInput, match="never written"):
        record_of(Company(ticker="MU", counters=Company.Counters(analyzed_count=3)))
    with pytest.raises(BadInput, match=r"groups\.profile"):
        groups_of(
            Agent, "a", {"profile": Agent.Profile.model_construct(specialization="x" * 201, kind=AgentKind.MODEL)}
        )
    with pytest.raises(BadInput, match="belong to a Debate"):
        record_of(Agent(name="a"), turns=[Turn(number=1, speaker="a", text="x")])
    with pytest.raises(BadInput, match="known_at: must name its zone"):
        record_of(Agent(name="a"), known_at=datetime(2026, 6, 1))  # noqa: DTZ001  naive is the point
    with pytest.raises(BadInput, match="must say why"):
        correction_of(Agent(name="a"), " ")


def test_late_groups_and_corrections() -> None:
    late = parse_line(
        line(record="Market", key="q", groups={"resolution": {"resolved_at": KNOWN, "resolution": "yes"}})
    )
    assert isinstance(late, RecordLine)
    assert (late.core, late.key) == (None, "q")
    resolution = Market.Resolution(resolved_at=datetime(2026, 6, 1, 10, 27, 49, tzinfo=UTC), resolution="yes")
    assert groups_of(Market, "q", {"resolution": resolution}, known_at=late.known_at) == late

    correction = parse_line(line(correct="Finding", core=FINDING, reason="typo"))
    assert isinstance(correction, CorrectLine)
    assert correction_of(Finding(**FINDING), "typo", known_at=correction.known_at) == correction


def test_turns_come_in_the_order_of_their_numbers() -> None:
    turns = [Turn(number=2, speaker="bull", text="b"), Turn(number=1, speaker="bear", text="a", cites=("f",))]
    stated = record_of(Debate.model_validate(DEBATE), turns=turns)

    assert [turn["number"] for turn in stated.turns] == [1, 2]
    assert stated.turns[0] == {"number": 1, "speaker": "bear", "text": "a", "cites": ["f"]}


def test_times_are_kept_in_utc_to_the_microsecond() -> None:
    texts = ["2026-06-01T12:27:49.5+02:00", "2026-06-01t10:27:49.500000z", "2026-06-01T10:27:49.500000000Z"]

    assert {core_of(finding(target_at=text))["target_at"] for text in texts} == {"2026-06-01T10:27:49.500000Z"}


def test_minus_zero_and_whole_numbers_have_one_form() -> None:
    assert canonical_json(core_of(finding(value=-0.0))) == canonical_json(core_of(finding(value=0)))
    one = [core_of(finding(distribution=stated))["distribution"] for stated in ({"a": -0.0}, '{"a":  0.0}')]
    assert one == ['{"a":0.0}', '{"a":0.0}']


def test_a_byte_order_mark_and_a_line_end_are_passed_over() -> None:
    assert parse_line(b"\xef\xbb\xbf" + finding() + b"\r\n") == parse_line(finding())


def test_an_undirected_link_starts_from_its_smaller_key() -> None:
    there = parse_line(link("PEER_OF", {"Company": "NVDA"}, {"Company": "AMD"}))
    back = parse_line(link("PEER_OF", {"Company": "AMD"}, {"Company": "NVDA"}))

    assert there == back
    assert isinstance(there, LinkLine)
    assert (there.from_key, there.to_key) == ("AMD", "NVDA")


def test_links_take_models_for_their_ends() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    analysis = Analysis(id="a", subject_id="company:MU", date=now, kind="k")
    stated = link_of("PERFORMED", Agent(name="x"), analysis, {"role": "lead"}, known_at=now)

    assert stated == parse_line(
        link("PERFORMED", {"Agent": "x"}, {"Analysis": "a"}, props={"role": "lead"}, known_at=now.isoformat())
    )


def test_a_record_implies_the_links_that_its_fields_name() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    decision = Decision(
        id="d", analysis_id="a", subject_id="company:MU", type="t", agents_involved=("x", "y", "x"), decided_at=now
    )
    stated = record_of(decision)
    debate = record_of(Debate.model_validate(DEBATE))
    archive = {
        "id": "p/tier2", "pattern_id": "p", "tier": 2, "path": "x", "created_date": KNOWN, "size_mb": 1.0,
        "retention_expiry": KNOWN, "content_types": ["metadata"],
    }  # fmt: skip

    assert [tuple(implied) for implied in implied_links("Decision", stated.core or {})] == [
        ("LED_TO", "Analysis", "a", "Decision", "d", {}),
        ("MADE", "Agent", "x", "Decision", "d", {}),
        ("MADE", "Agent", "y", "Decision", "d", {}),
    ]
    assert [tuple(implied) for implied in implied_links("Debate", debate.core or {})] == [
        ("ABOUT", "Debate", "d", "Company", "MU", {}),
        ("CHALLENGED_BY", "Debate", "d", "Agent", "bear", {}),
        ("CHALLENGES", "Debate", "d", "Agent", "bull", {}),
    ]
    assert [tuple(implied) for implied in implied_links("ArchiveDirectory", archive)] == [
        ("HAS_ARCHIVE", "Pattern", "p", "ArchiveDirectory", "p/tier2", {"tier": 2})
    ]
    assert [
        implied.type for implied in implied_links("AgentCredibility", {"id": "a/b", "agent_id": "a", "domain": "b"})
    ] == [
        "HAS_CREDIBILITY",
        "IN_DOMAIN",
    ]


@pytest.mark.spec("GR-11")
@pytest.mark.parametrize("kind", given_.LOADABLE_KINDS)
@pytest.mark.longer
def test_hostile_strings_are_kept_verbatim(kind: str) -> None:
    """Whatever a line states in a string comes back from the graph's form as it was."""

    @given_.examples(5, 15)
    @given(st.sampled_from(given_.HOSTILE), given_.cores_of(kind, full=True), st.data())
    def check(hostile: str, core: dict[str, Any], data: st.DataObject) -> None:
        info = KINDS[kind]
        metric = metric_of(core["metric"]) if "metric" in core else None
        fixed = {"metric"} if metric is None or metric.unit is None else {"metric", "unit"}
        strings = {name for name, prop in info.core.properties.items() if prop.type.name in {"string", "text", "long"}}
        free = strings - fixed
        core.update(dict.fromkeys(free, hostile))
        stated = line(record=kind, core=core, known_at=data.draw(given_.known_after(kind, core)))
        model = from_graph(kind, KINDS[kind].part("core").to_graph(core_of(stated)))
        assert {name: getattr(model, name) for name in free} == dict.fromkeys(free, hostile)

    check()


@pytest.mark.spec("GR-11")
@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=300))
def test_any_string_is_kept_or_refused_by_name(text: str) -> None:
    for raw, field in ((finding(statement=text), "core.statement"), (finding(id=text), "core.id")):
        try:
            core = core_of(raw)
        except BadInput as error:
            assert error.field == field  # noqa: PT017  either way is right
            assert not text or len(text) > 200 or "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
        else:
            assert core[field.removeprefix("core.")] == text


@pytest.mark.spec("GR-11")
def test_a_megabyte_is_refused_by_name() -> None:
    big = "x" * 1_000_000

    assert refused(finding(statement=big)).field == "core.statement"
    assert refused(finding(id=big)).field == "core.id"
    assert refused(link("PERFORMED", {"Agent": big}, {"Analysis": "b"})).field == "from.Agent"
    assert refused(line(record="Agent", core={"name": "a"}, body=big)).field == "body"


MEMBERS = st.sampled_from(["record", "link", "correct", "core", "groups", "from", "to", "Agent", "known_at", "turns"])
SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.sampled_from(sorted(KINDS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_raise_anything_but_bad_input(raw: bytes) -> None:
    try:
        parse_line(raw)
    except BadInput as error:
        assert error.field  # noqa: PT017  the point is that nothing else is raised


def test_a_data_point_is_named_by_what_it_states_and_not_by_the_value() -> None:
    """Another value of the same document is another core under the same key, which the journal refuses."""
    first, other = (parse_line(line(record="DataPoint", core={**POINT, "value": value})) for value in (9.5e9, 9.6e9))
    elsewhere = parse_line(line(record="DataPoint", core={**POINT, "period_start": "2020-01-02T00:00:00Z"}))
    assert isinstance(first, RecordLine)
    assert isinstance(other, RecordLine)
    assert isinstance(elsewhere, RecordLine)
    assert first.key == other.key != elsewhere.key
    assert first.core != other.core
    same = parse_line(line(record="DataPoint", core={**POINT, "period_end": "2020-12-31T01:00:00+01:00"}))
    assert same == first, "the moment counts, not how it is written"
