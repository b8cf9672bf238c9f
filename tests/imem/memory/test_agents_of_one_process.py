"""Analyses are started, their gates opened and answered, without SQL; several agents work in one process."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused
from imem.journal.settings import Role
from imem.memory import Memory

from .conftest import MemoryHarness


async def test_an_analysis_is_started_once(harness: MemoryHarness) -> None:
    """The same call again changes nothing; an agent that nobody defined, and a second subject, are refused."""
    agents = {"reader": harness.agent_id}
    async with Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        first = await memory.start_analysis(harness.analysis, "company:MU", agents)
        again = await memory.start_analysis(harness.analysis, "company:MU", agents)

        assert (first.status, first.stock_id, set(first.agents)) == ("RUNNING", "company:MU", {"reader"})
        assert again.agents.keys() == first.agents.keys()
        assert (await memory.analysis_state(harness.analysis)).status == "RUNNING"
        with pytest.raises(BadInput, match="nobody"):
            await memory.start_analysis("another", "company:MU", {"nobody": "x"})
        with pytest.raises(BadInput, match="company:MU"):
            await memory.start_analysis(harness.analysis, "company:ORCL", agents)
    async with Memory.open(harness.of()) as agent:
        with pytest.raises(PermissionDenied):
            await agent.start_analysis("mine", "company:MU", {"reader": "mine"})


async def test_a_gate_is_opened_and_answered(harness: MemoryHarness) -> None:
    """Once; an answer that was given stands, a gate whose time is over waits for nobody."""
    async with Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        await memory.start_analysis(harness.analysis, "company:MU", {"reader": harness.agent_id})
        due_at = datetime.now(UTC) + timedelta(hours=6)
        opened = await memory.open_gate(harness.analysis, 3, due_at=due_at)
        assert (opened.state.value, opened.due_at, opened.stock_id) == ("WAITING_FOR_HUMAN", due_at, "company:MU")
        assert await memory.open_gate(harness.analysis, 3) == opened
        assert await memory.gates() == [opened]

        answered = await memory.answer_gate(harness.analysis, 3, "validate", reason="The figures hold.")
        assert (answered.state.value, answered.reason) == ("VALIDATED", "The figures hold.")
        assert await memory.answer_gate(harness.analysis, 3, "validate", reason="Again.") == answered
        with pytest.raises(TransitionRefused, match="is VALIDATED, and cannot become"):
            await memory.answer_gate(harness.analysis, 3, "reject", reason="No.")
        assert await memory.gates() == []

        await memory.open_gate(harness.analysis, 4, due_at=datetime.now(UTC) - timedelta(seconds=1))
        with pytest.raises(TransitionRefused, match="Its time is over"):
            await memory.answer_gate(harness.analysis, 4, "validate", reason="Too late.")
    orders = ("start", "open_gate", "answer_gate", "open_gate")
    assert harness.audited(authorized=True) == [("boss", "workflow", action) for action in orders]


async def test_what_is_wrong_with_a_gate_is_named(harness: MemoryHarness) -> None:
    """No such analysis, no such gate, no such answer, a number out of bounds; and an agent may not answer."""
    async with Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        with pytest.raises(BadInput, match="no analysis runs"):
            await memory.open_gate("nothing", 1)
        await memory.start_analysis(harness.analysis, "company:MU", {"reader": harness.agent_id})
        for number in (0, 7, True):
            with pytest.raises(BadInput, match=r"^gate"):
                await memory.open_gate(harness.analysis, number)
        with pytest.raises(BadInput, match="due_at"):
            await memory.open_gate(harness.analysis, 1, due_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is tried
        with pytest.raises(BadInput, match="has no gate 2"):
            await memory.answer_gate(harness.analysis, 2, "validate", reason="Why not?")
        await memory.open_gate(harness.analysis, 1)
        with pytest.raises(BadInput, match="answer"):
            await memory.answer_gate(harness.analysis, 1, "perhaps", reason="Who knows?")
        with pytest.raises(BadInput, match="reason"):
            await memory.answer_gate(harness.analysis, 1, "validate", reason=" ")
    async with Memory.open(harness.of()) as agent:
        with pytest.raises(PermissionDenied):
            await agent.answer_gate(harness.analysis, 1, "validate", reason="I think so.")


def test_the_command_line_starts_opens_and_answers(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same orders, for people who type."""
    for name in (
        "postgres_url",
        "postgres_curator_url",
        "valkey_working_url",
        "valkey_durable_url",
        "valkey_cache_url",
    ):
        monkeypatch.setenv(f"IMEM_{name.upper()}", getattr(harness.settings, name).get_secret_value())
    monkeypatch.setenv("IMEM_NEO4J_URL", "bolt://127.0.0.1:1")
    monkeypatch.setenv("IMEM_AGENTS", str(harness.settings.agents))
    monkeypatch.setenv("IMEM_ROLE", "human_admin")

    def typed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, words)
        return done.exit_code, done.output

    gate = f"{harness.analysis}/2"
    assert typed("gates") == (0, "No gate waits.\n")
    code, said = typed("start", harness.analysis, "--subject", "company:MU", "--agent", f"reader={harness.agent_id}")
    assert (code, said.splitlines()[0]) == (0, f"{harness.analysis} of company:MU: RUNNING")
    assert typed("gates", "open", gate)[0] == 0
    code, said = typed("gates")
    assert said.startswith(f"{gate} of company:MU  WAITING_FOR_HUMAN  until ")
    code, said = typed("gates", "answer", gate, "reject", "--reason", "Odd.")
    assert (code, "SOFT_REJECTED" in said, said.endswith(": Odd.\n")) == (0, True, True)
    assert typed("gates", "answer", "nothing", "reject", "--reason", "Odd.")[0] == 2
    assert typed("start", "x", "--subject", "company:MU", "--agent", "reader")[0] == 2


# Several agents in one process


async def test_three_agents_of_one_process_each_have_their_own(harness: MemoryHarness) -> None:
    """Each writes as itself, works at once with the others, and cannot touch what is another's."""
    names = ["ann", "bob", "cyd"]
    async with Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory:

        async def work(name: str) -> None:
            agent_id = f"{name}-{harness.agent_id}"
            async with (
                memory.acting_as(name) as mine,
                mine.session(
                    agent_id, analysis_id=f"{harness.analysis}-{name}", agent_type="reader", subject_id="company:MU"
                ) as session,
            ):
                await session.memory.set("plan", name)
                await session.complete("fetch")
                assert mine._stores is memory._stores, "one gateway and one set of connections serve all"
                others = f"{names[names.index(name) - 1]}-{harness.agent_id}"
                with pytest.raises(PermissionDenied):
                    await mine.working(others).get("plan")
                with pytest.raises(PermissionDenied):
                    await mine.pause(harness.analysis, "Agents do not pause.")

        # One after the other has begun, so that each finds the one before it.
        for name in names:
            async with (
                memory.acting_as(name) as mine,
                mine.session(
                    f"{name}-{harness.agent_id}",
                    analysis_id=f"{harness.analysis}-{name}",
                    agent_type="reader",
                    subject_id="company:MU",
                ),
            ):
                pass
        await asyncio.gather(*(work(name) for name in names))
        assert await memory.gates() == [], "the memory that lent is as it was"
    owners = harness.rows("SELECT owner FROM workflow.agent_instance ORDER BY owner")
    assert [row["owner"] for row in owners] == names


def test_without_an_event_loop(harness: MemoryHarness) -> None:
    """The same, blocking; a name that is none is refused."""
    with Memory.sync(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        with (
            memory.acting_as("ann") as ann,
            ann.session(harness.agent_id, **harness.names) as session,
        ):
            session.memory["plan"] = "read"
            session.complete("fetch")
        for name in ("", "import:desk", "a\nb", "x" * 201):
            with pytest.raises(BadInput, match="agent"), memory.acting_as(name):
                pass
        assert memory.gates() == []


async def test_a_session_notices_a_pause(harness: MemoryHarness) -> None:
    """Between two subtasks it asks; before the pause nothing stops it, and the pause ends once it has left."""
    async with (
        Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory,
        memory.acting_as("ann") as ann,
    ):
        done = []
        ordered = None
        async with ann.session(harness.agent_id, **harness.names) as session:
            while (subtask := session.current) is not None and await session.stop_reason() is None:
                await session.complete(subtask)
                done.append(subtask)
                if subtask == "read":
                    ordered = asyncio.create_task(memory.pause(harness.analysis, "The figures look odd."))
                    while await session.stop_reason() is None:  # noqa: ASYNC110 - there is no event to wait for
                        await asyncio.sleep(0.02)
            left = session.current
        assert (done, left) == (["fetch", "read"], "rate")
        assert ordered is not None
        assert (await ordered).status.value == "PAUSED"
