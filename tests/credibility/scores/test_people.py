"""Overrides, pins and corrections of biases: who may record them, and what they change as of a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.credibility.posterior import DecayedEvidence, decay, posterior
from imem.credibility.scores import reading as reading_module
from imem.credibility.scores.context import ClaimContext
from imem.credibility.scores.overrides import OverrideRate
from imem.credibility.scores.reading import AgentScore, BehindScore, CorrectedValue, agent_scores, claims_behind
from imem.credibility.track_record import dated_records
from imem.ingest.recorder import prepare, record
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.events.entry import AppendStatus
from imem.journal.settings import Role
from imem.kg.asof import AsOf, AsOfClock
from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.enums import BiasKind, BiasStatus, OverrideReason
from imem.kg.load_format.lines import Line, correction_of, groups_of, record_of
from imem.kg.model import BiasCorrection, CredibilityPin, HumanOverride
from tests.credibility.conftest import HALFLIFE, World, cites, corrected, decision, finding, outcome

START = datetime(2024, 1, 1, tzinfo=UTC)
PERSON = Actor("pat", Role.HUMAN_ADMIN)
ENGINE = Actor("engine", Role.LEARNING_ENGINE, may_import=True)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


async def explained(world: World, at: float, context: ClaimContext | None = None) -> list[BehindScore]:
    moment, due = AsOf(day(at)), Deadline.after_ms(30_000)
    found, _ = await claims_behind(
        world.database, await score(world, at, context=context), moment, moment.at, context=context, limit=50,
        deadline=due,
    )  # fmt: skip
    return found


async def score(
    world: World, at: float, clock: AsOfClock = AsOfClock.KNOWN, context: ClaimContext | None = None
) -> AgentScore:
    (found,), _ = await agent_scores(
        world.database, [("ann", "flu")], AsOf(day(at), clock), context=context, halflife_years=HALFLIFE,
        deadline=Deadline.after_ms(30_000),
    )  # fmt: skip
    return found


def claims(first: int, last: int, *, right: bool = True) -> list[dict[str, Any]]:
    """Return weekly claims of ann, made five days before their week's end and settled a day after."""
    lines = []
    for week in range(first, last):
        subject, target = {"subject_id": f"market:{week}"}, day(7 * week)
        lines.append(finding(f"f{week}", target - timedelta(days=5), target, probability=0.9, **subject))
        lines.append(outcome(f"o{week}", target + timedelta(days=1), target, float(right), **subject))
    return lines


def line(model: Kind, at: float) -> dict[str, Any]:
    core = model.model_dump(mode="json", exclude_none=True)
    return {"record": type(model).__name__, "known_at": day(at).isoformat(), "core": core}


def override(key: str, at: float, **core: Any) -> dict[str, Any]:
    of = HumanOverride(
        id=key, agent="ann", domain="flu", reason=OverrideReason.STALE_DATA, overridden_at=day(at),
        **core or {"finding_id": key},
    )  # fmt: skip
    return line(of, at)


@pytest.mark.spec("CR-18")
async def test_overrides_count_from_when_they_were_known(world: World) -> None:
    """
    Of ten wrong claims eight are overridden: a rate, who was right, and the flag; before, there was none.

    Of what nothing settled only that which was overridden counts.
    """
    await world.say(*claims(1, 11, right=False), *[override(f"f{week}", 7 * week - 1) for week in range(1, 9)])
    await world.settle()

    before, early, found = [await score(world, at) for at in (5, 16, 100)]

    assert before.people.overrides.rate is None
    assert early.people.overrides.counts == OverrideRate(2, 2)
    assert (early.people.overrides.known, early.people.overrides.right) == (2, 2)
    overrides = found.people.overrides
    assert (overrides.counts, overrides.rate) == (OverrideRate(8, 10), 0.8)
    assert overrides.outcome_accuracy == 1.0
    assert overrides.reasons == {"stale_data": 8}
    assert overrides.by_context["metric_type"] == {"binary": OverrideRate(8, 10)}
    assert "overridden 80% where time_horizon is week" in overrides.reviews
    assert overrides.flag
    assert found.contender().override_flag
    assert found.flags[0] == "override_flag"
    assert found.designed.factors["override_penalty"] == 0.7
    old = await score(world, 7 * 8 + 364)
    assert (old.people.overrides.counts.overrides, old.trend.points) == (0, 2)
    assert old.people.overrides.rate is None


async def test_an_override_of_a_decision_is_right_when_it_failed(world: World) -> None:
    """Of a success it was wrong; of one that nothing settled it is not known; one of an analysis never is."""
    await world.say(*claims(1, 2), *claims(2, 3, right=False))
    for week in (1, 2, 3):
        await world.say(decision(f"d{week}", day(7 * week - 4)), cites(f"d{week}", f"f{week}", day(7 * week - 4)))
    await world.say(
        *[override(f"x{n}", 20, decision_id=f"d{n}") for n in (1, 2, 3)], override("y", 20, analysis_id="a")
    )
    await world.settle()

    found = (await score(world, 40)).people.overrides

    assert (found.counts.overrides, found.known, found.right) == (4, 2, 1)


async def test_a_question_is_one_recommendation(world: World) -> None:
    """However often it was answered, abstained from and overridden; an open one counts when it is overridden."""
    await world.say(*claims(1, 5, right=False))
    for week in (1, 2):
        again = {"subject_id": f"market:{week}", "probability": 0.8}
        await world.say(finding(f"again{week}", day(7 * week - 4), day(7 * week), **again))
    await world.say(*[finding(f"open{n}", day(3), day(900), probability=0.9, subject_id=f"market:{n}") for n in (8, 9)])
    overridden = ("f1", "again1", "f2", "open8")
    await world.say(*[override(key, 20) for key in overridden], override("d", 20, decision_id="d"))
    await world.settle()

    assert (await score(world, 40)).people.overrides.counts == OverrideRate(4, 6)


async def test_an_override_of_anothers_finding_does_not_count(world: World) -> None:
    """Loaded without being looked up: of another agent or domain never, of a finding that comes later from then on."""
    await world.say(*claims(1, 5))
    for key, core in (("bobs", {"agent": "bob"}), ("tides", {"domain": "tides"})):
        await world.say(finding(key, day(1), day(900), probability=0.9, subject_id="market:9", **core))
    await world.say(finding("later", day(30), day(900), probability=0.9, subject_id="market:10"))
    await world.say(*[override(key, 20) for key in ("f1", "bobs", "tides", "later", "none")])
    await world.settle()

    found = [(await score(world, at)).people.overrides for at in (25, 40)]

    assert [one.counts for one in found] == [OverrideRate(1, 3), OverrideRate(2, 5)]
    assert [sum(one.reasons.values()) for one in found] == [1, 2]


async def test_withdrawn_overrides_do_not_count(world: World) -> None:
    await world.say(*claims(1, 5), override("f1", 6), override("f2", 13))
    await world.say(corrected({**override("f1", 6)}, day(20), withdrawn=True))
    await world.settle()

    assert [(await score(world, at)).people.overrides.counts.overrides for at in (15, 25)] == [2, 1]


async def test_an_override_names_one_thing() -> None:
    given = {"id": "x", "agent": "ann", "domain": "flu", "reason": "other", "overridden_at": day(1)}
    for more in ({}, {"finding_id": "f", "decision_id": "d"}):
        with pytest.raises(BadInput, match="finding_id"):
            HumanOverride(**given, **more)


def pin(key: str, at: float, score: float, **core: Any) -> dict[str, Any]:
    of = CredibilityPin(id=key, agent="ann", domain="flu", score=score, reason="A review.", pinned_at=day(at), **core)
    return line(of, at)


async def test_a_pin_stands_until_its_end_and_the_computed_scores_beside_it(world: World) -> None:
    end = {"end": {"ended_at": day(60).isoformat(), "end_reason": "The review is over."}}
    await world.say(*claims(1, 5), pin("p1", 30, 0.4), pin("p2", 40, 0.5, until=day(50)))
    await world.say({"record": "CredibilityPin", "key": "p1", "known_at": day(60).isoformat(), "groups": end})
    await world.settle()

    pins = {at: (await score(world, at)).people.pin for at in (29, 30, 45, 55, 61)}

    assert {at: one.score if one else None for at, one in pins.items()} == {
        29: None,
        30: 0.4,
        45: 0.5,
        55: 0.4,
        61: None,
    }
    pinned, free = await score(world, 30), await score(world, 29)
    assert pinned.contender().posterior.score == pinned.contender().as_designed.score == 0.4
    assert pinned.contender().posterior.half_width == pinned.posterior.half_width
    assert pinned.posterior.mean == pytest.approx(free.posterior.mean, abs=1e-3)
    assert (await score(world, 45, AsOfClock.RECORDED)).people.pin is None
    with pytest.raises(BadInput, match="until"):
        pin("p3", 3, 0.5, until=day(2))


@pytest.mark.spec("AC-3")
@pytest.mark.parametrize("role", [Role.KNOWLEDGE_BASE_AGENT, Role.LEARNING_ENGINE])
async def test_a_person_alone_pins_and_overrides(world: World, role: Role) -> None:
    """An actor with the import right is denied, with and without known_at: one denial row each."""
    other, due = Actor("other", role, may_import=True), Deadline.after_ms(30_000)
    ended = {"end": CredibilityPin.End(ended_at=day(4), end_reason="Enough.")}
    held, overridden = (
        CredibilityPin(id="p", agent="ann", domain="flu", score=0.9, reason="It is good.", pinned_at=day(3)),
        HumanOverride(id="x", agent="bob", domain="flu", finding_id="f", reason="other", overridden_at=day(3)),
    )
    lines: list[Line] = [
        *(record_of(one, known_at=at) for one in (held, overridden) for at in (None, day(3))),
        groups_of(CredibilityPin, "p", ended),
        correction_of(overridden.model_copy(update={"withdrawn": True}), "It was none."),
    ]

    for one in lines:
        with pytest.raises(PermissionDenied, match="It takes the role human_admin"):
            await record(world.gateway, [prepare(one)], actor=other, deadline=due)
    denied = await world.rows(
        "SELECT actor_id, actor_role, resource_type, resource_id FROM memory_access_audit WHERE NOT authorized"
    )
    assert sorted(row["resource_id"] for row in denied) == ["p"] * 3 + ["x"] * 3
    assert {tuple(row.values())[:3] for row in denied} == {("other", role.value, "credibility")}
    assert await world.rows("SELECT FROM event") == []

    written = [
        (await record(world.gateway, [prepare(one)], actor=PERSON, deadline=due))[0].verdict for one in lines[::4]
    ]
    assert written == [AppendStatus.NEW] * 2


BIAS = BiasCorrection(
    id="b", agent="ann", domain="flu", of_metric="close", kind=BiasKind.RELATIVE, bias=0.2, n=20, accuracy_before=0.1,
    accuracy_after=0.9, proposed_at=day(3),
)  # fmt: skip


def decided(status: BiasStatus, at: float) -> dict[str, Group]:
    return {"state": BiasCorrection.State(status=status, decided_at=day(at))}


async def test_a_score_is_of_one_moment_however_far_settlement_gets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the recorded clock: outcomes that are settled while a score is read are in none of its numbers, or in all."""
    await world.say(*claims(1, 4))
    await world.settle()
    for key in ("x", "y"):
        await world.say(finding(f"f{key}", day(50), day(60), probability=0.9, subject_id=f"market:{key}"))
        line = outcome(f"o{key}", day(60), day(60), 0.0, subject_id=f"market:{key}")
        await world.say({name: value for name, value in line.items() if name != "known_at"})

    async def settled_after(*given: Any, **more: Any) -> Any:
        found = await dated_records(*given, **more)
        await world.settle()
        return found

    monkeypatch.setattr(reading_module, "dated_records", settled_after)
    at, due = AsOf(datetime.now(UTC), AsOfClock.RECORDED), Deadline.after_ms(30_000)

    async def read_score() -> tuple[int, float, float | None]:
        (found,), _ = await agent_scores(
            world.database, [("ann", "flu")], at, context=None, halflife_years=HALFLIFE, deadline=due
        )
        return found.record.n, found.contexts["metric_type"]["binary"].observations, found.recent_accuracy

    assert [await read_score() for _ in range(2)] == [(3, 3, 1.0), (4, 4, 0.75)]


@pytest.mark.spec("CR-19")
async def test_a_correction_stands_while_a_person_approves_it(world: World) -> None:
    """An engine proposes it, with the import right; it may not approve it, and a person may."""
    await world.say(*claims(1, 5))
    await world.settle()
    before = await score(world, 100)
    gateway, due = world.gateway, Deadline.after_ms(30_000)
    await record(gateway, [prepare(record_of(BIAS))], actor=ENGINE, deadline=due)
    approved = groups_of(BiasCorrection, "b", decided(BiasStatus.APPROVED, 5))
    with pytest.raises(PermissionDenied, match="approve"):
        await record(gateway, [prepare(approved)], actor=ENGINE, deadline=due)
    assert (await score(world, 3000)).people.corrections == ()

    await record(gateway, [prepare(approved)], actor=PERSON, deadline=due)
    found = await score(world, 3000)
    retired = groups_of(BiasCorrection, "b", decided(BiasStatus.RETIRED, 6))
    await record(gateway, [prepare(retired)], actor=PERSON, deadline=due)

    assert [(one.id, one.bias, one.kind) for one in found.people.corrections] == [("b", 0.2, BiasKind.RELATIVE)]
    assert (await score(world, 3000)).people.corrections == ()
    assert (await score(world, 100)).record == before.record


def test_a_relative_bias_leaves_a_value_its_sign() -> None:
    """A value is divided by 1 + bias, so that -1 and below are refused by the field's name; absolute ones are not."""
    given = BIAS.model_dump(exclude_none=True)
    for bias in (-1.0, -2.0):
        with pytest.raises(BadInput, match=r"bias.*above -1") as refused:
            BiasCorrection(**{**given, "bias": bias})
        assert refused.value.field.endswith("bias")
        assert BiasCorrection(**{**given, "bias": bias, "kind": BiasKind.ABSOLUTE}).bias == bias
    assert BiasCorrection(**{**given, "bias": -0.5}).bias == -0.5


def prices(count: int) -> list[dict[str, Any]]:
    """Return prices claimed twenty days before, a fifth too high, of a company whose sector is known."""
    profile = {"profile": {"name": "Micron", "sector": "Technology"}}
    lines: list[dict[str, Any]] = [
        {"record": "Company", "known_at": day(0).isoformat(), "core": {"ticker": "MU"}, "groups": profile}
    ]
    for n in range(1, count + 1):
        target, of = day(30 * n), {"subject_id": "company:MU", "metric": "close"}
        lines.append(finding(f"p{n}", target - timedelta(days=20), target, value=120.0, **of))
        lines.append(outcome(f"q{n}", target + timedelta(days=1), target, 100.0, **of))
    return lines


@pytest.mark.spec("CR-14", "CR-19")
async def test_the_scope_of_a_context_and_a_correction_beside_a_claim(world: World) -> None:
    """Three prices, which match in all, are inside; three forecasts, which match in three dimensions, are outside."""
    await world.say(*claims(1, 4, right=False), *prices(3))
    await world.settle()
    asked = ClaimContext("Technology", "value", "month")

    found, whole = await score(world, 120, context=asked), await score(world, 120)

    inside = sum(decay((120 - 30 * n) / 365.25, HALFLIFE) for n in (1, 2, 3))
    outside = sum(decay((120 - 7 * n) / 365.25, HALFLIFE) for n in (1, 2, 3))
    assert found.scope_weight == pytest.approx(inside)
    expected = posterior(DecayedEvidence(inside, inside, 0.0, outside))
    assert (found.posterior.mean, found.posterior.upper) == pytest.approx((expected.mean, expected.upper))
    assert whole.scope_weight == whole.weight == pytest.approx(inside + outside)
    assert {one.finding_id: one.inside for one in await explained(world, 120, asked)} == {
        **dict.fromkeys(("p1", "p2", "p3"), True), **dict.fromkeys(("f1", "f2", "f3"), False),
    }  # fmt: skip
    assert all(one.corrected is None for one in await explained(world, 120))

    given = {**line(BIAS, 3), "groups": {"state": {"status": "approved", "decided_at": day(5).isoformat()}}}
    await world.say(given)
    shown = {one.finding_id: one for one in await explained(world, 120)}
    assert shown["p1"].corrected == CorrectedValue(100.0, "b", BiasKind.RELATIVE, 0.2)
    assert (shown["p1"].stated, shown["p1"].right, shown["p1"].context) == (
        120.0, True, {"sector": "Technology", "metric_type": "value", "time_horizon": "month"},
    )  # fmt: skip
    assert shown["f1"].corrected is None
    assert (await score(world, 120)).posterior == whole.posterior
