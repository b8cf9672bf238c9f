"""A misspelt keyword is refused by whatever takes keywords: ``asof=`` must not be answered as of now."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from imem.blocking.conversations import SyncConversation
from imem.blocking.memory import SyncMemory
from imem.blocking.twin import Twin
from imem.blocking.working import SyncHash, SyncSession, SyncWorkingMemory
from imem.cache.working.handles import HashHandle
from imem.cache.working.memory import WorkingMemory
from imem.checkpoints.session import Session
from imem.checkpoints.versions import CheckpointMigrations
from imem.journal.errors import SettingsError
from imem.journal.settings import Settings
from imem.langgraph import ImemSaver
from imem.services.conversations import Conversation
from imem.services.working import AuthorizedMemory
from tests.surface import CONSTRUCTED, FUNCTIONS, methods_of, ours, public_classes, public_methods

UNKNOWN = "knwon_at"


def _id(case: object) -> str:
    return case if isinstance(case, str) else str(getattr(case, "__qualname__", case))


def test_what_programs_get_is_found() -> None:
    """The walk over the surface reaches what a program is lent, with and without ``await``."""
    lent = {
        Session, Conversation, AuthorizedMemory, WorkingMemory, HashHandle,
        SyncMemory, SyncSession, SyncConversation, SyncWorkingMemory, SyncHash, ImemSaver,
        CheckpointMigrations,
    }  # fmt: skip
    found = {one for kind in public_classes() for one in kind.__mro__}

    assert lent - found == set()
    assert {"brief", "record_finding", "pause", "push", "session"} <= methods_of(SyncMemory).keys()


@pytest.mark.parametrize(("kind", "name"), public_methods(), ids=_id)
async def test_no_method_takes_an_unknown_keyword(kind: type, name: str) -> None:
    """With every parameter that it must have given, the one that it does not know is what is wrong."""
    await refuses(getattr(_twin(kind), name) if issubclass(kind, Twin) else methods_of(kind)[name])


class _Caller:
    """Runs a coroutine until it waits for the first time, which none does that was called wrongly."""

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return coroutine.send(None)


def _twin(kind: type[Twin[Any]]) -> Twin[Any]:
    """A twin whose original was never constructed, since it hands on what it is called with."""
    twin: Twin[Any] = object.__new__(kind)
    [original] = get_args(vars(kind)["__orig_bases__"][0])
    Twin.__init__(twin, _Caller(), object.__new__(original))
    return twin


@pytest.mark.parametrize("function", [*CONSTRUCTED, *FUNCTIONS], ids=_id)
async def test_no_constructor_and_no_function_takes_an_unknown_keyword(function: Callable[..., Any]) -> None:
    """Nor one that belongs to no object."""
    await refuses(function)


async def refuses(method: Callable[..., Any]) -> None:
    """Assert that *method* refuses a keyword that it does not know."""
    needed = [one for one in inspect.signature(method).parameters.values() if one.default is one.empty]
    given = {one.name: None for one in needed if one.kind is one.KEYWORD_ONLY}
    positions = [None for one in needed if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]

    async def called() -> None:
        answer = method(*positions, **given, **{UNKNOWN: None})
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises((TypeError, SettingsError), match=rf"(?i){UNKNOWN}"):
        await called()


def test_settings_refuse_an_unknown_name() -> None:
    """Whether it comes from the environment or from the program."""
    with pytest.raises(SettingsError, match="IMEM_DEADLINE_S"):
        Settings.read({"IMEM_DEADLINE_S": "5"})
    with pytest.raises(SettingsError, match="IMEM_DEADLINE_S"):
        Settings.read({}, deadline_s=5)


def _models(kind: type[BaseModel] = BaseModel) -> Iterator[type[BaseModel]]:
    for one in kind.__subclasses__():
        if ours(one):
            yield one
        yield from _models(one)


@pytest.mark.parametrize("kind", sorted(set(_models()), key=str), ids=_id)
def test_no_model_takes_an_unknown_field(kind: type[BaseModel]) -> None:
    """Neither what is recorded nor what is answered."""
    assert kind.model_config.get("extra") == "forbid"
