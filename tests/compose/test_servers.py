"""
The files of ``compose/`` on real servers, as far as those of the local stack go.

Their Valkeys and Postgres are built without TLS: what clients do with it is tried through a proxy that speaks it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import certifi
import kombu.exceptions
import neo4j
import psycopg
import pytest
import redis
import redis.exceptions
from psycopg import sql

from imem.cache.client import Client
from imem.cache.scripts import Script
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import ValkeyUnavailable
from imem.journal.settings import Settings
from imem.kg.engine import Graph
from imem.local.doctor import servers
from imem.local.doctor.finding import CheckLevel
from imem.local.servers import neo4j as local_neo4j
from imem.local.servers import postgres, valkey
from imem.local.supervisor import LocalStack
from imem.workers.celery_app import make_app
from tests.compose.conftest import FOLDER
from tests.conftest import Stack, settings_for, temporary_home
from tests.proxy import SlowProxy


@pytest.fixture(scope="module")
def graph(secrets: Path) -> Iterator[Settings]:
    """Start a Neo4j with the file for the image; only its address, its secrets' folder and the heap are this test's."""
    text = (FOLDER / "neo4j.conf").read_text(encoding="utf-8").replace("/run/secrets", str(secrets))

    def configuration(server: local_neo4j.Neo4j) -> str:
        found = re.sub(
            r"^server\.default_listen_address=.*", "server.default_listen_address=127.0.0.1", text, flags=re.MULTILINE
        )
        return re.sub(
            r"_address=(?:0\.0\.0\.0|neo4j):7687$", f"_address=127.0.0.1:{server.port}", found, flags=re.MULTILINE
        )

    def ready(server: local_neo4j.Neo4j) -> bool:
        try:
            with neo4j.GraphDatabase.driver(
                f"bolt://127.0.0.1:{server.port}",
                auth=(local_neo4j.USER, server.secrets["neo4j"]),
                encrypted=True,
                trusted_certificates=neo4j.TrustCustomCAs(str(secrets / "ca")),
            ) as driver:
                driver.execute_query("RETURN 1", database_="neo4j")
        except (neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError):
            return False
        return True

    with pytest.MonkeyPatch.context() as patch, temporary_home() as folder:
        patch.setattr(local_neo4j.Neo4j, "_configuration", configuration)
        patch.setattr(local_neo4j.Neo4j, "ready", ready)
        with LocalStack(settings_for(folder), servers=frozenset({"neo4j"}), workers=False) as local:
            yield local.settings


@pytest.fixture(scope="module")
def authorities(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that the image's entry point makes; programs run through it see its name."""
    folder = tmp_path_factory.mktemp("tmp")
    script = (FOLDER / "entrypoint.sh").read_text(encoding="utf-8").replace("/run/secrets", str(secrets))
    told = subprocess.run(
        ["sh", "-c", script, "entrypoint.sh", "printenv", "SSL_CERT_FILE"],
        env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "TMPDIR": str(folder)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.strip() == str(folder / "authorities.pem")
    return folder / "authorities.pem"


def test_the_entry_point_adds_one_authority_to_the_public_ones(authorities: Path, secrets: Path) -> None:
    """What calls other people's endpoints goes on trusting whom it trusted."""
    held = authorities.read_text(encoding="utf-8")

    assert held == Path(certifi.where()).read_text(encoding="utf-8") + (secrets / "ca").read_text(encoding="utf-8")


async def test_the_graph_is_reached_by_tls_alone(
    graph: Settings, authorities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the address of the compose file; without TLS, or without the authority, not at all."""
    assert graph.neo4j_url is not None
    assert graph.neo4j_password is not None
    password = graph.neo4j_password.get_secret_value()
    secure = graph.neo4j_url.replace("bolt://127.0.0.1", "bolt+s://localhost")

    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    assert servers.neo4j(_with(graph, secure), SystemClock())[0].level is CheckLevel.FINE
    reached = Graph(secure, "neo4j", password)
    try:
        assert await reached.read("doctor_server", {}, deadline=Deadline.after_ms(20_000))
    finally:
        await reached.close()

    [refused] = servers.neo4j(graph, SystemClock())
    assert "cannot be reached" in refused.text
    monkeypatch.delenv("SSL_CERT_FILE")
    [unknown] = servers.neo4j(_with(graph, secure), SystemClock())
    assert "cannot be reached" in unknown.text


def _with(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"neo4j_url": url})


@pytest.mark.parametrize("role", valkey.ROLES, ids=lambda role: role.name)
def test_a_valkey_takes_its_files(role: valkey.ValkeyRole, secrets: Path, tmp_path: Path) -> None:
    """But for the lines about TLS it starts with them, wants the password of its secret, and has the role's limits."""
    files = tmp_path / "valkey"
    files.mkdir()
    for name in ("common", role.name):
        lines = (FOLDER / "valkey" / f"{name}.conf").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(("tls-", "port "))]
        text = "\n".join(kept).replace("/run/secrets", str(secrets)).replace("/etc/valkey", str(files))
        (files / f"{name}.conf").write_text(text.replace("dir /data", f"dir {tmp_path}"), encoding="utf-8")
    with (files / f"{role.name}.conf").open("a", encoding="utf-8") as file:
        file.write(f"\nport 0\nunixsocket {tmp_path}/s\n")
    process = subprocess.Popen(
        [str(valkey.program()), str(files / f"{role.name}.conf")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert any("eady to accept connections" in line for line in process.stdout)
        with (
            redis.Redis(unix_socket_path=f"{tmp_path}/s") as stranger,
            pytest.raises(redis.exceptions.AuthenticationError),
        ):
            stranger.ping()
        password = (secrets / f"valkey_{role.name}_password").read_text(encoding="ascii").strip()
        with redis.Redis(unix_socket_path=f"{tmp_path}/s", password=password, decode_responses=True) as client:
            assert client.config_get("maxmemory") == {"maxmemory": str(role.memory_mb * 2**20)}
            findings = list(servers._ask_valkey(client, role, SystemClock(), role.name))
    finally:
        process.terminate()
        process.communicate()
    assert [finding for finding in findings if finding.level is not CheckLevel.FINE] == []


async def test_clients_of_a_valkey_check_its_certificate(light_stack: Stack, secrets: Path) -> None:
    """The cache's client, Celery's broker and the doctor reach it by the parameters of the address, or refuse it."""
    settings = light_stack.settings
    assert settings.valkey_durable_url is not None
    plain = urlsplit(settings.valkey_durable_url.get_secret_value())
    parameters = urlsplit((secrets / "valkey_durable_url").read_text(encoding="ascii").strip()).query
    parameters = parameters.replace("/run/secrets", str(secrets))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets / "valkey-durable.crt", secrets / "valkey-durable.key")
    proxy = SlowProxy(plain.hostname or "", plain.port or 0, tls=context)
    await proxy.listen()
    user = plain.netloc.rpartition("@")[0]
    try:
        for query, believed in ((parameters, True), (parameters.replace(f"{secrets}/ca", certifi.where()), False)):
            url = f"rediss://{user}@localhost:{proxy.port}/0?{query}"
            given = Settings.read({"IMEM_VALKEY_DURABLE_URL": url})
            assert await _cache_reaches(url) is believed
            assert await asyncio.to_thread(_broker_reaches, given) is believed
            found = await asyncio.to_thread(servers.valkey, given, valkey.ROLES[1], SystemClock())
            assert (found[0].level is CheckLevel.FINE) is believed
    finally:
        await proxy.refuse()


async def _cache_reaches(url: str) -> bool:
    client = Client(url, name="The durable Valkey")
    text = b"return 1"
    script = Script("one", text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(), writes=False)
    try:
        for _ in range(2):  # On a new connection, and on one that was kept.
            assert await client.run(script, [], [], deadline=Deadline.after_ms(20_000)) == 1
    except ValkeyUnavailable:
        return False
    finally:
        await client.close()
    return True


def _broker_reaches(settings: Settings) -> bool:
    try:
        with make_app(settings).connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=5.0)
    except kombu.exceptions.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    ("role", "file"),
    [
        (postgres.APPLICATION, "postgres_app_password"),
        (postgres.CURATORS, "postgres_curators_password"),
        (postgres.PIPELINES, "postgres_pipelines_password"),
    ],
)
def test_who_owns_nothing_gets_a_role(light_stack: Stack, secrets: Path, role: str, file: str) -> None:
    """Made the first time and given its password again the second; each may log in and own nothing."""
    settings = light_stack.settings
    assert settings.postgres_admin_url is not None
    admin = settings.postgres_admin_url.get_secret_value()
    names = {one: f"{one}_of_compose" for one in (postgres.APPLICATION, postgres.CURATORS, postgres.PIPELINES)}
    script = (FOLDER / "postgres" / "roles.sql").read_text(encoding="utf-8")
    script = script.replace("/run/secrets", str(secrets))
    for one, name in names.items():
        script = script.replace(one, name)
    psql = [str(postgres.program("psql")), "--no-psqlrc", "--quiet", "--file=-", admin]
    try:
        for _ in range(2):
            ran = subprocess.run(psql, input=script, capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, "")
        password = (secrets / file).read_text(encoding="ascii").strip()
        parts = urlsplit(admin)
        url = parts._replace(netloc=f"{names[role]}:{password}@{parts.hostname}:{parts.port}").geturl()
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
        assert row == (False, False, False, False)
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            for name in names.values():
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
