"""Servers from images are set as those of the local stack, on which everything is tested."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from imem.journal.errors import StackError
from imem.local.folders import Folders, Secrets
from imem.local.servers import neo4j
from imem.local.servers.neo4j import Neo4j
from imem.local.servers.postgres import APPLICATION, CURATORS, DATABASE, OWNER, PIPELINES, Postgres
from imem.local.servers.valkey import ROLES, Valkey, ValkeyRole
from tests.compose.conftest import FOLDER, directives
from tests.conftest import settings_for

OF_A_PLACE = {"bind", "port", "requirepass", "dir", "set-proc-title"}
"""What each place where a Valkey runs says for itself."""


@pytest.fixture
def folders(home: Path) -> Folders:
    found = Folders(home)
    found.prepare()
    return found


def _both(role: ValkeyRole) -> dict[str, str]:
    """Return all lines of one Valkey, what it includes from here among them."""
    return dict([*directives(FOLDER / "valkey" / "common.conf"), *directives(FOLDER / "valkey" / f"{role.name}.conf")])


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_valkey_keeps_and_forgets_as_the_local_one(role: ValkeyRole, folders: Folders) -> None:
    """Eviction, bound, file of writes, no dumps: every directive of the local configuration but those of a place."""
    local = Valkey(folders, Secrets.of(folders), role)
    local.prepare(lambda _: None)
    wanted = {name: value for name, value in directives(local.folder / "valkey.conf") if name not in OF_A_PLACE}
    found = _both(role)

    assert {name: found.get(name) for name in wanted} == wanted
    assert found.keys() - wanted.keys() == {
        "port", "dir", "include", "tls-port", "tls-ca-cert-file", "tls-auth-clients", "tls-cert-file", "tls-key-file",
    }  # fmt: skip
    assert (found["port"], found["tls-port"]) == ("0", "6379"), "TLS alone"
    assert found["tls-cert-file"] == f"/run/secrets/valkey-{role.name}.crt"
    assert ("include", f"/run/secrets/valkey_{role.name}_auth") in list(
        directives(FOLDER / "valkey" / f"{role.name}.conf")
    )


@pytest.mark.usefixtures("unspared")
def test_postgres_is_set_as_the_local_one(folders: Folders, services: dict[str, Any]) -> None:
    """Every option of the local command line but those of a place, and TLS."""
    local = _options(Postgres(folders, Secrets.of(folders)).command().argv)
    found = _options(services["postgres"]["command"])

    assert found.pop("shared_buffers") == "${POSTGRES_BUFFERS:-512MB}"
    assert local.keys() - found.keys() == {"unix_socket_directories", "shared_buffers"}
    assert {name: value for name, value in local.items() if name in found and name != "listen_addresses"} == {
        name: found[name] for name in local if name in found and name != "listen_addresses"
    }
    assert found.keys() - local.keys() == {
        "hba_file", "ssl", "ssl_cert_file", "ssl_key_file", "ssl_min_protocol_version"
    }  # fmt: skip
    assert found["ssl"] == "on"
    assert services["postgres"]["environment"]["POSTGRES_USER"] == OWNER
    assert services["postgres"]["environment"]["POSTGRES_DB"] == DATABASE
    roles = (FOLDER / "postgres" / "roles.sql").read_text(encoding="utf-8")
    assert set(re.findall(r"CREATE ROLE (\w+)", roles)) == set(re.findall(r"ALTER ROLE (\w+)", roles))
    assert set(re.findall(r"CREATE ROLE (\w+)", roles)) == {APPLICATION, CURATORS, PIPELINES}


def _options(argv: list[str] | tuple[str, ...]) -> dict[str, str]:
    return dict(value.split("=", 1) for sign, value in pairwise(argv) if sign == "-c")


def test_nobody_enters_postgres_without_tls() -> None:
    """Over the network by TLS and password alone, inside the container by password."""
    text = (FOLDER / "postgres" / "pg_hba.conf").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]

    assert lines == [["local", "all", "all", "scram-sha-256"], ["hostssl", "all", "all", "all", "scram-sha-256"]]


def test_the_first_start_makes_the_same_database(
    folders: Folders, services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding, collation, checksums, passwords: the options of the local ``initdb`` but those of a place."""
    seen: list[str] = []

    def run(_: Postgres, *argv: str, **__: Any) -> None:
        seen.extend(argv)
        raise StackError("That was all that is asked here.")

    monkeypatch.setattr(Postgres, "_run", run)
    with pytest.raises(StackError, match="That was all"):
        Postgres(folders, Secrets.of(folders)).prepare(lambda _: None)
    names = {"-A": "--auth", "-E": "--encoding"}
    local = {f"{names.get(one, one)}={value}" for one, value in pairwise(seen) if one[0] == "-" and value[0] != "-"}
    of_a_place = {one for one in local if one.partition("=")[0] in {"-D", "-U", "--pwfile"}}

    arguments = services["postgres"]["environment"]["POSTGRES_INITDB_ARGS"].split()
    assert set(arguments) == local - of_a_place | {"--data-checksums"}
    assert "--data-checksums" in seen


@pytest.mark.usefixtures("unspared")
def test_neo4j_is_set_as_the_local_one(folders: Folders, services: dict[str, Any]) -> None:
    """Every line of the local configuration but addresses; no plug-in, no library of algorithms; the same collector."""
    settings = settings_for(folders.home)
    local = Neo4j(folders, Secrets.of(folders), settings)
    wanted = _lines(local._configuration())
    found = _lines((FOLDER / "neo4j.conf").read_text(encoding="utf-8"))
    added = found.keys() - wanted.keys()
    variables = services["neo4j"]["environment"]

    shared = {name for name in wanted if "address" not in name} - {"server.memory.pagecache.size"}
    assert {name: found.get(name) for name in shared} == {name: wanted[name] for name in shared}
    assert {name for name in added if not name.startswith("dbms.ssl.policy.bolt.")} == {
        "server.bolt.tls_level", "server.jvm.additional",
    }  # fmt: skip
    assert found["server.bolt.tls_level"] == ["REQUIRED"]
    options = set(found["server.jvm.additional"])
    opened = {f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in neo4j._OPENED}
    assert options == {*neo4j._COLLECTING, *opened, "-Dlog4j2.disable.jmx=true", "-Dfile.encoding=UTF-8"}
    heap, cache = settings.neo4j_heap_mb, settings.neo4j_pagecache_mb
    assert variables == {
        "NEO4J_AUTH_FILE": "/run/secrets/neo4j_auth",
        "NEO4J_server_memory_heap_initial__size": f"${{NEO4J_HEAP:-{heap}m}}",
        "NEO4J_server_memory_heap_max__size": f"${{NEO4J_HEAP:-{heap}m}}",
        "NEO4J_server_memory_pagecache_size": f"${{NEO4J_PAGECACHE:-{cache}m}}",
    }


def _lines(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found
