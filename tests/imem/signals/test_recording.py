"""A signal is a recorded finding, and the table its projection."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from imem.journal.errors import BadInput, CoreConflict, PermissionDenied, StatementRejected
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.kinds.work import Analysis, Finding
from imem.recall.signals import SignalDirection, format_memory
from imem.recall.signals.pipelines import retain
from tests.imem.memory.conftest import MemoryHarness
from tests.imem.signals.conftest import NEVER, RETENTION, applied, memory_of, pipelines_of, project, signal


@pytest.mark.spec("RC-2")
async def test_an_unknown_pair_is_empty(shared: MemoryHarness) -> None:
    async with memory_of(shared) as memory:
        for subject in ("market:nothing", "company:NOTHING", "nothing at all"):
            found = await memory.signals(subject)
            assert not found.has_history
            assert found.error is None
            assert format_memory(found).text == "No previous analysis available for this market."
            assert found.subject_id == (subject if ":" in subject else f"market:{subject}")


async def test_what_is_recorded_is_read_at_once_with_all_its_fields(shared: MemoryHarness) -> None:
    async with memory_of(shared) as memory:
        given = signal(
            "market:m1", analysis_id="m1/1", agent_type="macro", metadata={"statement": "It will.", "importance": 0.5}
        )
        done = (await memory.record_signal(given)).signal
        [read] = (await memory.signals("market:m1")).signals
        assert read == done
        assert read == given.model_copy(update={"id": done.id, "created_at": done.created_at})
        [row] = shared.rows("SELECT * FROM recall.agent_signals WHERE market_id = 'm1'")
        assert (row["confidence"], row["exact_confidence"], row["subject_kind"]) == (
            Decimal("0.96"),
            0.955,
            "market",
        )
        [event] = shared.rows("SELECT kind, event_id FROM event WHERE analysis_id = 'm1/1'")
        assert event == {"kind": "record.Finding", "event_id": done.id}


async def test_a_signal_again_is_one_row_and_another_in_the_same_analysis_a_conflict(shared: MemoryHarness) -> None:
    async with memory_of(shared) as memory:
        first = await memory.record_signal(signal("market:m2", analysis_id="m2/1"))
        again = await asyncio.gather(*(memory.record_signal(signal("market:m2", analysis_id="m2/1")) for _ in range(4)))
        assert {one.signal.id for one in again} == {first.signal.id}
        with pytest.raises(CoreConflict):
            await memory.record_signal(signal("market:m2", analysis_id="m2/1", confidence=0.1))
        await memory.record_signal(signal("market:m2", analysis_id="m2/2", direction="NO"))
        assert [one.direction for one in (await memory.signals("market:m2")).signals] == ["NO", "YES"]
    assert await project(shared) == {"changed": 0, "more": False}
    assert shared.rows("SELECT count(*) FROM recall.agent_signals WHERE market_id = 'm2'") == [{"count": 2}]
    assert not shared.rows("SELECT FROM due_row WHERE queue = 'signals'")


async def test_a_signal_without_an_analysis_has_one_of_its_own(shared: MemoryHarness) -> None:
    async with memory_of(shared) as memory:
        done = (await memory.record_signal(signal("market:m3"))).signal
        kinds = shared.rows("SELECT kind FROM event WHERE analysis_id = %s ORDER BY kind", done.analysis_id)
        assert [row["kind"] for row in kinds] == ["record.Analysis", "record.Finding"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"direction": "MAYBE"}, "direction"),
        ({"fair_probability": 1.01}, "fair_probability"),
        ({"fair_probability": None}, "fair_probability"),
        ({"confidence": -0.01}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"subject_kind": "team"}, "subject_kind"),
        ({"agent_name": ""}, "agent_name"),
        ({"colour": "red"}, "colour"),
        ({"metadata": {"agent": "bob"}}, "metadata.agent"),
        ({"metadata": {"colour": "red"}}, "colour"),
        ({"key_drivers": ["x" * 201]}, "key_drivers.0"),
        ({"recommendation_id": "r"}, "recommendation_id"),
    ],
)
async def test_bad_values_are_refused(shared: MemoryHarness, changes: dict[str, Any], field: str) -> None:
    async with memory_of(shared) as memory:
        with pytest.raises(BadInput) as refused:
            await memory.record_signal(signal("market:m4", **changes))
        assert refused.value.field == field
    assert not shared.rows("SELECT FROM record_head WHERE subject_id = 'market:m4'")


async def test_an_agent_records_its_own_signals_alone(shared: MemoryHarness) -> None:
    async with memory_of(shared, "ann") as memory:
        with pytest.raises(PermissionDenied):
            await memory.record_signal(signal("market:m5", "bob"))
        with pytest.raises(StatementRejected):
            await memory._stores.database.execute(
                "retain_signals", {"retention": RETENTION, "limit": 1}, deadline=NEVER
            )
    assert ("ann", "journal", "append") in shared.audited(authorized=False)


async def test_a_company_is_bullish_or_bearish_with_or_without_a_probability(shared: MemoryHarness) -> None:
    """What other ways of recording a finding state becomes a signal all the same, once a worker has run."""
    about = {"analysis_id": "m6/1", "subject_id": "company:M6", "domain": "valuation", "statement": "Cheap."}
    async with memory_of(shared) as memory:
        await memory.record_finding(Finding(id="m6/1", agent="ann", direction="positive", confidence=0.7, **about))
        await memory.record_finding(Finding(id="m6/2", agent="ann", direction="negative", **about))
        await project(shared)
        [one] = (await memory.signals("company:M6")).signals
        assert (one.direction, one.fair_probability, one.confidence) == (SignalDirection.YES, None, 0.7)
        assert (one.agent_type, one.metadata) == ("valuation", {"statement": "Cheap."})
        about["subject_id"] = "market:m6"
        await memory.record_finding(Finding(id="m6/3", agent="ann", direction="positive", confidence=0.7, **about))
        await memory.record_finding(Finding(id="m6/4", agent="ann", probability=0.4, confidence=0.7, **about))
        await project(shared)
        [one] = (await memory.signals("market:m6")).signals
        assert (one.direction, one.fair_probability) == (SignalDirection.NO, 0.4)


@pytest.mark.spec("RC-9")
async def test_as_of_a_moment_the_text_is_the_one_of_then(shared: MemoryHarness) -> None:
    """Whatever is recorded, corrected, or has left the table since."""
    async with memory_of(shared) as memory, memory_of(shared, "curator", Role.HUMAN_ADMIN) as people:
        texts: list[tuple[datetime, str]] = []

        async def produced() -> None:
            found = await memory.signals("market:m7", limit=5)
            assert found.as_of is not None
            texts.append((found.as_of, format_memory(found, date_format="relative", include_metadata=True).text))

        await produced()
        for nth in range(3):
            await memory.record_signal(signal("market:m7", analysis_id=f"m7/{nth}", confidence=0.5 + nth / 10))
            await produced()
        finding = signal("market:m7", analysis_id="m7/1", confidence=0.6).finding("m7/1")
        corrected = finding.model_copy(update={"confidence": 0.11, "key_drivers": ("Wages",)})
        await people.correct(corrected, "Misread.")
        await project(shared)
        await produced()
        await people.correct(corrected.model_copy(update={"confidence": None}), "It has none.")
        await project(shared)
        await produced()
        assert len({text for _, text in texts}) == len(texts)
        applied(shared)
        shared.rows("DELETE FROM recall.agent_signals WHERE market_id = 'm7'")
        for at, text in texts:
            then = await memory.signals("market:m7", limit=5, as_of=at)
            assert format_memory(then, date_format="relative", include_metadata=True).text == text
            recorded = await memory.signals("market:m7", limit=5, as_of=at, clock="recorded")
            assert recorded == then


@pytest.mark.spec("RC-9")
async def test_what_no_worker_has_projected_is_read_all_the_same(
    shared: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings and corrections that wait, or are set aside; of other subjects the table is read, unless much waits."""
    await project(shared)
    asked: list[str] = []
    real = Database.named

    async def named(self: Database, name: str, given: Any = None, **more: Any) -> Any:
        asked.append(name)
        return await real(self, name, given, **more)

    monkeypatch.setattr(Database, "named", named)
    about = {"analysis_id": "m9/1", "agent": "ann", "domain": "macro", "statement": "It will.", "confidence": 0.7}
    async with memory_of(shared) as memory, memory_of(shared, "curator", Role.HUMAN_ADMIN) as people:
        first = Finding(id="m9/1", subject_id="market:m9", probability=0.6, **about)
        # Both of one transaction, so that one row is due for both.
        await memory.record_analysis(
            Analysis(id="m9/1", subject_id="market:m9", kind="macro", date=datetime.now(UTC), confidence=0.7),
            findings=[Finding(id="m9/2", subject_id="market:m9b", probability=0.3, **about), first],
        )
        live = [await memory.signals("market:m9")]
        assert [one.fair_probability for one in live[0].signals] == [0.6]
        assert [one.fair_probability for one in (await memory.signals("market:m9b")).signals] == [0.3]
        shared.rows("UPDATE due_row SET set_aside = 'It failed.' WHERE queue = 'signals'")
        await people.correct(first.model_copy(update={"probability": 0.2}), "Misread.")
        shared.rows("UPDATE due_row SET set_aside = 'It failed.' WHERE queue = 'signals'")
        live.append(await memory.signals("market:m9"))
        assert [one.fair_probability for one in live[1].signals] == [0.2]

        async def reads() -> list[str]:
            asked.clear()
            await memory.signals("market:other")
            return [name for name in asked if name.startswith("signals")]

        assert await reads() == ["signals"]
        shared.rows(
            "INSERT INTO due_row (queue, kind, key) "
            "SELECT 'signals', 'Analysis', 'x' || n FROM generate_series(1, 99) AS n"
        )
        assert await reads() == ["signals", "signals_as_of"], "no more are looked at"
        shared.rows("UPDATE due_row SET set_aside = NULL WHERE queue = 'signals'")
        await project(shared)
        assert await reads() == ["signals"]
        live.append(await memory.signals("market:m9"))
        assert live[2].signals == live[1].signals
        applied(shared)
        for found in live:
            assert await memory.signals("market:m9", as_of=found.as_of) == found


async def test_what_is_older_than_the_retention_leaves_the_table_and_not_the_journal(shared: MemoryHarness) -> None:
    old = datetime.now(UTC) - timedelta(days=181)
    about = {
        "subject_id": "market:m8",
        "agent": "ann",
        "domain": "macro",
        "statement": "Old.",
        "probability": 0.4,
        "confidence": 0.5,
    }

    async def table() -> list[str]:
        rows = shared.rows("SELECT analysis_id FROM recall.agent_signals WHERE market_id = 'm8' ORDER BY analysis_id")
        return [row["analysis_id"] for row in rows]

    async with memory_of(shared, "import", Role.HUMAN_ADMIN) as memory:
        for nth, age in enumerate((0, 2, 179)):
            at = old + timedelta(days=age)
            await memory.record_finding(Finding(id=f"m8/{nth}", analysis_id=f"m8/{nth}", **about), known_at=at)
        await project(shared)
        assert await table() == ["m8/1", "m8/2"], "too old for the table from the start"
        assert len((await memory.signals("market:m8", agent="ann")).signals) == 2
        async with pipelines_of(shared) as database:
            short = timedelta(days=100)
            assert await retain(database, short, until=NEVER) == {"deleted": 1, "more": False}
            assert await table() == ["m8/2"]
            shared.rows(
                "INSERT INTO recall.agent_signals (id, market_id, agent_name, created_at) "
                "VALUES (gen_random_uuid(), 'm8', 'others', imem_now() - interval '200 days')"
            )
            assert await retain(database, short, until=NEVER) == {"deleted": 0, "more": False}, "it is in no journal"
            shared.rows("DELETE FROM recall.agent_signals WHERE agent_name = 'others'")
            shared.rows(
                "INSERT INTO due_row (queue, kind, key) SELECT 'signals', 'Analysis', 'm8/' || n "
                "FROM generate_series(0, 2) AS n"
            )
            await project(shared, short)
            assert await table() == ["m8/2"], "a rebuild brings none back"
        applied(shared)
        then = await memory.signals("market:m8", agent="ann", as_of=old + timedelta(days=3))
        assert [one.analysis_id for one in then.signals] == ["m8/1", "m8/0"], "as it was then"
