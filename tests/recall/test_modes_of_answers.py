"""Every answer says how well the institution could answer, not briefings alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import psycopg
from psycopg import sql
from pydantic import SecretStr

from imem.journal.modes import Mode
from imem.memory import Memory
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day

NOBODY = "127.0.0.1:1"
HISTORY = {"subject_id": "company:T0", "limit": 5, "findings_limit": 5, "detailed": 2}
SOON = timedelta(microseconds=1)
AT = datetime.fromisoformat(day(5))


async def known(harness: RecallHarness) -> None:
    text: Line = {**facts.analysis("a0", 1), "body": "All of it."}
    await harness.know(
        [
            facts.company("T0", 0), facts.agent("agent0", 0), text, facts.finding("f0", 1, probability=0.9),
            facts.performed("a0", 1), facts.debate("b0", 2), facts.outcome("o0", 4, actual=1.0),
        ]
    )  # fmt: skip


async def modes_of(memory: Memory) -> dict[str, Mode | None]:
    """Ask everything that there is to ask; return what each answer says."""
    text = await memory.text("Analysis", "a0")
    assert text is not None
    return {
        "brief": (await memory.brief("T0")).mode,
        "history": (await memory.history("T0")).mode,
        "similar": (await memory.similar("T0")).mode,
        "debates": (await memory.debates("T0")).mode,
        "contradictions": (await memory.contradictions("T0")).mode,
        "patterns": (await memory.patterns("T0")).mode,
        "lessons": (await memory.lessons("T0")).mode,
        "track record": (await memory.track_record("agent0")).mode,
        "no track record": (await memory.track_record("nobody")).mode,
        "debate": (await memory.debate("b0")).mode,
        "text": text.mode,
        "query": (await memory.query("nearest_names", {"search": "t0"})).mode,
        "query of a day": (await memory.query("company_history", HISTORY, as_of=AT)).mode,
    }  # fmt: skip


async def test_all_is_well(harness: RecallHarness) -> None:
    await known(harness)
    found = await modes_of(harness.memory)
    assert set(found.values()) == {Mode.NORMAL}, found
    assert (await harness.memory.brief("T0")).history.mode is None, "a briefing says it for all its parts"


async def test_while_the_graph_catches_up(harness: RecallHarness) -> None:
    """An event that waits for a minute: what is asked then says so, whatever it is."""
    await known(harness)
    await harness.journal.say(facts.analysis("a1", 2))
    url = harness.journal.admin_url
    with psycopg.connect(url, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET imem.clock_shift = '60s'").format(name))
    async with Memory.open(
        harness.settings.model_copy(update={"postgres_url": SecretStr(url), "postgres_curator_url": None})
    ) as memory:
        found = await modes_of(memory)
    # What similar analyses there are is not exact before they were compared.
    assert {name for name, mode in found.items() if mode is not Mode.RECOVERING} <= {"brief", "similar"}, found


async def test_a_kept_answer_says_it_as_well(telling: RecallHarness) -> None:
    """Where nothing has to be asked, what was heard last of how far the graph is behind counts."""
    await known(telling)
    await telling.memory.history("T0")
    last_horizon = telling.memory._recall.sources.last_horizon
    assert last_horizon.read_horizon is not None
    last_horizon.note(
        replace(
            last_horizon.read_horizon,
            horizon=last_horizon.read_horizon.now - timedelta(minutes=1),
            now=last_horizon.read_horizon.now + SOON,
        )
    )
    assert (await telling.memory.history("T0")).mode is Mode.RECOVERING


async def test_while_neo4j_is_away(harness: RecallHarness) -> None:
    """What Postgres alone says is whole; what lacks the graph says that it does."""
    await known(harness)
    async with Memory.open(harness.settings.model_copy(update={"neo4j_url": f"bolt://{NOBODY}"})) as memory:
        assert (await memory.history("T0", deadline_ms=30_000)).mode is Mode.DEGRADED_READ
        assert (await memory.track_record("agent0")).mode is Mode.NORMAL


async def test_while_postgres_is_away(harness: RecallHarness) -> None:
    """A query of the graph is answered without the journal, and says that nothing can be recorded."""
    await known(harness)
    url = SecretStr(f"postgresql://imem_app:none@{NOBODY}/imem")
    async with Memory.open(
        harness.settings.model_copy(update={"postgres_url": url, "postgres_curator_url": None})
    ) as memory:
        rows = await memory.query("nearest_names", {"search": "t0"}, deadline_ms=30_000)
    assert rows[0]["subject_id"] == "company:T0"
    assert rows.mode is Mode.READ_ONLY
