"""
The servers that tests run against.

``stack`` gives settings with the addresses of a Postgres, a Neo4j and three Valkeys, started once per test process
(under pytest-xdist: one set per worker) and gone with it, however it ends. Where they come from:

* by default the local stack, in a folder of its own;
* ``IMEM_TEST_STACK=containers``: images, through testcontainers;
* ``IMEM_TEST_STACK=urls``: running servers, named by the ``IMEM_…_URL`` variables; **their content is lost**.

``IMEM_TEST_NEO4J`` chooses the version of Neo4j (the default one otherwise), ``IMEM_TEST_VALKEY`` names the program of
another Valkey or of a Redis, which then serves every test of the local stack. A server that does not start fails the
tests that need it; none is skipped.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import unwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck
from hypothesis import settings as examples

from imem.journal.settings import TEST_VARIABLES, Settings
from imem.local.servers import neo4j, postgres, valkey
from imem.local.supervisor import ALL, LocalStack
from tests.scheduling import LongestFirst, marked
from tests.servers import migrated_template
from tests.sparing.sitecustomize import spare_graph, spare_postgres

OPTIONAL = frozenset(
    f"{name}_url"
    for name in (
        "summary",
        "extraction",
        "embedding",
        "webhook",
        "regime",
        "price",
        "reflection",
        "postmortem",
        "objects",
    )
)
"""Servers that are nobody's by default."""

KEPT = ("IMEM_CACHE_DIR", "IMEM_MAVEN_REPOSITORY", "IMEM_NEO4J_HOME")
"""What tests take from the environment: where jars come from."""


# Property tests run on busy machines: how long one example takes says nothing about the product. Servers are shared by
# the examples of a property; each uses names of its own.
examples.register_profile(
    "busy_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
examples.load_profile("busy_machine")


def pytest_configure(config: pytest.Config) -> None:
    """
    Choose the servers, and where they keep their files.

    Programs under test can be interrupted: what a shell runs in the background ignores it, and so would they.
    """
    global _homes  # noqa: PLW0603 - one process of tests has one place for them
    # What is measured is measured on a disk, and on a server that compiles as well as it can.
    measures = config.getoption("markexpr") == "bench"
    _homes = None if measures else in_memory()
    if not measures:
        spare_graph(neo4j)
        spare_postgres(postgres)
    # Otherwise the whole command line is built anew for each command, which takes longer than most of them.
    pytest.MonkeyPatch().setattr(typer.testing, "_get_command", cache(typer.main.get_command))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if other := os.environ.get("IMEM_TEST_VALKEY"):
        pytest.MonkeyPatch().setattr(valkey, "program", lambda: Path(other))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """Files go to processes as :mod:`tests.scheduling` says."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler = LongestFirst(config, log)
    config.add_cleanup(scheduler.write)
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None]:
    """Tell the scheduler which tests use the shared graph, and the collector that thousands of tests are no garbage."""
    gc.collect()
    gc.freeze()
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with marked(session):
        return (yield)


_homes: Path | None = None
"""Where homes are made; none for the system's own place."""


def in_memory(place: Path = Path("/dev/shm"), room: int = 10 * 2**30) -> Path | None:  # noqa: S108 - not to share
    """
    Return *place* if it is a file system in memory and that memory is there, else None.

    A database is made for nearly every test, three hundred files each: on a disk that is most of the time some take.
    Nothing here survives a machine's power failure, which no test makes; servers that are killed do not notice.
    """
    try:
        spare = shutil.disk_usage(place).free
        words = Path("/proc/meminfo").read_text(encoding="ascii").split()
    except OSError:
        return None
    available = int(words[words.index("MemAvailable:") + 1]) * 1024 if "MemAvailable:" in words else 0
    return place if os.access(place, os.W_OK) and min(spare, available) >= room else None


class Stack(Protocol):
    """What a test may ask of the servers."""

    settings: Settings


def settings_for(home: Path, **overrides: Any) -> Settings:
    """Return settings for *home* with the version of Neo4j under test and no server named."""
    if os.environ.get("IMEM_TEST_NEO4J"):
        overrides = {"neo4j_version": os.environ["IMEM_TEST_NEO4J"], **overrides}
    return Settings.read({name: os.environ[name] for name in KEPT if name in os.environ}, home=home, **overrides)


@contextmanager
def temporary_home() -> Iterator[Path]:
    """
    Make a home for one stack, gone afterwards.

    It is not below pytest's own folder, which Postgres' user cannot pass through when root runs the tests.
    """
    with TemporaryDirectory(prefix="imem-test-", dir=_homes, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a folder for a stack of the test's own."""
    with temporary_home() as folder:
        yield folder


@pytest.fixture
def unspared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure servers of this process as the product does, for tests of that."""
    monkeypatch.setattr(neo4j.Neo4j, "_configuration", unwrap(neo4j.Neo4j._configuration))
    monkeypatch.setattr(postgres.Postgres, "command", unwrap(postgres.Postgres.command))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Start the servers once; nothing is migrated."""
    with temporary_home() as folder:
        yield from _servers(settings_for(folder))


@pytest.fixture(scope="session")
def light_stack() -> Iterator[Stack]:
    """Start a Postgres and three Valkeys once, without a graph: what working memory and checkpoints stand on."""
    with temporary_home() as folder:
        yield from _servers(settings_for(folder), servers=frozenset({"postgres", "valkey"}))


@pytest.fixture(scope="session")
def light_template(light_stack: Stack) -> Iterator[str]:
    """Migrate a database of the light stack once; tests clone theirs from it."""
    with migrated_template(light_stack.settings) as name:
        yield name


@pytest.fixture(scope="session")
def template(stack: Stack) -> Iterator[str]:
    """Migrate a database once; tests clone theirs from it."""
    with migrated_template(stack.settings) as name:
        yield name


def _servers(settings: Settings, servers: frozenset[str] = ALL) -> Iterator[Stack]:
    kind = os.environ.get("IMEM_TEST_STACK", "local")
    if kind == "urls":
        yield _Given(
            Settings.read({n: v for n, v in os.environ.items() if n not in TEST_VARIABLES}, home=settings.home)
        )
    elif kind == "containers":
        from tests.containers import Containers

        with Containers(settings) as containers:
            yield containers
    elif kind == "local":
        with LocalStack(settings, servers=servers, workers=False) as local:
            yield local
    else:
        raise pytest.UsageError(f"IMEM_TEST_STACK={kind} is neither local nor containers nor urls.")


class _Given:
    """Servers that run already."""

    def __init__(self, settings: Settings) -> None:
        names = [name for name in Settings.model_fields if name.endswith("_url") and name not in OPTIONAL]
        missing = [f"IMEM_{name.upper()}" for name in names if getattr(settings, name) is None]
        if missing:
            raise pytest.UsageError(f"IMEM_TEST_STACK=urls needs {', '.join(missing)}.")
        self.settings = settings
