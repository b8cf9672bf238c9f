"""Similar situations: past decisions by how like their contexts are, with what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, SettingsError, StatementRejected
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.similarity.embedders import Vectors
from imem.kg.similarity.index import run_lock
from imem.kg.similarity.sentence_models import Purpose
from imem.memory import Memory
from imem.postmortem.trades.model import Bar, DecisionSnapshot, Position, Side, TickDecision, TradeStatus
from imem.postmortem.trades.situations import EMBED_SITUATIONS, Situation, context_summary
from tests.encoders import LOCAL
from tests.imem.memories.conftest import NEVER, Places, places, round_of
from tests.imem.memory.conftest import MemoryHarness

from .conftest import memory_of, record
from .paths import START, Tick

__all__ = ["places"]

RALLY, CRASH, CALM = (
    {"mood": mood, "signals": {"rsi": rsi}} for mood, rsi in (("rally", 70), ("crash", 20), ("calm", 50))
)
TEXTS = [context_summary(context) for context in (RALLY, CRASH, CALM)]


@pytest.fixture(autouse=True)
def placed(places: Places) -> Places:
    """A rally is what is asked about, calm lies near it, and a crash opposite."""
    places.cosines = dict(zip(TEXTS, (1.0, -0.9, 0.6), strict=True))
    return places


@pytest.fixture
def switched_on(harness: MemoryHarness) -> MemoryHarness:
    return replace(
        harness, settings=harness.settings.model_copy(update={"situations_enabled": True, "deadline_ms": 30_000})
    )


def tick(deployment: str, nth: int, price: str, quantity: str, context: dict[str, Any] | None) -> Tick:
    held = [Position("MU", Side.SHORT if quantity.startswith("-") else Side.LONG, abs(Decimal(quantity)))]
    snapshot = DecisionSnapshot(context, {"size": quantity}, "approved") if context is not None else None
    decision = TickDecision(deployment, "momentum", "1.2", "r", snapshot=snapshot)
    return Tick(
        START + timedelta(hours=nth), held if Decimal(quantity) else [], {"MU": Bar(Decimal(price))}, decision, {}
    )


async def trade(memory: Memory, deployment: str) -> None:
    """One round trip is entered in a rally and left in a crash, the next entered while it is calm and held."""
    for one in (
        tick(deployment, 0, "100", "1", RALLY),
        tick(deployment, 1, "104", "1", {"mood": "nothing was traded"}),
        tick(deployment, 2, "90", "0", CRASH),
        tick(deployment, 3, "91", "2", CALM),
        tick(deployment, 4, "92", "2", None),
    ):
        await record(memory, one)


async def make_vectors(harness: MemoryHarness, embedder: Any, *, on: bool = True) -> Any:
    async def step(database: Database, **_: Any) -> Any:
        return await EMBED_SITUATIONS.step(SimpleNamespace(database=database, embedder=embedder, situations=on), NEVER)

    return await round_of(harness, step)


def contexts(found: list[Situation]) -> list[Any]:
    return [one.context for one in found]


async def test_what_came_of_situations_like_this(switched_on: MemoryHarness, desk: str, places: Places) -> None:
    """Nearest first, each with its decision and its trades; what traded nothing is no situation."""
    async with memory_of(switched_on) as memory:
        await trade(memory, desk)
        assert await memory.trades.similar_situations(RALLY, deployment=desk) == [], "no vector is made yet"
        await make_vectors(switched_on, places)
        rally, calm, crash = await memory.trades.similar_situations(RALLY, deployment=desk)
        assert [rally.context, calm.context, crash.context] == [RALLY, CALM, CRASH]
        assert [round(one.similarity, 2) for one in (rally, calm, crash)] == [1.0, 0.6, -0.9]
        [lost], [held] = rally.trades, calm.trades
        assert crash.trades == (lost,), "what was left there is the trade that was entered in the rally"
        assert (lost.status, lost.realized_pnl_usd, held.status) == (TradeStatus.CLOSED, Decimal(-10), TradeStatus.OPEN)
        assert (rally.deployment_id, rally.tick_at, rally.verdict) == (desk, START, "approved")
        assert rally.proposed_action == {"size": "1"}
        assert contexts(await memory.trades.similar_situations(RALLY, deployment=desk, k=1)) == [RALLY]
        text = {"summary": "Any words.", "mood": "of another sort"}
        assert context_summary(text) == "Any words."


async def test_a_decision_that_changes_sides_left_one_trade_and_entered_another(
    switched_on: MemoryHarness, desk: str, places: Places
) -> None:
    """One situation of both; what only grew or shrank a position in between is none."""
    async with memory_of(switched_on) as memory:
        for nth, (quantity, context) in enumerate((("1", CALM), ("3", RALLY), ("2", RALLY), ("-2", CRASH))):
            await record(memory, tick(desk, nth, f"{100 - nth}", quantity, context))
        await make_vectors(switched_on, places)
        calm, crash = await memory.trades.similar_situations(RALLY, deployment=desk)
        assert (calm.context, crash.context) == (CALM, CRASH)
        assert [(one.side, one.status) for one in crash.trades] == [
            (Side.LONG, TradeStatus.CLOSED), (Side.SHORT, TradeStatus.OPEN)
        ]  # fmt: skip
        assert calm.trades == crash.trades[:1]


@pytest.mark.parametrize("of", ["deployment", "skill"])
async def test_the_newest_trades_alone_are_compared(
    switched_on: MemoryHarness, desk: str, places: Places, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    async with memory_of(switched_on, f"ann-{desk}") as memory:
        await trade(memory, desk)
        await make_vectors(switched_on, places)
        named: dict[str, Any] = {"deployment": desk} if of == "deployment" else {"skill": "momentum"}
        for compared, found in ((2, [RALLY, CALM, CRASH]), (1, [CALM])):
            monkeypatch.setattr("imem.postmortem.trades.situations.COMPARED", compared)
            assert contexts(await memory.trades.similar_situations(RALLY, **named)) == found


async def test_two_workers_do_not_make_the_same_vectors(switched_on: MemoryHarness, desk: str, places: Places) -> None:
    """While one has the lock, another makes none, and asks for no other run."""
    async with memory_of(switched_on) as memory:
        await record(memory, tick(desk, 0, "100", "1", RALLY))

    async def beside(database: Database, **_: Any) -> Any:
        async with run_lock(database, "situations") as held:
            assert held
            return await make_vectors(switched_on, places)

    assert await round_of(switched_on, beside) == {"vectors": 0, "more": False}
    assert not places.texts
    assert (await make_vectors(switched_on, places))["vectors"] >= 1


async def test_as_of_a_moment(switched_on: MemoryHarness, desk: str, places: Places) -> None:
    """What was recorded later is not there, and what was closed later is open."""
    async with memory_of(switched_on) as memory:
        await record(memory, tick(desk, 0, "100", "1", RALLY))
        entered = (await memory.trades.recent(deployment=desk)).open[0].updated_at
        assert entered is not None
        await record(memory, tick(desk, 2, "90", "0", CRASH))
        await make_vectors(switched_on, places)
        [then] = await memory.trades.similar_situations(RALLY, deployment=desk, as_of=entered)
        assert (then.context, [one.status for one in then.trades]) == (RALLY, [TradeStatus.OPEN])
        before = entered - timedelta(microseconds=1)
        assert await memory.trades.similar_situations(RALLY, deployment=desk, as_of=before) == []


async def test_of_a_skill_everybody_sees_the_own_ones(switched_on: MemoryHarness, desk: str, places: Places) -> None:
    async with memory_of(switched_on, f"ann-{desk}") as ann, memory_of(switched_on, f"bob-{desk}") as bob:
        await trade(ann, f"{desk}-a")
        await record(bob, tick(f"{desk}-b", 0, "100", "1", CALM))
        await make_vectors(switched_on, places)
        assert contexts(await bob.trades.similar_situations(RALLY, skill="momentum")) == [CALM]
        assert await bob.trades.similar_situations(RALLY, skill="momentum", skill_version="1.3") == []
        assert len(await ann.trades.similar_situations(RALLY, skill="momentum", skill_version="1.2")) == 3
        with pytest.raises(PermissionDenied):
            await bob.trades.similar_situations(RALLY, deployment=f"{desk}-a")
    async with memory_of(switched_on, "kate", Role.HUMAN_ADMIN) as kate:
        seen = await kate.trades.similar_situations(RALLY, skill="momentum", k=50)
        assert {f"{desk}-a", f"{desk}-b"} <= {one.deployment_id for one in seen}


async def test_vectors_of_two_models_are_never_mixed(
    switched_on: MemoryHarness, desk: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model finds nothing of the one before, and its vectors take the place of those."""
    newer = Places(model_id="directions-2", cosines=places.cosines)
    async with memory_of(switched_on) as memory:
        await trade(memory, desk)
        await make_vectors(switched_on, places)
        assert len(await memory.trades.similar_situations(RALLY, deployment=desk)) == 3
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: newer)
    async with memory_of(switched_on) as memory:
        assert await memory.trades.similar_situations(RALLY, deployment=desk) == []
        await make_vectors(switched_on, newer)
        assert contexts(await memory.trades.similar_situations(RALLY, deployment=desk)) == [RALLY, CALM, CRASH]
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: places)
    async with memory_of(switched_on) as memory:
        assert await memory.trades.similar_situations(RALLY, deployment=desk) == []
    await make_vectors(switched_on, places)


class Refusing(Places):
    """Refuses what says "crash", as a model does that has a filter."""

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        if any("crash" in text for text in texts):
            raise StatementRejected("The endpoint refused the request (status 400).")
        return await super().embed(texts, deadline=deadline, purpose=purpose)


async def test_a_context_that_the_model_refuses_is_not_found(
    switched_on: MemoryHarness, desk: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are, and it is not asked about again."""
    refusing = Refusing(model_id="refusing", cosines=places.cosines)
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: refusing)
    async with memory_of(switched_on) as memory:
        await trade(memory, desk)
        await make_vectors(switched_on, refusing)
        assert contexts(await memory.trades.similar_situations(RALLY, deployment=desk)) == [RALLY, CALM]
        assert await make_vectors(switched_on, refusing) == {"vectors": 0, "more": False}
    await make_vectors(switched_on, places)


async def test_figures_count(switched_on: MemoryHarness, desk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the encoder that is there by default, contexts that differ in figures alone are told apart."""
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: LOCAL)
    low, high = {"rsi": 20, "spread": 0.4}, {"rsi": 70, "spread": 0.1}
    async with memory_of(switched_on) as memory:
        for nth, context in enumerate((low, high)):
            await record(memory, tick(desk, nth, "100", f"{1 - nth}", context))
        await make_vectors(switched_on, LOCAL)
        same, other = await memory.trades.similar_situations(low, deployment=desk)
        assert [same.context, other.context] == [low, high]
        assert other.similarity < same.similarity - 0.001


async def test_off_by_default(harness: MemoryHarness, desk: str, places: Places) -> None:
    """No vector is made, and who asks is told how to switch it on."""
    assert harness.settings.situations_enabled is False
    async with memory_of(harness) as memory:
        await trade(memory, desk)
        places.texts.clear()
        assert await make_vectors(harness, places, on=False) == {"vectors": 0, "more": False}
        assert not places.texts
        with pytest.raises(SettingsError, match="IMEM_SITUATIONS_ENABLED"):
            await memory.trades.similar_situations(RALLY, deployment=desk)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"k": 0}, "k"), ({"k": 51}, "k"), ({"k": 1.5}, "k"), ({"context": {"at": START}}, "context.at"),
        ({"context": "a rally"}, "context"), ({"skill": "momentum"}, "deployment"),
        ({"skill_version": "1.2"}, "skill_version"),
    ],
)  # fmt: skip
async def test_bad_input_names_the_field(
    switched_on: MemoryHarness, desk: str, given: dict[str, Any], names: str
) -> None:
    async with memory_of(switched_on) as memory:
        with pytest.raises(BadInput) as error:
            await memory.trades.similar_situations(**{"context": RALLY, "deployment": desk, **given})
        assert error.value.field == names


def test_a_summary_is_bounded_and_says_what_each_value_is() -> None:
    assert TEXTS[0] == "mood: rally\nsignals rsi: 70"
    assert context_summary({"b": [1, None, {"x": True}], "a": ""}) == "a: \nb: 1\nb x: True"
    assert context_summary({"a": "x" * 5000}) == "a: " + "x" * 1997
    assert context_summary({}) == "nothing", "a model may refuse an empty text"
