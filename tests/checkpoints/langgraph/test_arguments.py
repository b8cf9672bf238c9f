"""Wrong arguments of the saver are said by name, before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import psycopg
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from imem.checkpoints.langgraph.value_types import types_of
from imem.journal.errors import BadInput
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph import test_types
from tests.checkpoints.langgraph.conftest import Base, checkpoint, config, metadata, thread
from tests.checkpoints.langgraph.test_types import Plan

HERE = test_types.__name__


def _local() -> type:
    class Local:
        """A class that no module has."""

    return Local


@pytest.fixture
def pools() -> Iterator[tuple[ConnectionPool[Any], AsyncConnectionPool[Any]]]:
    """Give pools that were never opened."""
    url = "postgresql://nobody@127.0.0.1:1/none"
    with ConnectionPool(url, min_size=0, max_size=1, open=False) as pool:
        yield pool, AsyncConnectionPool(url, min_size=0, max_size=1, open=False)


@pytest.mark.parametrize("settings", [{}, {"postgres_url": "postgresql://a/b"}, 0, "", False])
def test_what_is_no_settings_is_not_the_environment(base: Base, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Neither what counts as false, as an empty mapping does, nor what was meant to be a server."""
    monkeypatch.setenv("IMEM_POSTGRES_URL", base.url)
    with pytest.raises(
        BadInput, match=r"^settings: must be a Settings or None, not|^settings: must be a Settings, not"
    ):
        ImemSaver.open(settings)


@pytest.mark.parametrize(
    ("allow", "field"),
    [
        (f"{HERE}.Plan", "allow"),
        (b"Plan", "allow"),
        (None, "allow"),
        (5, "allow"),
        (Plan, "allow"),
        ({HERE: "Plan"}, "allow"),
        ([Plan, None], "allow.1"),
        ([Plan(1)], "allow.0"),
        ([["a", "b", "c"]], "allow.0"),
        ([(HERE, 5)], "allow.0"),
        (["Plan"], "allow.0"),
        ((HERE, "Plan"), "allow.0"),
        ([""], "allow.0"),
        ([".Plan"], "allow.0"),
        ([f"{HERE}.Plam"], "allow.0"),
        ([Plan, f"{HERE}.boom"], "allow.1"),
        ([("no_such_module", "Plan")], "allow.0"),
        ([f"{__name__}.Outer.Outer"], "allow.0"),
        ([_local()], "allow.0"),
    ],
    ids=str,
)
@pytest.mark.parametrize("opening", ["settings", "url", "pool"])
def test_an_entry_that_names_no_class_is_refused(base: Base, pools: Any, opening: str, allow: Any, field: str) -> None:
    """By its position: what would never match must not look as if it were allowed."""
    made: dict[str, Callable[[], object]] = {
        "settings": lambda: ImemSaver.open(base.settings, allow=allow),
        "url": lambda: ImemSaver.from_conn_string(base.url, allow=allow),
        "pool": lambda: ImemSaver(pools[0], allow=allow),
    }
    with pytest.raises(BadInput) as refused:
        made[opening]()
    assert refused.value.field == field


@pytest.mark.parametrize("entry", [Plan, f"{HERE}.Plan", (HERE, "Plan"), [HERE, "Plan"]], ids=str)
@pytest.mark.parametrize("several", [list, tuple, iter], ids=lambda one: one.__name__)
def test_a_class_is_named_as_people_write_it(
    base: Base, entry: Any, several: Callable[[list[Any]], Iterable[Any]]
) -> None:
    """As a class, as one text, as module and name; in whatever can be gone through once."""
    with ImemSaver.open(base.settings, allow=several([entry])) as saver:
        stored = saver.put(config(thread()), checkpoint({"state": [Plan(3)]}), metadata(), {"state": 1})
        found = saver.get_tuple(stored)
        assert found is not None
        assert found.checkpoint["channel_values"]["state"] == [Plan(3)]
        saver.delete_thread(stored["configurable"]["thread_id"])


def test_a_class_under_another_name_counts_by_both() -> None:
    """The one that rows name is its own; those of before it was moved name the other."""
    assert set(types_of([f"{__name__}.Plan"])) == {(__name__, "Plan"), (HERE, "Plan")}
    assert set(types_of([("re", "compile")])) == {("re", "compile")}, "what is always built may be named"


@pytest.mark.parametrize("pool", [None, 5, "postgresql://a/b", {}, psycopg], ids=str)
def test_a_saver_is_made_of_pools(pool: Any) -> None:
    with pytest.raises(BadInput, match=r"^pool: must be a ConnectionPool or an AsyncConnectionPool, not "):
        ImemSaver(pool)


def test_two_pools_are_one_of_each(pools: Any) -> None:
    """None of them is left out in silence."""
    pool, async_pool = pools
    with pytest.raises(BadInput, match=r"^async_pool: must be an AsyncConnectionPool, not ConnectionPool"):
        ImemSaver(pool, cast("Any", pool))
    with pytest.raises(BadInput, match=r"^pool: must be a ConnectionPool where"):
        ImemSaver(async_pool, async_pool)
    with pytest.raises(BadInput, match=r"^serde: must have dumps_typed and loads_typed, which dict lacks"):
        ImemSaver(pool, serde=cast("Any", {}))
    with pytest.raises(BadInput, match=r"^allow: is for the saver's own"):
        ImemSaver(pool, serde=JsonPlusSerializer(), allow=[Plan])


def test_a_url_and_a_size_are_looked_at() -> None:
    """And a password in what is no URL is not repeated."""
    with pytest.raises(BadInput, match=r"^conn_string: is no URL") as refused:
        ImemSaver.from_conn_string("postgresql://a:secret@b:port:1/ d?x")
    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__
    for size in (0, -1):
        with pytest.raises(BadInput, match=r"^pool_size: must be 1 or more"):
            ImemSaver.from_conn_string("postgresql://a/b", pool_size=size)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda s: s.get_tuple({"configurable": 5}), "configurable"),
        (lambda s: s.delete_thread(None), "thread_id"),
        (lambda s: s.delete_thread(["analysis-7"]), "thread_id"),
        (lambda s: s.prune("analysis-7"), "thread_ids"),
        (lambda s: s.prune_older(30), "age"),
        (lambda s: s.list(None, limit="5"), "limit"),
        (lambda s: s.put_writes(config("t", "c"), "ab", "task"), "writes"),
        (lambda s: s.put_writes(config("t", "c"), [5], "task"), "writes"),
    ],
)
def test_the_methods_say_what_is_wrong(saver: ImemSaver, call: Callable[[Any], object], field: str) -> None:
    """A text of one thread is not its letters, and None is no thread."""
    with pytest.raises(BadInput) as refused:
        call(saver)
    assert refused.value.field == field
