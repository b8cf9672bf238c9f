"""The doctor's questions to the servers, whether the local stack's or others named by URL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import neo4j as driver
import psycopg
import redis
from neo4j.exceptions import AuthError, DriverError, Neo4jError
from psycopg.rows import dict_row
from pydantic import SecretStr

import imem.journal.postgres.migrations
import imem.kg.migrations
from imem.journal.actors import Actor
from imem.journal.audit import TRIED
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.endpoints.urls import without_secrets
from imem.journal.errors import ImemError
from imem.journal.notifications.wakeups import APPLIER_INTERVAL_S
from imem.journal.postgres.migrations import Migration, migrations_in, pending, postgres_migrations
from imem.journal.settings import Settings
from imem.journal.statements import cypher, root_of, sql
from imem.journal.valkey_memory import MemoryUse
from imem.local import trial
from imem.local.doctor import data
from imem.local.doctor.finding import CheckResult, broken, fine, weak
from imem.local.folders import Folders
from imem.local.servers.valkey import ROLES, ValkeyRole
from imem.services.stores import CREATE_CURATOR_ROLE, no_pipeline_role

if TYPE_CHECKING:
    from imem.kg.projection.verification import ProjectionStatus

__all__ = ["ROLES", "neo4j", "postgres", "projection", "valkey"]

OLDEST_POSTGRES = 15
OLDEST_PGVECTOR = (0, 8)
OLDEST_NEO4J = (5, 26)
OLDEST_VALKEY = (7, 0)
LARGEST_SKEW = timedelta(seconds=1)
"""Beyond it a writer's "now" may lie in the future of the journal, which refuses that."""

LONGEST_WAIT_S = APPLIER_INTERVAL_S + 60.0
"""An event that waits longer for the graph is a sign of trouble, in seconds, also where ``sync_priority`` is off."""

LONGEST_OPEN_S = 60.0
"""A transaction that has written and stays open longer is stuck, in seconds: a batch takes a fraction of a second."""

_TIMEOUT_S = 5
_START = "Start it, or correct its URL; the local one starts with `imem up`."


def _skew(about: str, before: datetime, theirs: datetime, after: datetime) -> CheckResult:
    """Compare clocks: theirs was read between two readings of ours."""
    late, early = theirs - after, before - theirs
    off = max(late, early)
    if off <= LARGEST_SKEW:
        return fine(about, "its clock agrees with ours")
    direction = "ahead of" if late > early else "behind"
    return broken(
        about,
        f"Its clock is {off.total_seconds():.0f} s {direction} ours.",
        "Set both machines' clocks by NTP (timedatectl set-ntp true).",
    )


def _migrations(about: str, files: Sequence[Migration], applied: Mapping[int, str]) -> CheckResult:
    try:
        missing = pending(files, dict(applied))
    except ImemError as error:
        return broken(about, error.message, error.mend)
    if missing:
        names = ", ".join(one.name for one in missing)
        return broken(about, f"The schema lacks {names}.", "Run `imem migrate`.")
    return fine(about, f"the schema is at {len(files)}")


def postgres(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Check Postgres: reachable, password, version, pgvector, clock, schema, rights."""
    about = "postgres"
    if settings.postgres_url is None:
        return []
    url = settings.postgres_url.get_secret_value()
    try:
        with psycopg.connect(url, connect_timeout=_TIMEOUT_S, autocommit=True, row_factory=dict_row) as connection:
            findings = list(_ask_postgres(connection, settings, clock, about))
        findings += _curators(settings, about)
        findings += _pipelines(settings, about)
        findings += _postgres_owner(settings, about)
    except psycopg.OperationalError as error:
        if "authentication failed" in str(error):
            return [broken(about, f"{without_secrets(url)} refuses the password.", "Correct IMEM_POSTGRES_URL.")]
        return [broken(about, f"{without_secrets(url)} cannot be reached.", _START)]
    return findings


def _ask_postgres(
    connection: psycopg.Connection[dict[str, Any]], settings: Settings, clock: Clock, about: str
) -> Iterator[CheckResult]:
    before = clock.now()
    server = connection.execute(sql("doctor_server")).fetchone() or {}
    after = clock.now()
    version = server["version"] // 10_000
    if version < OLDEST_POSTGRES:
        yield broken(about, f"Postgres {version} is too old.", f"Use Postgres {OLDEST_POSTGRES} or newer.")
    else:
        yield fine(about, f"Postgres {version} answers")
    extension = connection.execute(sql("doctor_extension")).fetchone()
    floor = ".".join(map(str, OLDEST_PGVECTOR))
    if extension is None:
        yield broken(about, "The extension pgvector is missing.", f"Install pgvector {floor} or newer on that server.")
    elif _numbers(extension["version"]) < OLDEST_PGVECTOR:
        yield broken(about, f"pgvector {extension['version']} is too old.", f"Install pgvector {floor} or newer there.")
    else:
        yield fine(about, f"pgvector {extension['version']} is there")
    yield _skew(about, before, server["now"], after)
    if server["owner"]:
        yield weak(
            about,
            "We log in as an owner, who could alter the audit.",
            "Give the application a role that owns nothing, and put the owner into IMEM_POSTGRES_ADMIN_URL.",
        )
    rights = connection.execute(sql("doctor_rights")).fetchone() or {}
    if rights["may_alter"] and not server["owner"]:
        yield broken(about, "Our role may write the journal's tables itself.", "Run `imem migrate` as the owner.")
    if rights["may_score"] and not server["owner"]:
        yield broken(
            about,
            "Our role may write scores itself, as pipelines alone should.",
            "Name another role in IMEM_POSTGRES_PIPELINE_URL, then run `imem migrate`.",
        )
    if rights["may_settle"] and not rights["may_score"] and not server["owner"]:
        yield broken(
            about,
            "Our role may settle claims itself, as curators alone should.",
            "Name another role in IMEM_POSTGRES_CURATOR_URL, then run `imem migrate`.",
        )
    if rights["has_journal"] and not rights["may_append"]:
        yield broken(about, "Our role may not append to the journal.", "Run `imem migrate` as the owner.")
    elif rights["has_journal"]:
        yield from _audit(connection)
        yield from _delivery(connection)
        yield from _horizon(connection, about)
        yield from _set_back(connection, about)
        yield from _trial(connection, settings, about)
        left = data.waiting(connection, settings)
        yield from data.work(connection)
        yield from data.backlog(left)
        yield from data.scores(connection, left)
        yield from data.similar(connection, settings, left)
        yield from data.languages(connection, settings)
        yield from data.errors(connection)


def _audit(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    """Try to add a row to the audit, which is rolled back."""
    try:
        with connection.transaction():
            connection.execute(sql("audit"), TRIED)
            raise psycopg.Rollback
    except psycopg.Error as error:
        yield broken(
            "audit",
            f"No row can be added to the audit, so that every write is refused: {error.diag.message_primary or error}.",
            "Look at table memory_access_audit as its owner: its triggers, partitions, and room on the disk.",
        )


def _horizon(connection: psycopg.Connection[dict[str, Any]], about: str) -> Iterator[CheckResult]:
    """Check that open write transactions are visible: unseen ones would not hold back the safe horizon."""
    row = connection.execute(sql("doctor_horizon")).fetchone()
    if row is not None and not row["sees"]:
        yield broken(
            about,
            f"The owner {row['owner']} is not shown when other roles' transactions began: "
            "answers as of a moment may change when an open write ends.",
            f"As a superuser: GRANT pg_read_all_stats TO {row['owner']}.",
        )


def _set_back(connection: psycopg.Connection[dict[str, Any]], about: str) -> Iterator[CheckResult]:
    """Compare the newest event with the server's clock: one that was set back is behind the journal."""
    row = connection.execute(sql("doctor_clock")).fetchone()
    if row is not None and row["ahead_s"] > LARGEST_SKEW.total_seconds():
        yield weak(
            about,
            f"Its clock is {row['ahead_s']:,.0f} s behind the newest event: what is recorded until it has caught up "
            "is dated just after that event.",
            "Check which of the two is wrong; set the machine's clock by NTP (timedatectl set-ntp true).",
        )


def _trial(connection: psycopg.Connection[dict[str, Any]], settings: Settings, about: str) -> Iterator[CheckResult]:
    """Compare the journal's time with that of the home: other than the server's it may be in a trial alone."""
    row = connection.execute(sql("clock_ahead")).fetchone()
    folders = Folders(settings.home)
    expected = trial.ahead_s(folders) if folders.clock.exists() else 0
    if row is not None and row["ahead_s"] != expected:
        yield broken(
            about,
            f"Its journal is a trial's: its time is {row['ahead_s']:,} s ahead of the server's, not {expected:,} s.",
            "Record nothing in it that shall last. On the trial's own home `imem down` and `imem up` make both agree.",
        )


def _writers(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    """Look for a write transaction that stays open."""
    about = "writers"
    oldest = connection.execute(sql("doctor_oldest_writer")).fetchone()
    if oldest is None or oldest["age_s"] <= LONGEST_OPEN_S:
        yield fine(about, "no write stays open")
        return
    yield weak(
        about,
        f"A write of process {oldest['pid']} ({oldest['application'] or 'no name'}, role {oldest['role']}) "
        f"has been open for {oldest['age_s'] / 60:.0f} minutes: answers as of a moment end before it.",
        f"End that program, or as a superuser: SELECT pg_terminate_backend({oldest['pid']}).",
    )


def _delivery(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    """Look for dead letters, and events that wait too long."""
    about = "events"
    counts = connection.execute(sql("delivery_counts")).fetchone() or {}
    if counts["dead"]:
        first = connection.execute(sql("dead_events"), {"limit": 1}).fetchone() or {}
        yield weak(
            about,
            f"Refused by the graph for good: {counts['dead']} (event {first['position']} first: {first['error']}).",
            "Mend the reason, then run `imem sync replay --all`; `imem sync dead` lists them.",
        )
    if counts["pending"] and counts["oldest_s"] > LONGEST_WAIT_S:
        yield weak(
            about,
            f"Waiting for the graph: {counts['pending']}, the oldest for {counts['oldest_s'] / 60:.0f} minutes.",
            "`imem logs applier` shows why.",
        )
    if not counts["dead"] and not counts["pending"]:
        yield fine(about, "no event waits for the graph")


def _pipelines(settings: Settings, about: str) -> Iterator[CheckResult]:
    """Log in as pipelines do, and ask whether they may write."""
    if settings.postgres_pipeline_url is None:
        missing = no_pipeline_role()
        yield broken(about, missing.message, missing.mend)
        return
    done = "pipelines write under a role of their own"
    yield from _role(about, "pipelines", settings.postgres_pipeline_url, ("may_score", "write scores"), done)


def _curators(settings: Settings, about: str) -> Iterator[CheckResult]:
    """Log in as curators do where the actor is one, and ask whether they may state what settles claims."""
    if not Actor.from_settings(settings).states_for_others:
        return
    if settings.postgres_curator_url is None:
        yield weak(
            about,
            f"IMEM_POSTGRES_CURATOR_URL is not set: {settings.actor} can neither import nor settle claims.",
            f"{CREATE_CURATOR_ROLE} Or let the actor be an agent: IMEM_ROLE=agent.",
        )
        return
    done = "what settles claims is recorded under a role of its own"
    yield from _role(about, "curators", settings.postgres_curator_url, ("may_settle", "settle claims"), done)


def _role(about: str, whose: str, secret: SecretStr, right: tuple[str, str], done: str) -> Iterator[CheckResult]:
    """Log in as the role of *whose*, and ask whether it may do what *right* names, as a column and in words."""
    url, (column, act) = secret.get_secret_value(), right
    try:
        with psycopg.connect(url, connect_timeout=_TIMEOUT_S, autocommit=True, row_factory=dict_row) as connection:
            rights = connection.execute(sql("doctor_rights")).fetchone() or {}
    except psycopg.OperationalError:
        variable = f"IMEM_POSTGRES_{whose.removesuffix('s').upper()}_URL"
        yield broken(about, f"{without_secrets(url)} takes no {whose}.", f"Correct {variable}.")
        return
    if rights["has_journal"] and not rights[column]:
        yield broken(about, f"The {whose}' role may not {act}.", "Run `imem migrate` as the owner.")
    elif rights["has_journal"]:
        yield fine(about, done)


def _postgres_owner(settings: Settings, about: str) -> Iterator[CheckResult]:
    """Look at the schema, as the owner where we know how, and log in as it on the way."""
    admin = settings.postgres_admin_url or settings.postgres_url
    if admin is None:
        return
    files = postgres_migrations()
    try:
        applied = imem.journal.postgres.migrations.applied_migrations(admin.get_secret_value())
    except ImemError as error:
        yield broken(about, f"The owner cannot log in: {error.message}", "Correct IMEM_POSTGRES_ADMIN_URL.")
        return
    yield _migrations(about, files, applied)
    # The owner, as a rule a superuser, is shown every role's transactions; the application only its own.
    with psycopg.connect(
        admin.get_secret_value(), connect_timeout=_TIMEOUT_S, autocommit=True, row_factory=dict_row
    ) as connection:
        yield from _writers(connection)


def neo4j(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Check Neo4j: reachable, password, version, how soon it stops a query, clock, schema."""
    about = "neo4j"
    if settings.neo4j_url is None:
        return []
    password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
    try:
        with driver.GraphDatabase.driver(
            settings.neo4j_url,
            auth=(settings.neo4j_user, password),
            connection_timeout=_TIMEOUT_S,
            connection_acquisition_timeout=_TIMEOUT_S,
            max_transaction_retry_time=0,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
        ) as graph:
            findings = list(_ask_neo4j(graph, clock, about))
        applied = imem.kg.migrations.applied_migrations(settings.neo4j_url, settings.neo4j_user, password)
    except AuthError:
        return [
            broken(
                about, f"{without_secrets(settings.neo4j_url)} refuses the password.", "Correct IMEM_NEO4J_PASSWORD."
            )
        ]
    except (Neo4jError, DriverError):
        return [broken(about, f"{without_secrets(settings.neo4j_url)} cannot be reached.", _START)]
    except ImemError as error:
        return [broken(about, error.message, error.mend or _START)]
    return [*findings, _migrations(about, migrations_in(root_of("kg", "cypher") / "schema"), applied)]


def projection(settings: Settings) -> list[CheckResult]:
    """Compare the graph with the journal; servers that do not answer are findings of their own."""
    about = "graph"
    if settings.neo4j_url is None or settings.postgres_url is None:
        return []
    try:
        found = asyncio.run(_projection(settings, settings.postgres_url.get_secret_value(), settings.neo4j_url))
    except ImemError:
        return []
    if found.mismatch is None:
        return [fine(about, f"a projection of this journal, {found.held} events")]
    return [
        broken(
            about,
            found.mismatch,
            "The applier makes it anew when it starts: `imem down`, `imem up`; `imem sync status` shows how far it is.",
        )
    ]


async def _projection(settings: Settings, postgres_url: str, neo4j_url: str) -> ProjectionStatus:
    """Ask both stores within a few seconds."""
    from imem.journal.postgres.database import Database  # noqa: PLC0415 - takes long to import, and this is one check of many
    from imem.kg.engine import Graph  # noqa: PLC0415 - as above
    from imem.kg.projection.verification import compare  # noqa: PLC0415 - as above

    password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
    database, graph = Database(postgres_url, size=1), Graph(neo4j_url, settings.neo4j_user, password)
    try:
        return await compare(database, graph, deadline=Deadline.after_ms(_TIMEOUT_S * 1000))
    finally:
        await graph.close()
        await database.close()


def _ask_neo4j(graph: driver.Driver, clock: Clock, about: str) -> Iterator[CheckResult]:
    with graph.session(database="neo4j") as session:
        before = clock.now()
        server = session.run(driver.Query(cypher("doctor_server").text, timeout=_TIMEOUT_S)).single(strict=True)
        after = clock.now()
        if _numbers(server["version"]) < OLDEST_NEO4J:
            floor = ".".join(map(str, OLDEST_NEO4J))
            yield broken(about, f"Neo4j {server['version']} is too old.", f"Use Neo4j {floor} or newer.")
        else:
            yield fine(about, f"Neo4j {server['version']} ({server['edition']}) answers")
        yield _skew(about, before, server["now"].to_native(), after)
        try:
            looks = session.run(driver.Query(cypher("doctor_timeouts").text, timeout=_TIMEOUT_S)).single()
        except Neo4jError:  # A hosted server may keep its settings to itself.
            looks = None
        if looks is not None and _milliseconds(looks["value"]) > 100:
            yield weak(
                about,
                f"It looks for queries out of time only every {looks['value']}.",
                "Set db.transaction.monitor.check.interval=100ms in its neo4j.conf.",
            )
        yield from data.graph(session, server["now"].to_native())


def valkey(settings: Settings, role: ValkeyRole, clock: Clock) -> list[CheckResult]:
    """Check one Valkey: reachable, password, version, clock, and that it forgets only what it may."""
    about = f"valkey-{role.name}"
    url = getattr(settings, f"valkey_{role.name}_url")
    if url is None:
        return []
    address = url.get_secret_value()
    variable = f"IMEM_VALKEY_{role.name.upper()}_URL"
    try:
        with redis.Redis.from_url(
            address, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, decode_responses=True
        ) as client:
            return list(_ask_valkey(client, role, clock, about))
    except redis.AuthenticationError:
        return [broken(about, f"{without_secrets(address)} refuses the password.", f"Correct {variable}.")]
    except redis.RedisError:
        return [broken(about, f"{without_secrets(address)} cannot be reached.", _START)]


def _ask_valkey(client: redis.Redis, role: ValkeyRole, clock: Clock, about: str) -> Iterator[CheckResult]:
    server: Mapping[str, Any] = client.info("server")
    if _numbers(server["redis_version"]) < OLDEST_VALKEY:
        yield broken(about, f"Version {server['redis_version']} is too old.", "Use Valkey or Redis 7.0 or newer.")
    else:
        name = "Valkey" if "valkey_version" in server else "Redis"
        yield fine(about, f"{name} {server.get('valkey_version', server['redis_version'])} answers")
    before = clock.now()
    seconds, micros = client.time()
    after = clock.now()
    theirs = datetime.fromtimestamp(seconds, before.tzinfo) + timedelta(microseconds=micros)
    yield _skew(about, before, theirs, after)
    use = MemoryUse.of(client.info("memory"))
    room = "Clear what is no longer needed, or raise its maxmemory."
    if use.full:
        yield broken(about, f"It is full, {use}: it refuses writes.", room)
    elif use.high:
        yield weak(about, f"It is nearly full, {use}.", room)
    elif not use.limit_bytes:
        yield weak(about, "Its memory has no limit: it can take the machine's.", "Set maxmemory.")
    try:
        settings: Mapping[Any, Any] = client.config_get("maxmemory-policy", "appendonly", "appendfsync")
        policy, appends, syncs = (settings[name] for name in ("maxmemory-policy", "appendonly", "appendfsync"))
    except redis.ResponseError:  # A hosted server may keep its settings to itself.
        return
    if role.lasting and policy != "noeviction":
        yield broken(
            about, f"It forgets what it must keep (maxmemory-policy {policy}).", "Set maxmemory-policy noeviction."
        )
    if role.lasting and appends != "yes":
        yield broken(about, "It loses everything when it restarts.", "Set appendonly yes.")
    elif role.lasting and syncs == "no":
        yield broken(
            about,
            "A power failure loses what the system has not written to the disk yet, half a minute as a rule "
            "(appendfsync no).",
            "Set appendfsync everysec.",
        )
    if not role.lasting and policy == "noeviction":
        yield weak(about, "It refuses writes when it is full.", "Set maxmemory and maxmemory-policy allkeys-lru.")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2])


_UNITS_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0}


def _milliseconds(text: str) -> float:
    """Return the duration that a setting of Neo4j states, such as ``100ms`` or ``2s``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * _UNITS_MS.get(text[len(number) :], 1.0)
