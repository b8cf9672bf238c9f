"""The servers start together, answer with the settings handed out, and end with whoever started them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import neo4j
import psycopg
import pytest
import redis

from imem.journal.errors import StackError
from imem.journal.settings import Settings
from imem.local import state
from imem.local.folders import Folders, Secrets
from imem.local.process import marked
from imem.local.purge import purge
from imem.local.servers.postgres import SHARED_FOR_ROOT
from imem.local.servers.server import free_port as free
from imem.local.supervisor import LocalStack
from imem.local.workers import Worker
from tests.conftest import Stack, settings_for
from tests.imem.local.programs import identity_of, nothing_left, shown, supervised, sure, until

SMALL = ["postgres", "valkey"]
"""What starts within a second: enough for what concerns the supervisor itself."""


def valkey(settings: Settings, role: str = "durable") -> redis.Redis:
    """Return a client."""
    return redis.Redis.from_url(getattr(settings, f"valkey_{role}_url").get_secret_value())


def postgres(settings: Settings) -> psycopg.Connection[Any]:
    """Return a connection of the owner."""
    return psycopg.connect(shown(settings.postgres_admin_url), autocommit=True)


def test_every_server_answers_at_the_address_handed_out(stack: Stack) -> None:
    """The settings of the fixture are all that a client needs."""
    settings = stack.settings

    with psycopg.connect(shown(settings.postgres_url)) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("imem_app",)
    with postgres(settings) as connection:
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("imem", "imem")
    auth = (settings.neo4j_user, shown(settings.neo4j_password))
    with neo4j.GraphDatabase.driver(sure(settings.neo4j_url), auth=auth) as driver:
        assert driver.execute_query("RETURN 1 AS one").records[0]["one"] == 1
    for name in ("working", "durable", "cache"):
        with valkey(settings, name) as client:
            assert client.ping()


def test_servers_are_configured_for_their_role(home: Path) -> None:
    """What must last is appended to a file and never evicted; the cache is the contrary; text sorts by code point."""
    with LocalStack(settings_for(home), servers=SMALL, workers=False) as stack:
        lasting = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}
        forgets = {"maxmemory-policy": "allkeys-lru", "appendonly": "no"}
        for role, wanted in (("working", lasting), ("durable", lasting), ("cache", forgets)):
            with valkey(stack.settings, role) as client:
                found = client.config_get(*wanted, "dir", "maxmemory")
                assert found.pop("dir") == str(home / "valkey" / role)
                assert int(found.pop("maxmemory")) > 0
                assert found == wanted
        with postgres(stack.settings) as connection:
            assert connection.execute("SHOW data_checksums").fetchone() == ("on",)
            assert connection.execute("SELECT 'Z' < 'a', upper('é')").fetchone() == (True, "É")
            created = connection.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = 'imem_app'")
            assert created.fetchone() == (False, False)


def test_only_the_loopback_interface_is_listened_on(stack: Stack) -> None:
    """No server is reachable from another machine."""
    assert isinstance(stack, LocalStack)
    for child in stack.state.children.values():
        for table in ("tcp", "tcp6"):
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            local = [line.split()[1] for line in lines if line.split()[3] == "0A"]
            hosts = {address.split(":")[0] for address in local if int(address.split(":")[1], 16) == child.port}
            assert hosts <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_no_file_and_no_argument_shows_a_password(home: Path) -> None:
    """Files of the home are private, and no argument list or environment holds a secret."""
    with LocalStack(settings_for(home), servers=SMALL, workers=False) as stack:
        passwords = [password.encode() for password in Secrets.of(Folders(home)).passwords.values()]
        for one in marked(home):
            for name in ("cmdline", "environ"):
                seen = Path(f"/proc/{one.pid}/{name}").read_bytes()
                assert not [password for password in passwords if password in seen]
        for path in home.rglob("*"):
            if not path.is_symlink() and path.exists():
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        for log in (home / "logs").iterdir():
            assert not [password for password in passwords if password in log.read_bytes()]
        assert not [password for password in passwords if password.decode() in repr(stack.state) + repr(stack.settings)]


def test_two_homes_never_meet(home: Path, tmp_path: Path) -> None:
    """Same servers, other ports, other passwords, other data."""
    other = tmp_path / "other"
    with (
        LocalStack(settings_for(home), servers={"valkey"}, workers=False) as one,
        LocalStack(settings_for(other), servers={"valkey"}, workers=False) as two,
    ):
        ports = [child.port for local in (one, two) for child in local.state.children.values()]
        assert len(set(ports)) == 6
        with valkey(one.settings) as client:
            client.set("k", "one")
        with valkey(two.settings) as client:
            assert client.get("k") is None


def test_a_second_stack_on_a_home_is_refused(home: Path) -> None:
    """And the first one runs on."""
    with LocalStack(settings_for(home), servers={"valkey"}, workers=False) as one:
        with pytest.raises(StackError, match=r"A stack already runs on .*`imem status`"):
            LocalStack(settings_for(home), servers={"valkey"}, workers=False).start()
        with valkey(one.settings) as client:
            assert client.ping()
        assert state.running(Folders(home)) is not None


def test_a_server_named_by_url_is_not_started(home: Path) -> None:
    """The others are, and whoever reads the state file is sent to the named one too."""
    url = "redis://elsewhere:6379/0"
    settings = settings_for(home, valkey_cache_url=url, neo4j_url="bolt://elsewhere:7687")
    with LocalStack(settings, servers={"valkey", "neo4j"}, workers=False) as stack:
        started = {name for name, child in stack.state.children.items() if child.pid}
        assert started == {"valkey-working", "valkey-durable"}
        found = state.with_local_endpoints(settings_for(home, postgres_url="postgresql://elsewhere/x"))
        assert shown(found.valkey_cache_url) == url
        assert found.neo4j_url == "bolt://elsewhere:7687"


def test_a_port_taken_meanwhile_is_replaced(home: Path) -> None:
    """Ports are kept over restarts where they are free, and given up where they are not."""
    with LocalStack(settings_for(home), servers={"valkey"}, workers=False) as stack:
        ports = {name: child.port for name, child in stack.state.children.items()}
        state.write(Folders(home), stack.state)
        kept = (home / "stack.json").read_text()
    (home / "stack.json").write_text(kept)
    with (
        socket.create_server(("127.0.0.1", ports["valkey-cache"])),
        LocalStack(settings_for(home), servers={"valkey"}, workers=False) as stack,
    ):
        again = {name: child.port for name, child in stack.state.children.items()}
        with valkey(stack.settings, "cache") as client:
            assert client.ping()

    assert again["valkey-cache"] != ports["valkey-cache"]
    assert again["valkey-durable"] == ports["valkey-durable"]


def test_a_port_taken_between_choice_and_start_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may be faster; the server's own refusal is understood, whichever server it is."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        offered: list[int] = []

        def choose() -> int:
            offered.append(taken if len(offered) < 4 else free())
            return offered[-1]

        monkeypatch.setattr("imem.local.supervisor.free_port", choose)
        with LocalStack(settings_for(home), servers=SMALL, workers=False) as stack:
            assert taken not in {child.port for child in stack.state.children.values()}
            assert offered.count(taken) == 4


@pytest.mark.parametrize("family", ["postgres", "valkey"])
def test_passwords_that_do_not_belong_to_the_data_are_said(home: Path, family: str) -> None:
    """Nothing is left running, and nothing is overwritten."""
    with LocalStack(settings_for(home), servers={family}, workers=False):
        pass
    found = json.loads((home / "secrets.json").read_text())
    right = json.dumps(found)
    found["postgres_owner"] = "another"
    (home / "secrets.json").write_text(json.dumps(found))

    if family == "postgres":
        with pytest.raises(StackError, match=r"postgres refuses the password in .*secrets.json.* Put back"):
            LocalStack(settings_for(home), servers={family}, workers=False).start()
    assert nothing_left(home)
    assert not (home / "stack.json").exists()
    (home / "secrets.json").write_text(right)
    with LocalStack(settings_for(home), servers={family}, workers=False):
        pass


def test_a_worker_that_dies_is_started_again(home: Path) -> None:
    """With pauses that grow, and its end is said."""
    ran = home / "ran"
    crash = Worker("crash", (sys.executable, "-c", f"open({str(ran)!r}, 'a').write('x')"))
    with LocalStack(settings_for(home), servers=set(), workers=[crash]) as stack:
        until(lambda: ran.exists() and len(ran.read_text()) >= 3, "it ran three times")
        child = until(
            lambda: one if (one := stack.state.children["crash"]).state == "restarting" else None, "its end is seen"
        )
        assert child.note == "ended with code 0"
        assert child.restarts >= 2


def test_a_worker_gets_the_settings_and_no_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads addresses from the state file; nothing in its environment opens anything."""
    monkeypatch.setenv("IMEM_VALKEY_CACHE_URL", "redis://:hunter2@elsewhere/0")
    script = (
        "import os, time; from imem.journal.settings import Settings;"
        "print(repr(Settings.read().home), dict(os.environ), flush=True); time.sleep(600)"
    )
    settings = settings_for(home, valkey_cache_url="redis://:hunter2@elsewhere/0", apply_batch=77)
    with LocalStack(settings, servers=set(), workers=[Worker("tell", (sys.executable, "-c", script))]):
        log = home / "logs" / "tell.log"
        text = until(lambda: log.read_text() if log.exists() else None, "it has told")

    assert repr(home) in text
    assert "'IMEM_APPLY_BATCH': '77'" in text
    assert "hunter2" not in text


def test_nothing_survives_a_killed_owner(home: Path) -> None:
    """Even SIGKILL of the process that holds the stack, which cannot clean up."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with supervised(home, SMALL, workers={"sleep": sleep}) as process:
        children = until(lambda: found if len(found := list(marked(home))) == 5 else None, "all five are there")
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(one.alive for one in children), "all children are gone")


def test_a_start_called_off_stops_what_had_begun(home: Path) -> None:
    """A request to stop before everything is ready."""
    with supervised(home, SMALL, wait=False) as process:
        until(lambda: not nothing_left(home), "something has started")
        process.send_signal(signal.SIGINT)
        process.wait(60)

    # What began as the supervisor ended gets its signal from the kernel, a moment later.
    until(lambda: nothing_left(home), "nothing is left")


def test_root_keeps_postgres_data_where_its_user_can_reach_it(tmp_path: Path) -> None:
    """A home that nobody else can pass through stays so; an ordinary user has everything at home."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = closed / "home"
    before = {path: path.stat().st_mode for path in (closed, *closed.parents)}
    with LocalStack(settings_for(home), servers={"postgres"}, workers=False) as stack:
        identity = identity_of(stack.state, "postgres")
        owner = Path(f"/proc/{identity.pid}").stat().st_uid
        installation = json.loads((home / "secrets.json").read_text())["installation"]
    data = SHARED_FOR_ROOT / installation if os.geteuid() == 0 else home / "postgres"

    assert owner != 0
    assert (data / "data" / "PG_VERSION").exists()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {path: path.stat().st_mode for path in before} == before
    (home / "mine.txt").write_text("the user's own")
    deleted = purge(Folders(home))
    assert not data.exists()
    assert home / "secrets.json" in deleted
    assert [path.name for path in home.iterdir()] == ["mine.txt"]


def test_purge_is_refused_while_a_stack_runs(home: Path) -> None:
    """Data must not go from under a server."""
    with LocalStack(settings_for(home), servers={"valkey"}, workers=False) as stack:
        with pytest.raises(StackError, match="already runs"):
            purge(Folders(home))
        with valkey(stack.settings) as client:
            assert client.ping()


def test_a_home_with_odd_characters_works(home: Path) -> None:
    """Spaces, quotes and letters beyond ASCII."""
    odd = home / 'a "b" é\'c'
    odd.mkdir(mode=0o711)
    with LocalStack(settings_for(odd), servers=SMALL, workers=False) as stack:
        with valkey(stack.settings) as client:
            assert client.config_get("dir")["dir"] == str(odd / "valkey" / "durable")
        with postgres(stack.settings) as connection:
            assert connection.execute("SHOW data_directory").fetchone() == (str(odd / "postgres" / "data"),)
