"""How one gets a saver: by settings, by a URL, on an unmade database, and without LangGraph."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import sql as composed
from psycopg_pool import ConnectionPool
from pydantic import SecretStr

from imem.checkpoints.langgraph import executors
from imem.journal.errors import PostgresUnavailable, SchemaError, SettingsError, StackError, StatementRejected
from imem.journal.postgres.pool import LONGEST_IDLE_S
from imem.langgraph import ImemSaver, MemorySaver
from tests.checkpoints.langgraph.conftest import Base, chain, config, thread
from tests.servers import in_database, with_database


def test_the_environment_names_the_server(base: Base, monkeypatch: pytest.MonkeyPatch, home: Any) -> None:
    """Postgres alone: nobody who keeps threads needs a graph."""
    monkeypatch.setenv("IMEM_HOME", str(home))
    with pytest.raises(StackError, match="imem up"), ImemSaver.open():
        pass

    monkeypatch.setenv("IMEM_POSTGRES_URL", base.url)
    with ImemSaver.open() as saver:
        assert saver.get_tuple(config(thread())) is None


async def test_the_other_name_is_the_same_class(base: Base) -> None:
    """Not LangGraph's, which keeps threads in memory: another saver reads what it has put."""
    thread_id = thread()
    async with MemorySaver.open(base.settings) as saver:
        await chain(saver, thread_id, 1)
    with ImemSaver.open(base.settings) as saver:
        assert saver.get_tuple(config(thread_id)) is not None


async def test_an_opening_is_used_as_often_as_one_likes(base: Base) -> None:
    opening, thread_id = ImemSaver.open(base.settings), thread()
    async with opening as outer:
        await chain(outer, thread_id, 1)
        with opening as inner:
            assert inner.get_tuple(config(thread_id)) is not None
        assert await outer.aget_tuple(config(thread_id)) is not None


IDLE = "SHOW idle_in_transaction_session_timeout"


@pytest.mark.parametrize(
    ("given", "bound"),
    [("", f"{LONGEST_IDLE_S}s"), ("-c work_mem=8MB", f"{LONGEST_IDLE_S}s"), (f"-c {IDLE[5:]}=7s", "7s")],
)
async def test_the_server_bounds_idle_transactions_of_both_halves(base: Base, given: str, bound: str) -> None:
    """Whatever else the URL says; another bound of its own counts."""
    url = psycopg.conninfo.make_conninfo(base.url, **({"options": given} if given else {}))
    async with ImemSaver.from_conn_string(url) as saver:
        saver.get_tuple(config(thread()))
        await saver.aget_tuple(config(thread()))
        assert saver._threads is not None
        assert saver._tasks is not None
        with saver._threads._pool.connection() as conn:
            assert conn.execute(IDLE).fetchone() == (bound,)
            assert conn.execute("SHOW timezone").fetchone() == ("UTC",)
            assert conn.execute("SHOW statement_timeout").fetchone() == ("1min",)
            assert ("work_mem" in given) == (conn.execute("SHOW work_mem").fetchone() == ("8MB",))
        async with saver._tasks._pool.connection() as aconn:
            assert await (await aconn.execute(IDLE)).fetchone() == (bound,)


def test_a_serializer_of_ones_own(base: Base) -> None:
    serde = JsonPlusSerializer(pickle_fallback=False)
    with ImemSaver.from_conn_string(base.url, serde=serde) as saver:
        assert saver.serde is serde


def test_a_server_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is waited for as long as one needs to start again, and no longer."""
    monkeypatch.setattr(executors, "DOWN_S", 0.5)
    with ImemSaver.from_conn_string("postgresql://a:b@127.0.0.1:1/c") as saver, pytest.raises(PostgresUnavailable):
        saver.get_tuple(config(thread()))


@pytest.fixture
def empty(base: Base) -> Any:
    """Give the owner's URL of a database in which nothing was made."""
    name = f"empty_{uuid4().hex[:8]}"
    with psycopg.connect(base.admin_url, autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(name)))
        yield name
        conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


async def test_tables_are_made_where_they_are_missing(base: Base, empty: str) -> None:
    """As users of LangGraph's savers are used to, with `await` and without; doing it again changes nothing."""
    url = with_database(base.admin_url, empty)
    with ImemSaver.from_conn_string(url) as saver:
        with pytest.raises(SchemaError, match="imem migrate"):
            saver.get_tuple(config(thread()))
        saver.setup()
        assert saver.get_tuple(config(thread())) is None
    async with ImemSaver.from_conn_string(url) as saver:
        await saver.setup()
        await chain(saver, thread(), 1)

    admin, own = SecretStr(url), in_database(base.settings, with_database(base.url, empty))
    settings = base.settings.model_copy(update={**own, "postgres_admin_url": admin})
    with ImemSaver.open(settings) as saver:
        saver.setup()


def test_who_may_not_make_tables_is_told(base: Base, empty: str) -> None:
    with (
        ImemSaver.from_conn_string(with_database(base.url, empty)) as saver,
        pytest.raises(StatementRejected, match="does not allow"),
    ):
        saver.setup()
    with (
        ConnectionPool(base.url, min_size=0, max_size=1, open=False) as pool,
        pytest.raises(SettingsError, match="imem migrate"),
    ):
        ImemSaver(pool).setup()


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"langgraph", "langchain_core"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import imem.langgraph
"""


def test_without_langgraph_the_import_says_what_is_missing() -> None:
    """In one sentence with the mend; everything else of the product can do without."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: imem.langgraph needs LangGraph, which is not installed: "
        "pip install 'institutional-memory[langgraph]'."
    )
