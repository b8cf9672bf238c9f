"""``Memory``: recording from Python, with and without await."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import neo4j
import pytest

from imem import Memory
from imem.blocking.memory import SyncMemory
from imem.ingest.recorder import prepare, record
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, CoreConflict, PermissionDenied
from imem.journal.events.entry import AppendStatus, Receipt
from imem.journal.settings import Role
from imem.kg.kinds.base import Kind
from imem.kg.kinds.enums import OverrideReason, Regime
from imem.kg.load_format.lines import record_of
from imem.kg.model import (
    Agent,
    AgentKind,
    Analysis,
    Company,
    CredibilityPin,
    DataContradiction,
    DataPoint,
    Debate,
    DebateResolution,
    DebateState,
    Decision,
    Finding,
    Human,
    HumanOverride,
    Market,
    Outcome,
    RegimeReading,
    Turn,
)
from imem.services.stores import Stores
from tests.imem.ingest.conftest import LoadHarness
from tests.imem.ingest.test_clock_set_back import fast

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def analysis(key: str = "a", **values: Any) -> Analysis:
    return Analysis(id=key, subject_id="company:MU", date=NOW, kind="equity_research", **values)


def finding(agent: str = "ann", key: str = "f", **values: Any) -> Finding:
    return Finding(
        id=key,
        analysis_id="a",
        subject_id="company:MU",
        agent=agent,
        domain="equity_direction",
        **{"statement": "It rises.", **values},
    )


def decision(*agents: str, key: str = "d") -> Decision:
    return Decision(id=key, subject_id="company:MU", type="portfolio", agents_involved=agents, decided_at=NOW)


def debate(challenger: str = "ann", **values: Any) -> Debate:
    return Debate(
        id="debate",
        subject_id="company:MU",
        topic="Does it rise?",
        challenger_agent=challenger,
        challenged_agent="bob",
        participants=("ann", "bob"),
        timestamp=NOW,
        **values,
    )


def outcome(key: str = "o") -> Outcome:
    return Outcome(
        id=key, subject_id="company:MU", metric="return_1s", target_at=NOW, actual=0.1, observed_at=NOW, vintage=0
    )


def contradiction() -> DataContradiction:
    return DataContradiction(
        id="c",
        subject_id="company:MU",
        data_point="revenue",
        source_a="10-K",
        source_b="press",
        value_a=1.0,
        value_b=2.0,
        timestamp=NOW,
    )


def data_point() -> DataPoint:
    period_end = datetime(2020, 12, 31, tzinfo=UTC)
    return DataPoint(
        subject_id="company:MU", metric="revenue", period_end=period_end, unit="USD", value=1.0, source="SEC_EDGAR",
        document="10-K", filed_at=NOW,
    )  # fmt: skip


def profile(kind: AgentKind = AgentKind.MODEL) -> Agent.Profile:
    return Agent.Profile(specialization="equities", kind=kind)


async def test_every_method_writes_one_event_and_repeats_are_harmless(harness: LoadHarness) -> None:
    """Each method returns a receipt of a committed event, and the same call again names that very event."""

    async def everything(memory: Memory) -> list[Receipt]:
        return [
            await memory.record_company(Company(ticker="MU", profile=Company.Profile(name="Micron"))),
            await memory.record_market(Market(market_id="q", question="Will it rain?")),
            await memory.record_agent(Agent(name="ann", profile=profile())),
            await memory.record_analysis(analysis(), body="Long. " * 1000),
            await memory.record_finding(finding()),
            await memory.record_decision(decision("ann")),
            await memory.record_outcome(outcome()),
            await memory.record_debate(debate(), turns=[Turn(number=1, speaker="ann", text="No.")]),
            await memory.record_contradiction(contradiction()),
            await memory.record_data_point(data_point()),
            await memory.record(Human(id="eve")),
            await memory.record_groups(Human, "eve", {"profile": Human.Profile(role="reviewer")}),
            await memory.link("CITES", decision("ann"), ("Finding", "f"), {"at": NOW, "rank": 1}),
            await memory.correct(analysis(summary="Better."), "The summary was cut."),
        ]

    async with Memory.open(harness.settings) as memory:
        first, second = await everything(memory), await everything(memory)

    assert {receipt.verdict for receipt in first} == {AppendStatus.NEW}
    assert {receipt.state for receipt in first} == {"durable"}
    assert {receipt.verdict for receipt in second} == {AppendStatus.IDENTICAL}
    assert [receipt.event_id for receipt in first] == [receipt.event_id for receipt in second]
    assert harness.count("event") == len(first)
    assert harness.count("debate_turn") == 1
    assert harness.rows("SELECT DISTINCT actor, actor_role FROM event") == [("local", "human_admin")]


def test_the_same_without_await(harness: LoadHarness) -> None:
    """The methods without await write the same, raise the same, and end their thread."""
    with Memory.sync(harness.settings) as memory:
        assert memory.record_company(Company(ticker="MU")).durable
        assert memory.record_company(Company(ticker="MU")).verdict is AppendStatus.IDENTICAL
        memory.record_analysis(analysis())
        with pytest.raises(CoreConflict, match="Analysis"):
            memory.record_analysis(analysis(confidence=0.5))

    assert harness.count("event") == 2


def test_the_twin_has_every_method() -> None:
    """What Memory can, its twin can, with the same parameters."""
    for name, method in inspect.getmembers(Memory, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(SyncMemory, name)) == inspect.signature(method), name


async def test_refusals_are_raised_by_field(harness: LoadHarness) -> None:
    """Another core, nothing to correct, a moved claim and a governed kind each name their field; nothing is written."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_finding(finding())
        with pytest.raises(CoreConflict) as conflict:
            await memory.record_finding(finding(statement="It falls."))
        with pytest.raises(BadInput) as missing:
            await memory.correct(analysis("b"), "A slip.")
        with pytest.raises(BadInput) as moved:
            await memory.correct(finding(agent="bob"), "A slip.")
        with pytest.raises(BadInput) as later:
            await memory.record_finding(finding(key="g"), known_at=datetime(2999, 1, 1, tzinfo=UTC))
        with pytest.raises(BadInput) as governed:
            await memory.record_groups(Decision, "d", {"outcome": Decision.Outcome(outcome="success")})

    fields = [caught.value.field for caught in (conflict, missing, moved, later, governed)]
    assert fields == ["core", "key", "core", "known_at", "groups.outcome"]
    assert harness.count("event") == 1


async def test_visible_only_when_the_graph_holds_it(harness: LoadHarness, graph: neo4j.Driver) -> None:
    """Without an applier a write that waits is durable and says that it is not visible; with one it is visible."""
    async with Memory.open(harness.having(visible_wait_ms=300).settings) as memory:
        waited = await memory.record_company(Company(ticker="NVDA"), wait_visible=True)
    assert waited.state == "durable_not_visible"

    with harness.applier():
        async with Memory.open(harness.settings) as memory:
            for _ in range(20):
                seen = await memory.record_company(Company(ticker="MU"), wait_visible=True)
                if seen.visible:
                    break
    assert seen.state == "visible"
    with graph.session() as session:
        assert session.run("MATCH (c:Company {ticker: 'MU'}) RETURN c.stub AS stub").single() is not None


@pytest.mark.spec("AC-6")
def test_no_call_names_a_role() -> None:
    """Identity and role come from the settings: no method has a parameter that could say otherwise."""
    names = {
        name
        for _, method in inspect.getmembers(Memory, inspect.iscoroutinefunction)
        for name in inspect.signature(method).parameters
    }

    assert names.isdisjoint({"actor", "role", "owner", "may_import", "as_role"})


Call = Callable[[Memory], Awaitable[Receipt]]

OWN: list[tuple[str, Call, bool]] = [
    ("own finding", lambda m: m.record_finding(finding("ann")), True),
    ("another's finding", lambda m: m.record_finding(finding("bob")), False),
    ("itself", lambda m: m.record_agent(Agent(name="ann", profile=profile())), True),
    ("itself a baseline", lambda m: m.record_agent(Agent(name="ann", profile=profile(AgentKind.BASELINE))), False),
    ("itself an ensemble", lambda m: m.record_groups(Agent, "ann", {"profile": profile(AgentKind.ENSEMBLE)}), False),
    ("itself a human", lambda m: m.record_groups(Agent, "ann", {"profile": profile(AgentKind.HUMAN)}), False),
    ("another agent", lambda m: m.record_agent(Agent(name="bob")), False),
    ("another's profile", lambda m: m.record_groups(Agent, "bob", {"profile": profile(AgentKind.BASELINE)}), False),
    ("a person", lambda m: m.record(Human(id="eve")), False),
    ("a company", lambda m: m.record_company(Company(ticker="NVDA")), True),
    ("its decision", lambda m: m.record_decision(decision("ann")), True),
    ("a decision of another beside it", lambda m: m.record_decision(decision("ann", "bob", key="e")), False),
    ("another's outcome", lambda m: m.record_outcome(outcome("own:bob/o")), False),
    ("an outcome that would settle", lambda m: m.record_outcome(outcome("o")), False),
    ("its own outcome", lambda m: m.record_outcome(outcome("own:ann/o")), True),
    ("a decision without it", lambda m: m.record_decision(decision("bob")), False),
    (
        "its challenge",
        lambda m: m.record_debate(debate("ann"), turns=[Turn(number=1, speaker="ann", text="No.")]),
        True,
    ),
    (
        "words of another",
        lambda m: m.record_debate(debate("ann"), turns=[Turn(number=1, speaker="bob", text="Y")]),
        False,
    ),
    ("another's challenge", lambda m: m.record_debate(debate("bob")), False),
    (
        "how its debate stands",
        lambda m: m.record_debate(debate("ann", state=Debate.State(state=DebateState.CLOSED, provisional=False))),
        False,
    ),
    (
        "how a debate ended",
        lambda m: m.record(DebateResolution(id="r", debate_id="debate", winning_position="ann", winning_agent="ann")),
        False,
    ),
    ("who won", lambda m: m.link("WINNING_POSITION", ("Debate", "debate"), ("Agent", "ann")), False),
    ("its own work", lambda m: m.link("PERFORMED", ("Agent", "ann"), ("Analysis", "a")), True),
    ("another's work", lambda m: m.link("PERFORMED", ("Agent", "bob"), ("Analysis", "a")), False),
    ("a citation in its own", lambda m: m.link("CITES", ("Decision", "anns"), ("Finding", "f"), {"at": NOW}), True),
    ("a citation in another's", lambda m: m.link("CITES", ("Decision", "bobs"), ("Finding", "f"), {"at": NOW}), False),
    ("a citation in nothing", lambda m: m.link("CITES", ("Decision", "none"), ("Finding", "f"), {"at": NOW}), False),
    ("a correction", lambda m: m.correct(finding("ann", key="anns"), "A slip."), False),
    ("another time", lambda m: m.record_finding(finding("ann"), known_at=NOW), False),
]


async def test_an_agent_states_its_own_alone(harness: LoadHarness) -> None:
    """What an agent may and may not state, each by a call; every denial leaves one row and no event."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_decision(decision("ann", key="anns"))
        await memory.record_decision(decision("bob", key="bobs"))
        await memory.record_finding(finding("ann", key="anns"))
    told: dict[str, bool] = {}
    async with Memory.open(harness.as_role(Role.AGENT, "ann", may_import=True).settings) as memory:
        for name, call, _ in OWN:
            try:
                receipt = await call(memory)
            except PermissionDenied:
                told[name] = False
            else:
                told[name] = receipt.verdict is AppendStatus.NEW

    assert told == {name: may for name, _, may in OWN}
    denied = sum(not may for _, _, may in OWN)
    assert harness.rows("SELECT count(*) FROM memory_access_audit WHERE outcome = 'denied' AND NOT authorized") == [
        (denied,)
    ]
    assert harness.count("event") == 3 + len(OWN) - denied


async def test_a_person_corrects_without_the_import_right(harness: LoadHarness) -> None:
    """A correction takes the import right or a person: an engine without the right is denied, a person is not."""
    engine = harness.as_role(Role.LEARNING_ENGINE, "engine")
    person = harness.as_role(Role.HUMAN_ADMIN, "eve")
    async with Memory.open(engine.settings) as memory:
        await memory.record_analysis(analysis())
        with pytest.raises(PermissionDenied):
            await memory.correct(analysis(summary="Better."), "A slip.")
    async with Memory.open(person.settings) as memory:
        assert (await memory.correct(analysis(summary="Better."), "A slip.")).durable


async def test_what_a_person_says_does_not_sleep(harness: LoadHarness) -> None:
    """A regime, an override or a pin of years ahead is refused by its field; a clock that is ahead a little is not."""
    person, of = harness.as_role(Role.HUMAN_ADMIN, "eve"), {"agent": "ann", "domain": "flu"}

    def said(at: datetime) -> dict[str, Kind]:
        return {
            "observed_at": RegimeReading(id="r", observed_at=at, regime=Regime.NORMAL, stale=False, source="eve"),
            "overridden_at": HumanOverride(
                id="x", **of, analysis_id="a", reason=OverrideReason.OTHER, overridden_at=at
            ),
            "pinned_at": CredibilityPin(id="p", **of, score=0.5, reason="A review.", pinned_at=at),
        }

    async with Memory.open(person.settings) as memory:
        for name, model in said(datetime(2099, 1, 1, tzinfo=UTC)).items():
            with pytest.raises(BadInput, match="lies in the future") as refused:
                await memory.record(model, occurred_at=NOW)
            assert refused.value.field == f"core.{name}"
        assert harness.count("event") == 0
        for model in said(datetime.now(UTC) + timedelta(seconds=20)).values():
            assert (await memory.record(model)).verdict is AppendStatus.NEW


def test_a_deadline_is_kept_by_the_server(harness: LoadHarness) -> None:
    """A write that has no time left is refused as retryable, not left running."""
    from imem.journal.errors import BudgetExceeded, PostgresUnavailable

    assert Deadline.after_ms(-1).passed
    with Memory.sync(harness.settings) as memory, pytest.raises((BudgetExceeded, PostgresUnavailable)) as caught:
        memory.record_company(Company(ticker="MU"), deadline_ms=1)
    assert caught.value.retryable


async def test_a_claim_that_nothing_could_settle_is_refused(harness: LoadHarness) -> None:
    """A claim on what is over is refused by field, with known_at and without; repeating an earlier one is harmless."""

    def claim(key: str) -> Finding:
        return finding(key=key, metric="up", probability=0.6, target_at=NOW)

    agent = harness.as_role(Role.AGENT, "ann")
    with fast(agent, "-300 days") as earlier:
        async with Memory.open(earlier.settings) as memory:
            first = await memory.record_finding(claim("good"))
    async with Memory.open(agent.settings) as memory:
        again = await memory.record_finding(claim("good"))
        with pytest.raises(BadInput, match="settled by nothing") as caught:
            await memory.record_finding(claim("late"))
        remark = await memory.record_finding(finding(key="remark", target_at=NOW))
    async with Memory.open(harness.as_role(Role.LEARNING_ENGINE, "import", may_import=True).settings) as memory:
        with pytest.raises(BadInput, match="settled by nothing"):
            await memory.record_finding(claim("late"), known_at=NOW)

    assert caught.value.field == "core.target_at"
    assert (first.verdict, again.verdict, remark.verdict) == (
        AppendStatus.NEW,
        AppendStatus.IDENTICAL,
        AppendStatus.NEW,
    )
    assert harness.rows("SELECT record_key FROM event ORDER BY position") == [("good",), ("remark",)]


async def test_the_journals_clock_says_which_claim_is_late(harness: LoadHarness) -> None:
    """A client that is behind the server cannot know that it is over; what states its known_at goes by that."""
    soon = datetime.now(UTC) + timedelta(minutes=30)

    def claim(key: str, **values: Any) -> Finding:
        return finding(key=key, metric="up", probability=0.6, target_at=soon, **values)

    person = harness.as_role(Role.HUMAN_ADMIN, "eve").having(may_import=True)
    async with Memory.open(person.settings) as memory:
        await memory.record_finding(claim("early"))
    with fast(person, "1h") as ahead:
        async with Memory.open(ahead.settings) as memory:
            with pytest.raises(BadInput, match="settled by nothing") as late:
                await memory.record_finding(claim("late"))
            again = await memory.record_finding(claim("early"))
            with pytest.raises(CoreConflict):
                await memory.record_finding(claim("early", statement="It falls."))
            imported = await memory.record_finding(claim("imported"), known_at=NOW)
            with pytest.raises(BadInput, match="settled by nothing"):
                await memory.record_finding(claim("late"), known_at=soon)

    assert late.value.field == "core.target_at"
    assert (again.verdict, imported.verdict) == (AppendStatus.IDENTICAL, AppendStatus.NEW)
    assert harness.rows("SELECT record_key FROM event ORDER BY position") == [("early",), ("imported",)]


async def test_a_claim_is_late_by_the_clock_that_it_is_recorded_by(harness: LoadHarness) -> None:
    """After the server's clock was set back, what is recorded is still later than everything before; so is a claim."""
    person = harness.as_role(Role.HUMAN_ADMIN, "eve")
    with fast(person, "1h") as ahead:
        async with Memory.open(ahead.settings) as memory:
            await memory.record_company(Company(ticker="MU"))
    soon = datetime.now(UTC) + timedelta(minutes=30)

    async with Memory.open(person.settings) as memory:
        with pytest.raises(BadInput, match="settled by nothing"):
            await memory.record_finding(finding(metric="up", probability=0.6, target_at=soon))
        receipt = await memory.record_finding(
            finding(metric="up", probability=0.6, target_at=soon + timedelta(hours=1))
        )

    assert receipt.verdict is AppendStatus.NEW
    assert (
        harness.rows("SELECT record_key FROM event WHERE known_at >= (payload -> 'core' ->> 'target_at')::timestamptz")
        == []
    )


async def test_strict_goes_by_the_clock_that_appends(harness: LoadHarness) -> None:
    """After the clock was set back, a check refuses no line as future that would be written; then both refuse alike."""
    with fast(harness.as_role(Role.HUMAN_ADMIN, "eve"), "1h") as ahead:
        async with Memory.open(ahead.settings) as memory:
            await memory.record_company(Company(ticker="MU"))
    now = datetime.now(UTC)
    past, future = (
        {"record": "Company", "known_at": (now + timedelta(minutes=minutes)).isoformat(), "core": {"ticker": ticker}}
        for minutes, ticker in ((30, "NWT"), (90, "NVDA"))
    )

    good = harness.load("--strict", harness.file("good.jsonl", [past]))
    bad = harness.load("--strict", harness.file("bad.jsonl", [future]))

    assert (good["new"], good["refused"]) == (1, [])
    assert (bad["new"], [one["field"] for one in bad["refused"]]) == (0, ["known_at"])
    assert harness.load(harness.folder / "bad.jsonl")["refused"] == bad["refused"]


async def test_a_late_claim_harms_none_of_its_batch(harness: LoadHarness) -> None:
    """Lines that are written together have a verdict each."""
    late = finding(key="late", metric="up", probability=0.6, target_at=NOW)
    lines = [prepare(record_of(one)) for one in (finding(key="a"), late, finding(key="b"))]

    async with Stores.open(harness.settings) as stores:
        receipts = await record(stores.gateway, lines, deadline=Deadline.after_ms(5000))

    assert [receipt.verdict for receipt in receipts] == [AppendStatus.NEW, AppendStatus.LATE_CLAIM, AppendStatus.NEW]
    assert harness.rows("SELECT record_key FROM event ORDER BY position") == [("a",), ("b",)]
