"""Working memory and sessions without ``await``: what a program without an event loop does with them."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from pathlib import Path
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem import Memory
from imem.blocking.memories import SyncMemories
from imem.blocking.memory import SyncMemory
from imem.blocking.trading import SyncReflections, SyncTrades
from imem.blocking.working import SyncHash, SyncList, SyncMembers, SyncSession, SyncSorted, SyncWorkingMemory
from imem.cache.working.handles import HashHandle, ListHandle, MembersHandle, SortedHandle
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.values import SortedSet
from imem.checkpoints.leases import Leases
from imem.checkpoints.recovery import RecoveryTier
from imem.checkpoints.session import Session
from imem.journal.errors import (
    BadInput,
    LeaseHeld,
    LeaseLost,
    NotDelivered,
    NotOpen,
    PermissionDenied,
    StaleEpoch,
    UnsupportedType,
)
from imem.journal.settings import Role
from imem.services.memories import Memories
from imem.services.trading.reflections import Reflections
from imem.services.trading.trades import Trades
from tests.imem.memory.conftest import MemoryHarness


@pytest.fixture
def ann(harness: MemoryHarness) -> Iterator[SyncMemory]:
    with Memory.sync(harness.of()) as memory:
        yield memory


@pytest.fixture
def session(ann: SyncMemory, harness: MemoryHarness) -> Iterator[SyncSession]:
    with ann.session(harness.agent_id, **harness.names) as begun:
        yield begun


@pytest.fixture
def working(session: SyncSession) -> SyncWorkingMemory:
    return session.memory


# The twin


@pytest.mark.parametrize(
    ("original", "twin"),
    [
        (WorkingMemory, SyncWorkingMemory),
        (ListHandle, SyncList),
        (HashHandle, SyncHash),
        (MembersHandle, SyncMembers),
        (SortedHandle, SyncSorted),
        (Session, SyncSession),
        (Memories, SyncMemories),
        (Reflections, SyncReflections),
        (Trades, SyncTrades),
    ],
)
def test_a_twin_has_every_method(original: type, twin: type) -> None:
    """What the original can, its twin can."""
    public = {name for name in dir(original) if not name.startswith("_")}
    # How a session is kept alive, and the type that a handle works on, are no caller's business.
    assert public - set(dir(twin)) - {"renewed", "kind"} == set()


def test_no_method_of_a_twin_waits() -> None:
    for twin in (SyncMemory, SyncWorkingMemory, SyncList, SyncHash, SyncMembers, SyncSorted, SyncSession):
        assert [name for name, _ in inspect.getmembers(twin, inspect.iscoroutinefunction)] == []


# Working memory


def test_like_a_dict(working: SyncWorkingMemory) -> None:
    """Set, get, ask, remove, everything at once; what is missing is missing as in a dict."""
    assert isinstance(working, MutableMapping)
    working["plan"] = "read the filing"
    working["done"] = ["10-K", "10-Q"]
    working.update({"ratios": {"pe": "31.4"}, "seen": {"MU"}, "flags": SortedSet({"receivables": 0.5})})

    assert working["plan"] == "read the filing"
    assert (len(working), list(working), "plan" in working, "other" in working) == (
        5, ["done", "flags", "plan", "ratios", "seen"], True, False,
    )  # fmt: skip
    assert not working.__contains__(5)
    assert list(working.keys()) == list(working)
    assert dict(working) == dict(working.items()) == working
    assert [value for key, value in working.items() if key in {"done", "plan"}] == [["10-K", "10-Q"], "read the filing"]
    assert list(working.values())[1] == SortedSet({"receivables": 0.5})
    assert (working.get("plan", raw=True), working.get("other"), working.get("other", "x")) == (
        b"read the filing",
        None,
        "x",
    )
    assert dict(working.items(raw=True))["seen"] == {b"MU"}
    with pytest.raises(KeyError, match="other"):
        working["other"]
    with pytest.raises(KeyError, match="other"):
        del working["other"]
    with pytest.raises(KeyError, match="other"):
        working.pop("other")

    del working["done"]
    assert working.pop("plan") == "read the filing"
    assert working.pop("plan", None) is None
    assert working.setdefault("seen", {"NVDA"}) == {"MU"}
    assert working.setdefault("new", "x") == "x"
    assert working.increment("count") == 1
    assert working.delete("count")
    assert working.popitem() == ("flags", SortedSet({"receivables": 0.5}))
    working["odd"] = [b"\xff"]
    assert working.pop("odd") == [b"\xff"], "what is removed is never lost for its form"
    working.clear()
    assert len(working) == 0
    with pytest.raises(KeyError, match="empty"):
        working.popitem()


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    st.text(max_size=5),
    st.lists(st.text(max_size=3), min_size=1, max_size=3),
    st.sets(st.text(max_size=3), min_size=1, max_size=3),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1, max_size=3),
)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("del"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("pop"), KEYS, st.just("nothing")),
    st.tuples(st.just("setdefault"), KEYS, VALUES),
    st.tuples(st.just("update"), st.dictionaries(KEYS, VALUES)),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("get"), KEYS),
)


def done_to(mapping: Any, step: tuple[Any, ...]) -> Any:
    """Do one thing to a dict or its like; return what came of it."""
    name, *arguments = step
    try:
        match name:
            case "set":
                mapping[arguments[0]] = arguments[1]
                return None
            case "del":
                del mapping[arguments[0]]
                return None
            case "popitem":
                key, value = mapping.popitem()
                # Which one it is, is nobody's promise.
                mapping[key] = value
                return "some"
            case _:
                return getattr(mapping, name)(*arguments)
    except KeyError:
        return KeyError


@given(steps=st.lists(STEPS, max_size=12))
def test_a_working_memory_does_what_a_dict_does(working: SyncWorkingMemory, steps: list[tuple[Any, ...]]) -> None:
    """Whatever is done to both, they answer the same and hold the same."""
    plain: dict[str, Any] = {}
    working.clear()
    for step in steps:
        assert done_to(working, step) == done_to(plain, step), step
    assert dict(working.items()) == plain
    assert (len(working), list(working)) == (len(plain), sorted(plain))


def test_lists(working: SyncWorkingMemory) -> None:
    """The methods of the original, and Python's own ways to read."""
    log = working.list("log")
    assert (list(log), len(log), bool(log)) == ([], 0, False)
    assert_type(log.append("b", "c"), int)
    assert log.prepend("a") == 3
    assert (log[0], log[-1], log[1:], log[::-1], list(log), "b" in log) == (
        "a", "c", ["b", "c"], ["c", "b", "a"], ["a", "b", "c"], True,
    )  # fmt: skip
    with pytest.raises(IndexError, match="log has no item 3"):
        log[3]
    with pytest.raises(BadInput, match="log"):
        log.set(3, "x")
    log.set(0, "A")
    assert (log.pop(), log.pop_first(), log.range(), log.remove("b"), log.len()) == ("c", "A", ["b"], 1, 0)


def test_hashes(working: SyncWorkingMemory) -> None:
    ratios = working.hash("ratios")
    ratios["pe"] = "31.4"
    assert ratios.put({"pe": "31.5", "n": "1"}) == 1
    assert (ratios["pe"], ratios.get("roe"), "pe" in ratios, "roe" in ratios) == ("31.5", None, True, False)
    assert (ratios.increment("n", 41), sorted(ratios), len(ratios)) == (42, ["n", "pe"], 2)
    del ratios["n"]
    for gone in (lambda: ratios["n"], lambda: ratios.__delitem__("n")):
        with pytest.raises(KeyError, match="n"):
            gone()
    assert ratios.all() == {"pe": "31.5"}


def test_sets(working: SyncWorkingMemory) -> None:
    seen = working.members("seen")
    assert seen.add("MU", "NVDA") == 2
    assert ("MU" in seen, "AMD" in seen, set(seen), len(seen)) == (True, False, {"MU", "NVDA"}, 2)
    assert (seen.remove("MU"), seen.all()) == (1, {"NVDA"})


def test_sorted_sets(working: SyncWorkingMemory) -> None:
    flags = working.sorted("red flags")
    flags["receivables"] = 0.5
    assert flags.add({"goodwill": 0.25}) == 1
    assert (flags["receivables"], flags.score("x"), "goodwill" in flags, "x" in flags) == (0.5, None, True, False)
    assert (list(flags), len(flags), flags.increment("goodwill")) == (["goodwill", "receivables"], 2, 1.25)
    assert flags.ranked(down=True) == [("goodwill", 1.25), ("receivables", 0.5)]
    del flags["goodwill"]
    for gone in (lambda: flags["goodwill"], lambda: flags.__delitem__("goodwill")):
        with pytest.raises(KeyError, match="goodwill"):
            gone()


def test_what_cannot_be_kept_is_refused_by_its_key(working: SyncWorkingMemory) -> None:
    """As ever; and nothing of the batch is written."""
    bad: Any
    for bad in (1, None, [["nested"]], []):
        with pytest.raises(UnsupportedType) as caught:
            working.update({"fine": "x", "bad": bad})
        assert caught.value.field == "bad"
        with pytest.raises(UnsupportedType):
            working["bad"] = bad
    working["text"] = "x"
    with pytest.raises(UnsupportedType, match="text: holds a string"):
        len(working.list("text"))
    assert list(working) == ["text"]


def test_many_threads_share_one_memory(working: SyncWorkingMemory) -> None:
    """All of them through the one loop."""
    together = threading.Barrier(8)

    def count(_: int) -> None:
        together.wait(10)
        for _ in range(20):
            working.increment("n")
            working.list("log").append("x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))

    assert (working["n"], len(working.list("log"))) == ("160", 160)
    assert [thread.name for thread in threading.enumerate()].count("imem") == 1


# Sessions


def test_a_session_goes_on_where_the_last_one_ended(ann: SyncMemory, harness: MemoryHarness) -> None:
    """With what it knew, at its next subtask; the lease is given up at the end of the block, and the epoch grows."""
    with ann.session(harness.agent_id, **harness.names, agent_config={"model": "small"}) as session:
        assert (session.current, session.pending) == ("fetch", ("fetch", "read", "rate"))
        assert session.recovered.tier is RecoveryTier.CLEAN
        session.memory["paper"] = "10-K"
        saved = session.complete("fetch", interim_results={"pages": 120})
        assert (saved.seq, session.checkpoint, session.current) == (1, saved, "read")
        session.renew()
        with pytest.raises(BadInput, match="rate"):
            session.complete("rate")

    with ann.session(harness.agent_id, **harness.names) as again:
        assert (again.lease.epoch, again.current, again.recovered.tier) == (2, "read", RecoveryTier.LIVE)
        assert again.checkpoint.interim_results == {"pages": 120}
        assert (dict(again.memory), again.memory.epoch, again.memory.identity.agent_id) == (
            {"paper": "10-K"}, 2, harness.agent_id,
        )  # fmt: skip
        failed = again.failed("The source was silent.")
        assert (failed.failure_reason, failed.current_subtask) == ("The source was silent.", "read")
        again.complete("read")
        again.complete("rate")
        assert (again.current, again.pending) == (None, ())


def test_a_session_delivers_before_it_completes(ann: SyncMemory, harness: MemoryHarness) -> None:
    """Several calls add up; what is lost is the next to be run."""
    names = {**harness.names, "agent_type": "clerk"}
    with ann.session(harness.agent_id, **names) as session:
        session.deliver("file", postgres={"pages": 3})
        with pytest.raises(NotDelivered, match="file has delivered nothing to cache"):
            session.complete("file")
        session.deliver("file", cache=[1, 2])
        session.complete("file")
        assert (session.current, session.lost) == (None, ())
    harness.rows("DELETE FROM workflow.agent_deliverable WHERE location = 'postgres'")

    with ann.session(harness.agent_id, **names) as session:
        assert (session.current, session.lost) == ("file", ("file",))


def test_another_process_is_told_who_has_it_and_may_wait(ann: SyncMemory, harness: MemoryHarness) -> None:
    """At once by default; with a wait it begins as soon as the other has let go."""
    inside, waiting = threading.Event(), threading.Event()

    def first() -> None:
        with Memory.sync(harness.of()) as memory, memory.session(harness.agent_id, **harness.names) as session:
            session.memory["left"] = "by the first"
            session.complete("fetch")
            inside.set()
            assert waiting.wait(30)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first)
        assert inside.wait(30)
        for wait_ms in (0, 100):
            with pytest.raises(LeaseHeld), ann.session(harness.agent_id, **harness.names, wait_ms=wait_ms):
                pytest.fail("two at once")
        threading.Timer(1.0, waiting.set).start()
        with ann.session(harness.agent_id, **harness.names, wait_ms=30_000) as session:
            assert (session.lease.epoch, session.memory["left"]) == (2, "by the first")
        running.result(30)


@pytest.mark.parametrize(("named", "field"), [({"wait_ms": -1}, "wait_ms"), ({"deadline_ms": 0}, "deadline_ms")])
def test_a_wait_that_cannot_be_kept_is_refused(
    ann: SyncMemory, harness: MemoryHarness, named: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as refused, ann.session(harness.agent_id, **harness.names, **named):
        pytest.fail("it began")
    assert refused.value.field == field


def test_a_session_that_was_taken_over_stops(
    ann: SyncMemory, harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call says so, whatever it is, and so does the end of the block; nothing of it is written."""
    monkeypatch.setattr(Leases, "keep_alive", partialmethod(Leases.keep_alive, every_s=0.05))

    def write_on(session: SyncSession) -> None:
        for number in range(100_000):
            session.memory["mine"] = f"{number}"

    def block() -> None:
        with ann.session(harness.agent_id, **harness.names) as session:
            session.memory["mine"] = "x"
            session.complete("fetch")
            harness.rows("UPDATE workflow.agent_leases SET epoch = epoch + 1, holder = 'somebody else'")
            with pytest.raises(StaleEpoch):
                session.complete("read")
            # The memory itself has not heard of the other yet: that the lease is lost, the session's own task says.
            with pytest.raises(LeaseLost):
                write_on(session)

    with pytest.raises(LeaseLost):
        block()

    saved = harness.rows("SELECT seq, kind FROM workflow.agent_checkpoints ORDER BY seq")
    assert [row["kind"] for row in saved] == ["start", "subtask"]


def test_the_block_s_own_error_passes_and_the_lease_is_given_up(ann: SyncMemory, harness: MemoryHarness) -> None:
    with pytest.raises(ZeroDivisionError), ann.session(harness.agent_id, **harness.names) as session:
        session.memory["n"] = str(1 // 0)

    with ann.session(harness.agent_id, **harness.names) as again:
        assert again.lease.epoch == 2


def test_a_program_that_is_interrupted_gives_its_lease_up(harness: MemoryHarness) -> None:
    """Ctrl-C ends the block like any error, so that nobody has to wait for half a minute."""
    program = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from imem import Memory\n"
        "with Memory.sync() as memory:\n"
        f"    with memory.session({harness.agent_id!r}, **{harness.names!r}) as session:\n"
        "        print('begun', flush=True)\n"
        "        signal.pause()\n"
    )
    settings = harness.of()
    names = ("postgres_url", "valkey_working_url", "valkey_durable_url", "valkey_cache_url")
    addresses = {f"IMEM_{name.upper()}": getattr(settings, name).get_secret_value() for name in names}
    top = Path(__file__).resolve().parents[3]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("IMEM_")} | addresses | {
        "IMEM_NEO4J_URL": "bolt://127.0.0.1:1", "IMEM_AGENTS": str(settings.agents), "IMEM_ACTOR": "ann",
        "IMEM_ROLE": "agent", "PYTHONPATH": str(top), "PYTHONWARNINGS": "error",
    }  # fmt: skip

    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        child.wait(30)

    with Memory.sync(settings) as memory, memory.session(harness.agent_id, **harness.names) as session:
        assert session.lease.epoch == 2


# Who may


@pytest.mark.spec("CK-16")
def test_the_gateway_stands_before_it(session: SyncSession, harness: MemoryHarness) -> None:
    """Another agent is denied, a person looks and does not write; each denial leaves its row."""
    session.memory["plan"] = "what ann knows"

    with Memory.sync(harness.of("bob")) as other:
        looked_at = other.working(harness.agent_id)
        for asked in (lambda: looked_at["plan"], lambda: len(looked_at), lambda: looked_at.list("l").append("x")):
            with pytest.raises(PermissionDenied):
                asked()
        with pytest.raises(PermissionDenied), other.session(harness.agent_id, **harness.names):
            pytest.fail("it began")
    with Memory.sync(harness.of("boss", Role.HUMAN_ADMIN)) as person:
        looked_at = person.working(harness.agent_id)
        assert (dict(looked_at.items()), looked_at.epoch) == ({"plan": "what ann knows"}, 1)
        with pytest.raises(PermissionDenied):
            looked_at["plan"] = "a word from above"
        with pytest.raises(PermissionDenied):
            looked_at.clear()
        with pytest.raises(NotOpen, match="does not exist"):
            person.working("nobody")["plan"]
    with Memory.sync(harness.of()) as own:
        assert own.working(harness.agent_id)["plan"] == "what ann knows"

    denied = harness.audited(authorized=False)
    assert [(actor, action) for actor, _, action in denied] == [
        ("bob", "read"), ("bob", "read"), ("bob", "write"), ("bob", "write"), ("boss", "write"), ("boss", "write"),
    ]  # fmt: skip


def test_a_call_that_is_paid_for_is_made_once_in_a_thread_of_its_own(session: SyncSession) -> None:
    """Going back to the checkpoint keeps its answer, and nothing else."""
    calls: list[int] = []

    def call() -> dict[str, int]:
        calls.append(threading.get_ident())
        return {"n": len(calls)}

    session.memory["note"] = "x"
    assert session.memoize("k", call) == {"n": 1}
    session.rollback_to_checkpoint()
    assert list(session.memory) == ["calls:k"]
    assert session.memoize("k", call, durable=True) == {"n": 1}
    assert session.forget("k")
    assert session.memoize("k", call, durable=True) == {"n": 2}
    assert threading.get_ident() not in calls
