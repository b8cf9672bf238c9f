"""Settings say what is wrong with them, and never what they hold."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from pydantic import SecretStr, ValidationError

from imem.journal.deadline import Deadline
from imem.journal.endpoints import urls
from imem.journal.errors import PostgresUnavailable, SettingsError
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.local.doctor.settings_view import settings_table
from imem.local.workers import environment
from imem.services.stores import journal_url

POSTGRES = [
    "postgresql//u:s3cretpw@h/db",
    "postgresql:/u:s3cretpw@h/db",
    "mysql://u:s3cretpw@h/db",
    "postgresql://u:s3%cretpw@h/db",
    "postgresql://u:s3/cretpw@h:5432/db",
    "postgresql://u:3/cretpw@h:5432/db",
    "postgresql://u:3?cretpw@h:5432/db",
    "postgresql://u:s3@cretpw@h/db",
    "postgresql://u:s3cretpw@h:port/db",
    "postgresql://u:s3cretpw@h:70000/db",
    "postgresql://u:s3 cretpw@h/db",
    "postgresql://u:s3cretpw@[::1/db",
    "postgresql://u:s3cretpw@h/db?nonsense=1",
    "host=h user=u password=s3cretpw",
]
VALKEY = [
    "redis//:s3cretpw@h:6379/0",
    "http://:s3cretpw@h:6379/0",
    "redis://:s3%cretpw@h:6379/0",
    "redis://:s3/cretpw@h:6379/0",
    "redis://:s3cretpw@h:0/0",
    "redis://:s3cretpw@h:x/0",
    "redis://:s3cretpw@:6379/0",
    "redis://:s3cretpw@[::1:6379/0",
    "unix://",
]
NEO4J = ["http://s3cretpw:7687", "bolt://u:s3cretpw@h:7687", "bolt://s3cretpw:port", "s3cretpw:7687", "bolt://:7687"]
MAVEN = ["ftp://u:s3cretpw@h/maven", "https://u:s3/cretpw@h/maven", "https://u:s3cretpw@h:port/maven"]
WRONG = [
    *(("IMEM_POSTGRES_URL", url) for url in POSTGRES),
    ("IMEM_POSTGRES_ADMIN_URL", POSTGRES[0]),
    *(("IMEM_VALKEY_CACHE_URL", url) for url in VALKEY),
    ("IMEM_VALKEY_DURABLE_URL", "unix:///s3cretpw/valkey.sock"),
    *(("IMEM_NEO4J_URL", url) for url in NEO4J),
    *(("IMEM_MAVEN_REPOSITORY", url) for url in MAVEN),
]


@pytest.mark.parametrize("text", ["0", "900,", "900,urgent=3", "critical_path=300", "-5", "900;valuation=3", "1e9"])
def test_limits_of_debates_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="IMEM_DEBATE_ACKNOWLEDGE_S"):
        Settings.read({"IMEM_DEBATE_ACKNOWLEDGE_S": text})


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_address_that_cannot_be_used_is_refused_without_being_shown(name: str, value: str) -> None:
    """The setting is named; no part of what may be a password is in the message or in what it came from."""
    with pytest.raises(SettingsError, match=rf"^{name} ") as caught:
        Settings.read({name: value})

    assert "cret" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(ValidationError) as raw:
        Settings.model_validate({name.removeprefix("IMEM_").lower(): value})
    assert "cret" not in str(raw.value)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("postgres_url", "postgresql://u:a%2Fb@h:5432/db", "h:5432"),
        ("postgres_url", "postgres://u:p@[::1]:5432/db?sslmode=require", "[::1]:5432"),
        ("postgres_url", "postgresql://u:p@one:5432,two:5433/db?target_session_attrs=any", "one:5432,two:5433"),
        ("postgres_url", "postgresql:///db?host=/run/postgresql", "/db"),
        ("valkey_cache_url", "rediss://user:p%40ss@h:6380/1", "h:6380"),
        ("valkey_cache_url", "unix:///run/valkey.sock?db=1", "/run/valkey.sock"),
        ("neo4j_url", "neo4j+s://graph.example", "graph.example"),
    ],
)
def test_what_clients_understand_is_taken_as_it_is(name: str, value: str, shown: str) -> None:
    """And shown without user and password."""
    found = getattr(Settings.read({"IMEM_" + name.upper(): value}), name)

    assert (found.get_secret_value() if isinstance(found, SecretStr) else found) == value
    assert urls.without_secrets(value) == shown


def test_valkeys_own_scheme_is_its_clients() -> None:
    """The client knows the older name alone."""
    found = Settings.read({"IMEM_VALKEY_CACHE_URL": "valkey://:p@h:6379/0"}).valkey_cache_url

    assert found is not None
    assert found.get_secret_value() == "redis://:p@h:6379/0"


def test_a_mirror_may_hold_a_password() -> None:
    """It is shown nowhere and not handed to workers."""
    settings = Settings.read({"IMEM_MAVEN_REPOSITORY": "https://u:s3cretpw@mirror.example/maven"})
    column = settings_table(settings).columns[1]

    assert "s3cretpw" not in repr(settings) + settings.model_dump_json() + repr(environment(settings))
    assert "s3cretpw" not in " ".join(map(str, column.cells))


async def test_the_pool_logs_nothing_of_a_url(caplog: pytest.LogCaptureFixture) -> None:
    """A library user's URL passes by the settings; what is wrong with it comes as an error without it."""
    database = Database("postgresql://u:s3%cretpw@127.0.0.1:1/db")
    with caplog.at_level(logging.DEBUG), pytest.raises(PostgresUnavailable) as caught:
        async with database.connection(Deadline.after_ms(300)):
            pass
    await database.close()

    assert "cret" not in caplog.text + str(caught.value)


def test_the_supervisor_tells_an_unexpected_error_without_its_text() -> None:
    """Neither to its parent nor in its log."""
    script = (
        "import sys; from imem.local import daemon\n"
        "def boom(*_): raise ValueError('port s3cretpw')\n"
        "daemon.supervise = boom; sys.argv = ['daemon', '1']; sys.exit(daemon.main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env={})

    assert done.returncode == 1
    assert "Something unexpected went wrong" in done.stdout
    assert "daemon.py" in done.stderr
    assert "s3cretpw" not in done.stdout + done.stderr


APPLICATION = "postgresql://imem_app:a@db.example/imem"


@pytest.mark.parametrize(
    "curators",
    [
        "postgresql://imem_curators:c@db.example/imem",
        "postgresql://imem_curators:c@db.example:5432/imem?sslmode=require",
    ],
)
def test_who_states_facts_of_others_logs_in_as_a_curator(curators: str) -> None:
    """An agent does not, though the address is there; a port that is the default one is the same server's."""
    given = Settings(postgres_url=SecretStr(APPLICATION), postgres_curator_url=SecretStr(curators))
    assert journal_url(given) == curators
    assert journal_url(given.model_copy(update={"role": Role.AGENT})) == APPLICATION
    assert journal_url(Settings(postgres_url=SecretStr(APPLICATION))) == APPLICATION


@pytest.mark.parametrize("other", ["db.example:5433/imem", "other.example/imem", "db.example/other"])
def test_curators_of_another_database_are_refused(other: str) -> None:
    """Facts would get into a journal that nobody reads."""
    url = SecretStr(f"postgresql://imem_curators:c@{other}")
    with pytest.raises(SettingsError, match="two databases"):
        journal_url(Settings(postgres_url=SecretStr(APPLICATION), postgres_curator_url=url))


def test_one_of_several_hosts_is_a_database_as_well() -> None:
    hosts = "one:5432,two:5433/imem?target_session_attrs=read-write"
    application, curators = (SecretStr(f"postgresql://{who}:x@{hosts}") for who in ("imem_app", "imem_curators"))
    given = Settings(postgres_url=application, postgres_curator_url=curators)
    assert journal_url(given) == curators.get_secret_value()
