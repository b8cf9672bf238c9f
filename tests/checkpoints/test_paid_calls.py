"""No call is paid for twice: by processes that are killed, attempts that are repeated, and tasks that ask at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from imem.cache.working.document import MemoryEntry, Type, digest
from imem.cache.working.state import MemoryIdentity
from imem.checkpoints.model import CheckpointKind
from imem.checkpoints.paid_calls import (
    LONGEST_CALL,
    CallOwner,
    answer_in,
    calls_in,
    joined,
    key_of,
    stored_answer,
    without_calls,
)
from imem.checkpoints.session import Session
from imem.journal.errors import BadInput, ConsistencyError, UnsupportedType
from tests import forking
from tests.checkpoints.conftest import World, soon
from tests.checkpoints.recovering import READERS, desk_of, identity, names
from tests.http_server import Answer, serving

OWNER = CallOwner(MemoryIdentity("reader-1", "a-1", "reader"), 1)


def entry(answer: dict[bytes, bytes]) -> MemoryEntry:
    return MemoryEntry(Type.HASH, tuple(answer.items()))


# In a process that is killed


async def lose_working_memory(world: World) -> None:
    plain = redis.asyncio.Redis.from_url(world.settings.valkey_working_url.get_secret_value())
    await plain.delete(*[key async for key in plain.scan_iter(f"L1:{world.agent('reader')}:*")])
    await plain.aclose()


async def ran(task: dict[str, Any]) -> tuple[int, str]:
    """Run the paying agent in a process of its own; return how it ended and what it printed."""
    program = str(forking.TOP / "tests" / "checkpoints" / "paying.py")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(forking.TOP)}
    done = await asyncio.to_thread(forking.run, "script", program, env=env, stdin=json.dumps(task).encode())
    return done.returncode, done.stdout


@pytest.mark.parametrize("durable", [False, True], ids=["kept", "durable and the working server empty"])
@pytest.mark.parametrize("pays_in", ["fetch", "read", "rate"])
async def test_a_process_that_is_killed_after_it_paid_is_followed_by_one_that_does_not(
    world: World, pays_in: str, *, durable: bool
) -> None:
    """In the first subtask, in one that may be entered again, and in a later one; killed twice. All else is undone."""
    with serving(lambda _: Answer(body=b'{"price": 98.5}')) as upstream:
        task = {
            "postgres": world.url, "working": world.settings.valkey_working_url.get_secret_value(),
            "durable": world.settings.valkey_durable_url.get_secret_value(), "upstream": upstream.url,
            "analysis": world.analysis, "agent": world.agent("reader"), "pays_in": pays_in,
                "keep": durable,
        }  # fmt: skip
        for _ in range(2):
            assert (await ran({**task, "dies": True}))[0] == -signal.SIGKILL
            world.owner("UPDATE workflow.agent_leases SET expires_at = imem_now()")
            if durable:
                await lose_working_memory(world)
        code, out = await ran({**task, "dies": False})

        assert code == 0
        assert len(upstream.asked) == 1
    log = json.loads(out.splitlines()[-1])
    again = 2 if pays_in == "read" and not durable else 0
    assert log.count("paid 98.5") == 1 + again
    for name in READERS.of_type("reader").names:
        assert log.count(f"{name} begun") == 1 + (again if name == pays_in else 0)


# In a session


class Upstream:
    """What is paid for: counts, and answers with the number of the call."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> dict[str, Any]:
        self.calls += 1
        await asyncio.sleep(0)
        return {"call": self.calls, "rows": [1.5, None, "x\0"]}


@asynccontextmanager
async def begun(world: World) -> AsyncIterator[Session]:
    async with desk_of(replace(world, definitions=READERS)).begin(**names(world)) as session:
        yield session


async def test_tasks_that_ask_at_once_make_one_call(world: World) -> None:
    upstream = Upstream()
    async with begun(world) as session:
        answers = await asyncio.gather(*(session.memoize("k", upstream) for _ in range(20)))
    assert upstream.calls == 1
    assert answers == [{"call": 1, "rows": [1.5, None, "x\0"]}] * 20


async def test_a_call_that_fails_is_made_again(world: World) -> None:
    upstream = Upstream()

    async def failing() -> str:
        raise ZeroDivisionError

    async with begun(world) as session:
        with pytest.raises(ZeroDivisionError):
            await session.memoize("k", failing)
        assert (await session.memoize("k", upstream))["call"] == 1


async def test_another_attempt_undoes_everything_but_what_was_paid_for(world: World) -> None:
    """Whatever happened to the memory meanwhile: written to, cleared by its server, left half restored."""
    upstream = Upstream()
    async with begun(world) as session:
        await session.memory.set("done", "1")
        await session.complete("fetch")
        await session.complete("read")
        await session.memory.list("log").append("begun")
        for trouble in (None, "lost", "torn"):
            assert (await session.memoize("k", upstream))["call"] == 1
            its = world.memories
            if trouble == "lost":
                await its.clear(world.agent("reader"), session.lease.epoch, deadline=soon())
            elif trouble == "torn":
                plain = redis.asyncio.Redis.from_url(world.settings.valkey_working_url.get_secret_value())
                await plain.eval(
                    "redis.call('HSET', KEYS[1], 'state', 'RESTORING')", 1, f"L1:{world.agent('reader')}:meta"
                )
                await plain.aclose()
                session._calls.saved({"calls:k"})
            await session.rollback_to_checkpoint()
            assert sorted(await session.memory.keys()) == (["done"] if trouble == "lost" else ["calls:k", "done"]), (
                trouble
            )
        await session.complete("rate")
    async with begun(world) as session:
        assert (await session.memoize("k", upstream))["call"] == 1
        assert session.recovered.tier.value == "l1_existing"


async def test_an_answer_that_is_forgotten_is_asked_for_again(world: World) -> None:
    upstream = Upstream()
    async with begun(world) as session:
        await session.memoize("k", upstream)
        assert await session.forget("k")
        assert not await session.forget("k")
        assert (await session.memoize("k", upstream))["call"] == 2


async def test_a_durable_answer_is_on_the_durable_server_until_a_checkpoint_holds_it(world: World) -> None:
    """Forgotten, it is no answer there either; with the snapshot it goes."""
    upstream, name, agent = Upstream(), b"calls:k", world.agent("reader")
    async with begun(world) as session:
        await session.memoize("k", upstream, durable=True)
        assert b'"call":1' in (await world.snapshots.get_call(agent, name, deadline=soon()) or b"")
        await session.forget("k")
        assert (await session.memoize("k", upstream, durable=True))["call"] == 2
        await session.complete("fetch")
        assert await world.snapshots.get_call(agent, name, deadline=soon()) is None
        await session.memoize("j", upstream, durable=True)
        await world.snapshots.drop(agent, deadline=soon())
        assert await world.snapshots.get_call(agent, b"calls:j", deadline=soon()) is None


async def test_an_answer_that_was_tampered_with_is_not_believed(world: World) -> None:
    """Nor is what a program wrote under the reserved name itself, or what another agent paid for."""
    upstream = Upstream()
    async with begun(world) as session:
        await session.memoize("k", upstream)
        await session.memory.hash("calls:k").put({"answer": '{"call":7}'})
        with pytest.raises(ConsistencyError):
            await session.memoize("k", upstream)
        await session.memory.set("calls:own", "x")
        with pytest.raises(UnsupportedType):
            await session.memoize("own", upstream)
        other = CallOwner(replace(identity(world), analysis_id="other"), 1)
        await session.memory.set("calls:theirs", stored_answer("calls:theirs", "x", other))
        await session.rollback_to_checkpoint()
        assert await session.memory.keys() == []


async def test_a_run_that_begins_clean_pays_anew(world: World) -> None:
    """What it knew before does not count, its calls among it."""
    upstream = Upstream()
    async with begun(world) as session:
        await session.memoize("k", upstream)
        await session.complete("fetch")
        await desk_of(replace(world, definitions=READERS)).checkpoints.save(
            session.lease, kind=CheckpointKind.START, deadline=soon()
        )
    async with begun(world) as session:
        assert await session.memory.keys() == []
        assert (await session.memoize("k", upstream))["call"] == 2


# Their form


@given(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.binary(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        ).filter(lambda value: not isinstance(value, str)),
    )
)
def test_answers_come_back_as_they_were(answer: Any) -> None:
    found = stored_answer("calls:k", answer, OWNER)
    assert answer_in("calls:k", found, OWNER) == answer
    assert type(answer_in("calls:k", found, OWNER)) is type(answer)
    assert calls_in({b"calls:k": entry(found)}, OWNER) != {}


@pytest.mark.parametrize(
    ("suffix", "owner", "change"),
    [
        (b"calls:j", OWNER, {}),
        (b"plain", OWNER, {}),
        (b"calls:k", replace(OWNER, run=2), {}),
        (b"calls:k", replace(OWNER, identity=replace(OWNER.identity, agent_id="reader-2")), {}),
        (b"calls:k", OWNER, {b"answer": b"other"}),
        (b"calls:k", OWNER, {b"form": b"bytes"}),
        (b"calls:k", OWNER, {b"more": b""}),
    ],
)
def test_what_is_not_proven_is_no_answer(suffix: bytes, owner: CallOwner, change: dict[bytes, bytes]) -> None:
    found = {suffix: entry({**stored_answer("calls:k", "x", OWNER), **change})}
    assert calls_in(found, owner) == {}
    assert without_calls(found, owner) == found


@pytest.mark.parametrize("answer", [float("nan"), object(), {"a": {1, 2}}, "\ud800"])
def test_what_has_no_form_is_refused_by_name(answer: object) -> None:
    with pytest.raises(UnsupportedType) as refused:
        stored_answer("calls:k", answer, OWNER)
    assert refused.value.field == "calls:k"


def test_keys_of_calls_have_bounds() -> None:
    assert key_of("k" * LONGEST_CALL) == "calls:" + "k" * LONGEST_CALL
    for wrong in ("", "k" * (LONGEST_CALL + 1), "a\0b", 7):
        with pytest.raises(BadInput):
            key_of(wrong)


def test_answers_that_do_not_fit_beside_a_checkpoint_are_left_out() -> None:
    base = {b"big": MemoryEntry(Type.STRING, (b"x" * 8_000_000,))}
    small, large = entry(stored_answer("calls:s", "x", OWNER)), entry(stored_answer("calls:l", "x" * 500_000, OWNER))
    whole = joined(base, {b"calls:l": large, b"calls:s": small})
    assert whole.keys() == {b"big", b"calls:s"}
    assert digest(joined(base, {})) == digest(base)
