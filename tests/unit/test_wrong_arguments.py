"""What is wrong with an argument is said by its name, by every method there is, before any server is asked."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from pydantic import BaseModel

from imem.cache.working.handles import HashHandle, ListHandle, MembersHandle, SortedHandle
from imem.cache.working.memory import WorkingMemory
from imem.checkpoints.conversations.messages import Message
from imem.checkpoints.session import Session
from imem.checkpoints.versions import CheckpointMigrations
from imem.journal.arguments import CHECKED_INSIDE, Checks
from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.kg.model import Company, Finding, Turn
from imem.langgraph import ImemSaver
from imem.memory import Memory
from imem.recall.rendering.markdown import LEAST_TOKENS
from imem.recall.retrievers import Limits
from imem.services.conversations import Conversation
from imem.services.memories import Memories
from imem.services.pauses import PauseCommands
from imem.services.trading.reflections import Reflections
from imem.services.trading.trades import Trades
from imem.services.working import AgentServices, AuthorizedMemory
from tests.recall.pages import briefing
from tests.surface import FUNCTIONS, hints_of, methods_of, public_classes

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ANYTHING_ELSE = object()

CHECKING = (
    Memory, Conversation, Memories, Trades, Reflections, AuthorizedMemory, WorkingMemory, Session,
    AgentServices, PauseCommands, ListHandle, HashHandle, MembersHandle, SortedHandle, ImemSaver, CheckpointMigrations,
)  # fmt: skip

LENT = (Deadline, ManualClock)
"""Values that callers make themselves, and hand over."""

NOWHERE = {
    "IMEM_POSTGRES_URL": "postgresql://u:p@127.0.0.1:1/d",
    "IMEM_NEO4J_URL": "bolt://127.0.0.1:1",
    "IMEM_VALKEY_WORKING_URL": "redis://127.0.0.1:1/0",
    "IMEM_VALKEY_DURABLE_URL": "redis://127.0.0.1:1/0",
    "IMEM_VALKEY_CACHE_URL": "redis://127.0.0.1:1/0",
}

WRONG: dict[object, tuple[Any, ...]] = {
    str: (5, b"company:MU", 2.5, [], {}, NOW, "a\0b", "\ud800", "x" * 100_000),
    int: ("5", 2.5, math.nan, True, 2**70, [], NOW),
    float: ("5", math.nan, True, 10**400, [], NOW),
    bytes: (5, "text", [], {}, NOW),
    bool: (0, 1, "yes", [], NOW),
    timedelta: ("5", 5, NOW, True),
    datetime: (
        5,
        "2026-06-03",
        "2026-06-03T00:00:00Z",
        date(2026, 6, 3),
        datetime(2026, 6, 3),  # noqa: DTZ001 - the point
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
        True,
    ),
    Mapping: (5, "a", [], [("a", 1)], NOW),
    Collection: (5, "text", b"bytes", {"a": 1}, NOW),
    tuple: (("Company",), ("Company", "MU", "NVDA"), ["Company", "MU"], ("Company", 5), "Company"),
}
"""Values that are wrong, by what a parameter is annotated with."""


def wrong_for(annotation: Any) -> Iterator[Any]:
    """Values that *annotation* does not allow; None where it is checked where it is used."""
    parts = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    parts = parts or (annotation,)
    if any(part is Any or CHECKED_INSIDE in typing.get_args(part) for part in parts):
        return
    kinds = {typing.get_origin(part) or part for part in parts}
    yield ANYTHING_ELSE
    if type(None) not in kinds:
        yield None
    kinds.discard(type(None))
    if kinds <= {str}:
        yield from WRONG[str]
    elif len(kinds) == 1:
        kind = kinds.pop()
        for base in (str, bytes, timedelta, datetime, bool, int, float, tuple, Mapping, Collection):
            if isinstance(kind, type) and issubclass(kind, base):
                yield from WRONG[base]
                return
        yield from (5, "x", {}, Finding if issubclass(Company, kind) else Company(ticker="MU"))


def _values() -> set[type]:
    """Those that the methods give, beside settings."""
    kinds = set(public_classes()) - {Settings}
    return {kind for kind in kinds if issubclass(kind, BaseModel | Enum | list) or is_dataclass(kind)}


def _checked() -> Iterator[tuple[type, Mapping[str, Callable[..., Any]]]]:
    """
    Every class whose methods check, with those methods.

    A class method of a value that is given makes it of what a store answered. What is wrong there is damage, and is
    said as that.
    """
    yield from ((kind, methods_of(kind)) for kind in (*CHECKING, *LENT))
    for kind in sorted(_values() - {*CHECKING, *LENT}, key=lambda one: (one.__module__, one.__qualname__)):
        yield kind, {name: one for name, one in methods_of(kind).items() if not inspect.ismethod(one)}


def _cases() -> Iterator[tuple[type, str, str]]:
    for kind, methods in _checked():
        for name, method in methods.items():
            yield from (
                (kind, name, one.name)
                for one in inspect.signature(method).parameters.values()
                if one.name != "self" and one.kind is not one.VAR_POSITIONAL
            )


def _id(case: object) -> str:
    return case if isinstance(case, str) else str(getattr(case, "__qualname__", case))


@pytest.mark.parametrize(("kind", "name", "parameter"), list(_cases()), ids=_id)
async def test_a_wrong_value_is_refused_by_the_name_of_its_parameter(kind: type, name: str, parameter: str) -> None:
    """Without a look at anything else: the object it is called on holds nothing here."""
    method = methods_of(kind)[name]
    await refuses_wrong_values(
        method, parameter, *([object.__new__(kind)] if "self" in inspect.signature(method).parameters else [])
    )


@pytest.mark.parametrize(
    ("function", "parameter"), [(one, name) for one in FUNCTIONS for name in inspect.signature(one).parameters], ids=_id
)
async def test_so_does_what_belongs_to_no_class(function: Callable[..., Any], parameter: str) -> None:
    """Module by module; whatever else is missing."""
    await refuses_wrong_values(function, parameter)


async def refuses_wrong_values(function: Callable[..., Any], parameter: str, *own: object) -> None:
    """Assert that *function* refuses every wrong value of *parameter* by its name."""

    async def called(value: Any) -> None:
        answer = function(*own, **{parameter: value})
        if inspect.isawaitable(answer):
            await answer

    for value in wrong_for(hints_of(function)[parameter]):
        with pytest.raises(BadInput) as raised:
            await called(value)
        assert raised.value.field.partition(".")[0] == parameter, (value, raised.value)


def test_every_class_of_methods_is_among_them() -> None:
    """What programs are lent checks, and so do values; the twins without ``await`` hand on to them."""
    twins = {kind for kind in public_classes() if kind.__module__.startswith("imem.blocking.")}

    methodical = {kind for kind in public_classes() if methods_of(kind)}

    assert methodical - _values() - twins <= {Settings, *CHECKING}


@pytest.mark.parametrize("methods", [methods for _, methods in _checked()], ids=[_id(kind) for kind, _ in _checked()])
def test_every_method_checks(methods: Mapping[str, Callable[..., Any]]) -> None:
    """For each parameter of each method it is known what it takes."""
    for method in methods.values():
        Checks.of(inspect.unwrap(method))


@pytest_asyncio.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    """Open a memory whose servers are away."""
    async with Memory.open(Settings.read({**NOWHERE, "IMEM_HOME": str(tmp_path)})) as opened:
        yield opened


Call = Callable[[Any], Awaitable[Any]]

MOMENT = "as_of: must be a datetime with its zone, such as datetime(2026, 6, 1, tzinfo=UTC), not"

SAID: list[tuple[Call, str]] = [
    (lambda m: m.brief(None), "subject: must be text, not None."),
    (lambda m: m.brief("MU", as_of="2026-06-03"), f"{MOMENT} str."),
    (lambda m: m.brief("MU", as_of=date(2026, 6, 3)), f"{MOMENT} date."),
    (lambda m: m.brief("MU", as_of=5), f"{MOMENT} int."),
    (lambda m: m.brief("MU", clock="recieved"), "clock: must be known or recorded, not 'recieved'."),
    (lambda m: m.brief("MU", limits={"analyses": 5}), "limits: must be a Limits, not dict."),
    (lambda m: m.brief("MU", limits=Limits(cast("Any", "5"))), "limits.analyses: must be a whole number, not str."),
    (lambda m: m.history("MU", limit="5"), "limit: must be a whole number, not str."),
    (lambda m: m.link("PERFORMED", ("Agent", "a", "b"), ("Analysis", "x")), "start: must be a tuple of 2, not of 3."),
    (lambda m: m.link("PERFORMED", ("Agent", "a"), ("Analysis",)), "end: must be a tuple of 2, not of 1."),
    (lambda m: m.link("PERFORMED", ("Agent", "a"), ("Analysis", "x"), {1: 2}), "props: must be text, not int."),
    (lambda m: m.record_finding(Company(ticker="MU")), "finding: must be a Finding, not Company."),
    (lambda m: m.record_finding({"id": "f"}), "finding: must be a Finding, not dict."),
    (lambda m: m.conversation("w", "t").add({}), "message: must be a Message, not dict."),
    (lambda m: m.force_sync("mu-valuation"), "agents: must be a list, not str."),
    (lambda m: m.query("company_history", {"subject_id": 5}), "subject_id: must be text, not int."),
    (lambda m: m.working("mu").get("a", deadline=5), "deadline: must be a Deadline, not int."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), SAID, ids=[sentence for _, sentence in SAID])
async def test_what_a_caller_reads(memory: Memory, call: Call, sentence: str) -> None:
    """The argument, what it must be, and what was given."""
    with pytest.raises(BadInput) as raised:
        await call(memory)
    assert str(raised.value) == sentence


VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: page(max_tokens="1900"), "max_tokens: must be a whole number, not str."),
    (lambda: page(max_tokens=1900.0), "max_tokens: must be a whole number, not float."),
    (lambda: page(max_chars=True), "max_chars: must be a whole number, not bool."),
    (lambda: page(max_tokens=5), f"max_tokens: must be at least {LEAST_TOKENS:,}: headings and notes alone need that."),
    (lambda: Deadline.after_ms(cast("Any", "500")), "budget_ms: must be a number, not str."),
    (lambda: Deadline.never().within_ms(math.nan), "budget_ms: must be a number, not NaN."),
]


def page(**bounds: Any) -> str:
    return briefing().to_markdown(**bounds)


@pytest.mark.parametrize(("call", "sentence"), VALUES, ids=[sentence for _, sentence in VALUES])
def test_what_a_caller_of_a_value_reads(call: Callable[[], object], sentence: str) -> None:
    """An answer in hand refuses as the memory does."""
    with pytest.raises(BadInput) as raised:
        call()
    assert str(raised.value) == sentence


MODELS: list[tuple[Callable[[], object], str]] = [
    (lambda: finding(id=None), "id: must be a string."),
    (lambda: Company(ticker=cast("Any", 5)), "ticker: must be a string."),
    (lambda: Company(ticker="a\ud800"), "ticker: holds a lone surrogate, which is no character."),
    (lambda: finding(confidense=0.5), "confidense: is no field of Finding. Did you mean confidence?"),
    (lambda: Company(ticker="MU", profile=cast("Any", {"name": 5})), "profile.name: must be a string."),
    (lambda: Company.Profile(name="a\0b"), "name: holds a NUL character."),
    (lambda: finding(subject_id="MU"), "subject_id: must be company:<ticker> or market:<market_id>."),
    (lambda: finding(metric=5), "metric: must be a string."),
    (lambda: finding(confidence=math.nan), "confidence: must be a finite number."),
    (
        lambda: finding(target_at=date(2026, 6, 1)),
        "target_at: must be a time with its zone, such as 2026-06-01T10:27:49Z.",
    ),
    (lambda: Turn(number=0, speaker="ann", text=cast("Any", b"No.")), "text: must be a string."),
    (
        lambda: Message(role=cast("Any", "person"), content="a"),
        "role: 'person' is none of user, assistant, system, tool.",
    ),
    (lambda: Message(role="user", content=cast("Any", 5)), "content: is a text."),
]


def finding(**values: Any) -> Finding:
    given = {
        "id": "f",
        "analysis_id": "a",
        "subject_id": "company:MU",
        "agent": "ann",
        "domain": "d",
        "statement": "It rises.",
    }
    return Finding(**{**given, **values})


@pytest.mark.parametrize(("make", "sentence"), MODELS, ids=[sentence for _, sentence in MODELS])
def test_a_model_with_wrong_content(make: Callable[[], object], sentence: str) -> None:
    """One error tree for what is constructed as well: the field, in the words of the journal's refusals."""
    with pytest.raises(BadInput) as raised:
        make()
    assert str(raised.value) == sentence


async def test_settings_are_settings() -> None:
    """Not a mapping of them."""
    with pytest.raises(BadInput, match=r"^settings: must be a Settings, not dict\.$"):
        async with Memory.open(cast("Settings", NOWHERE)):
            pass


def test_without_await_it_is_the_same(tmp_path: Path) -> None:
    """The blocking twin hands the error on."""
    with (
        Memory.sync(Settings.read({**NOWHERE, "IMEM_HOME": str(tmp_path)})) as memory,
        pytest.raises(BadInput, match=r"^as_of: "),
    ):
        memory.brief("MU", as_of=cast("datetime", "2026-06-03"))
