"""Tokens: whose call it is follows from the secret alone, and only admins give one to somebody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, NotAuthenticated, PermissionDenied, PostgresUnavailable, StatementRejected
from imem.journal.gateway import Gateway
from imem.journal.identity.refusals import ROWS_PER_MINUTE
from imem.journal.identity.tokens import Tokens
from imem.journal.identity.verifier import KEPT_S, Verifier
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.imem.identity.conftest import ADMIN, Office, SteppedTime, soon

HOSTILE = {
    "nothing": None,
    "an empty text": "",
    "a NUL": "imem_\x00",
    "half a surrogate pair": "imem_\ud800",
    "a megabyte": "imem_" + "a" * 2**20,
    "another one's form": "Bearer eyJhbGciOiJub25lIn0.e30.",
    "SQL": "' OR '1'='1",
}


async def refused(verifier: Verifier, secret: str | None) -> str:
    with pytest.raises(NotAuthenticated) as error:
        await verifier.actor(secret, deadline=soon())
    return str(error.value)


@pytest.mark.spec("AC-6")
async def test_a_token_is_the_actor_that_it_was_created_for(office: Office) -> None:
    """Its role and its import right are those of its row; the row holds no secret."""
    agent = await office.token("ann", name="the desk")
    loader = await office.token("loader", Role.KNOWLEDGE_BASE_AGENT, may_import=True, days=730)
    verifier = Verifier(office.application)

    assert await verifier.actor(agent.secret, deadline=soon()) == Actor("ann", Role.AGENT)
    assert await verifier.actor(loader.secret, deadline=soon()) == Actor(
        "loader", Role.KNOWLEDGE_BASE_AGENT, may_import=True
    )
    assert agent.secret.startswith("imem_")
    assert len(agent.secret) >= 48
    assert agent.secret not in repr(agent)
    stored = str(office.owner("SELECT * FROM access_token") + office.owner("SELECT * FROM memory_access_audit"))
    assert agent.secret not in stored
    assert agent.secret.removeprefix("imem_") not in stored
    assert [token.actor_id for token in await office.tokens.list_tokens(deadline=soon())] == ["loader", "ann"]
    assert office.audited() == [("kate", "create_token", "done")] * 2


@pytest.mark.parametrize("what", HOSTILE)
async def test_what_is_no_token_is_refused(office: Office, what: str) -> None:
    """Whatever it is, with one sentence and one audit row."""
    await office.token()
    verifier = Verifier(office.application)

    assert await refused(verifier, HOSTILE[what]) == str(NotAuthenticated())
    assert office.audited("authenticate") == [("unknown", "authenticate", "denied")]


async def test_expired_and_revoked_tokens_are_refused_like_unknown_ones(office: Office) -> None:
    """The caller learns nothing; the audit says whose it was, and why."""
    expired, revoked = await office.token("ann", days=1), await office.token("bob")
    await office.tokens.revoke(revoked.token.token_id, deadline=soon())
    async with office.later(timedelta(days=1, seconds=1)) as later:
        verifier = Verifier(later)
        said = {await refused(verifier, secret) for secret in (expired.secret, revoked.secret, "imem_unknown")}

    assert said == {str(NotAuthenticated())}
    rows = office.owner(
        "SELECT actor_id, actor_role, resource_id, action_reason, authorized FROM memory_access_audit "
        "WHERE action = 'authenticate' ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("ann", "agent", expired.token.token_id, "expired", False),
        ("bob", "agent", revoked.token.token_id, "revoked", False),
        ("unknown", "unknown", None, "unknown", False),
    ]


async def test_a_revocation_counts_here_at_once_and_elsewhere_within_half_a_minute(office: Office) -> None:
    """Of two processes that both had the token in use, the one that revokes it refuses it with its next call."""
    made = await office.token()
    time = SteppedTime()
    here, elsewhere = Verifier(office.application), Verifier(office.application, clock=time)
    tokens = Tokens(Gateway(office.application, ADMIN), curators=office.curators, verifier=here)
    for verifier in (here, elsewhere):
        await verifier.actor(made.secret, deadline=soon())

    revoked = await tokens.revoke(made.token.token_id, deadline=soon())

    assert (revoked.revoked_by, revoked.token_id) == ("kate", made.token.token_id)
    await refused(here, made.secret)
    time.now_s += KEPT_S - 1
    assert await elsewhere.actor(made.secret, deadline=soon()) == Actor("ann", Role.AGENT)
    time.now_s += 2
    await refused(elsewhere, made.secret)
    again = await tokens.revoke(made.token.token_id, deadline=soon())
    assert again.revoked_at == revoked.revoked_at
    assert office.audited("revoke_token") == [("kate", "revoke_token", "done")]


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_kept(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up found it in force; the revocation was committed before its answer came."""
    made = await office.token()
    verifier = Verifier(office.application)
    tokens = Tokens(Gateway(office.application, ADMIN), curators=office.curators, verifier=verifier)
    named = Database.named

    async def revoking(self: Database, name: str, *given: Any, **more: Any) -> Any:
        rows = await named(self, name, *given, **more)
        if name == "token_authenticate":
            monkeypatch.setattr(Database, "named", named)
            await tokens.revoke(made.token.token_id, deadline=soon())
        return rows

    monkeypatch.setattr(Database, "named", revoking)
    assert await verifier.actor(made.secret, deadline=soon()) == Actor("ann", Role.AGENT)
    await refused(verifier, made.secret)


async def test_a_kept_token_does_not_outlive_its_end(office: Office) -> None:
    """It is kept for half a minute, and this one is valid for 10 s."""
    made = await office.token(days=10 / 86_400)
    time = SteppedTime()
    verifier = Verifier(office.application, clock=time)
    await verifier.actor(made.secret, deadline=soon())
    assert office.owner("UPDATE access_token SET revoked_at = now() RETURNING token_id")
    await verifier.actor(made.secret, deadline=soon())
    time.now_s += 11
    await refused(verifier, made.secret)


async def test_its_use_is_noted_once_a_minute_and_nobody_waits_for_that(office: Office) -> None:
    """Each verifier is a process that looks it up; another one holds the row locked."""
    made = await office.token()

    async def used() -> Any:
        await Verifier(office.application).actor(made.secret, deadline=soon(5_000))
        return office.owner("SELECT last_used_at FROM access_token")[0]["last_used_at"]

    with psycopg.connect(office.admin_url) as conn:
        conn.execute("SELECT FROM access_token FOR UPDATE")
        assert await used() is None
    first = await used()
    assert first is not None
    assert await used() == first
    async with office.later(timedelta(seconds=61)) as later:
        await Verifier(later).actor(made.secret, deadline=soon())
    assert office.owner("SELECT last_used_at > %s AS moved FROM access_token", first) == [{"moved": True}]


async def test_whoever_guesses_tokens_does_not_fill_the_audit(office: Office) -> None:
    """Each of the first attempts of a minute has a row, the rest one with their number; a known actor's rows stay."""
    expired = await office.token("ann")
    await office.tokens.revoke(expired.token.token_id, deadline=soon())
    time = SteppedTime()
    verifier = Verifier(office.application, clock=time)
    for number in range(ROWS_PER_MINUTE + 30):
        await refused(verifier, f"imem_{number}")
    await refused(verifier, expired.secret)
    assert office.audited("authenticate") == [
        *[("unknown", "authenticate", "denied")] * ROWS_PER_MINUTE,
        ("ann", "authenticate", "denied"),
    ]

    time.now_s += 61
    await refused(verifier, "imem_x")
    for number in range(ROWS_PER_MINUTE + 4):
        await refused(verifier, f"imem_{number}")
    await verifier.close()

    counts = office.owner(
        "SELECT (request_context ->> 'attempts')::integer AS n FROM memory_access_audit "
        "WHERE action = 'authenticate' AND (request_context ->> 'attempts')::integer > 1 ORDER BY id"
    )
    assert [row["n"] for row in counts] == [30, 5]


async def test_without_postgres_nobody_is_let_in(office: Office) -> None:
    """The call may be repeated, and is no refusal."""
    made = await office.token()
    nowhere = Database("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(PostgresUnavailable):
        await Verifier(nowhere).actor(made.secret, deadline=soon(2_000))
    await nowhere.close()


WRONG: dict[str, tuple[str, Callable[[Tokens], Awaitable[Any]]]] = {
    "a name with a colon": ("agent", lambda t: t.create("import:x", Role.AGENT, deadline=soon())),
    "no name": ("agent", lambda t: t.create("", Role.AGENT, deadline=soon())),
    "a name with a NUL": ("agent", lambda t: t.create("a\x00", Role.AGENT, deadline=soon())),
    "half a surrogate pair": ("agent", lambda t: t.create("\udc80", Role.AGENT, deadline=soon())),
    "a long name": ("agent", lambda t: t.create("a" * 201, Role.AGENT, deadline=soon())),
    "a long purpose": ("name", lambda t: t.create("a", Role.AGENT, name="a" * 201, deadline=soon())),
    "a purpose of two lines": ("name", lambda t: t.create("a", Role.AGENT, name="a\nb", deadline=soon())),
    "no time": ("days", lambda t: t.create("a", Role.AGENT, days=0, deadline=soon())),
    "no number": ("days", lambda t: t.create("a", Role.AGENT, days=float("nan"), deadline=soon())),
    "too long": ("days", lambda t: t.create("a", Role.AGENT, days=730.1, deadline=soon())),
    "an agent that imports": ("may_import", lambda t: t.create("a", Role.AGENT, may_import=True, deadline=soon())),
    "a reader that imports": ("may_import", lambda t: t.create("a", Role.READER, may_import=True, deadline=soon())),
    "another token": ("token", lambda t: t.revoke("0123456789ab", deadline=soon())),
    "no id": ("token", lambda t: t.revoke("\x00", deadline=soon())),
}


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_arguments_are_named(office: Office, what: str) -> None:
    field, call = WRONG[what]
    with pytest.raises(BadInput) as error:
        await call(office.tokens)
    assert error.value.field == field
    assert office.owner("SELECT FROM access_token") == []


@pytest.mark.spec("AC-3")
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.HUMAN_ADMIN])
async def test_only_admins_create_list_and_revoke(office: Office, role: Role) -> None:
    """Nobody else does, not even for itself, and each attempt leaves a denial row."""
    made = await office.token("eve", role)
    eve = Actor("eve", role)
    for call in (
        office.tokens.create("eve", Role.HUMAN_ADMIN, actor=eve, deadline=soon()),
        office.tokens.list_tokens(actor=eve, deadline=soon()),
        office.tokens.revoke(made.token.token_id, actor=eve, deadline=soon()),
    ):
        with pytest.raises(PermissionDenied):
            await call
    assert office.audited("read", "write") == [("eve", action, "denied") for action in ("write", "read", "write")]
    assert office.owner("SELECT role FROM access_token WHERE revoked_at IS NULL") == [{"role": role.value}]


DIRECT = (
    "SELECT * FROM {table}",
    "SELECT hash FROM {table}",
    "INSERT INTO {table} DEFAULT VALUES",
    "UPDATE {table} SET role = 'human_admin'",
    "DELETE FROM {table}",
    "TRUNCATE {table}",
    "COPY {table} TO STDOUT",
)
CALLS = (
    "create_token_v1('0123456789ab', sha256('x'), 'eve', 'human_admin', true, '', 60, 'kate', 'human_admin', '{}')",
    "revoke_token_v1('0123456789ab', 'kate', 'human_admin', '{}')",
    "create_sign_in_link_v1(sha256('x'), 'eve', 'human_admin', 60, 'kate', 'human_admin', '{}')",
    "imem_begin_session_v1('0123456789ab', sha256('x'), 'eve', 'human_admin', 'oidc', '{}')",
    "imem_revoke_sessions_v1('kate', 'eve', 'human_admin', '{}')",
    "imem_remove_identities_v1(1)",
)


@pytest.mark.spec("AC-3")
async def test_the_applications_login_gives_nobody_rights_and_reads_no_secret(office: Office) -> None:
    """Whoever holds the application's password writes a program of its own, that says it was an admin."""
    made = await office.token()
    link = await office.sessions.create_link("kate", Role.HUMAN_ADMIN, deadline=soon())
    await office.sessions.begin(link.secret, deadline=soon())
    before = office.owner("SELECT count(*) AS n FROM memory_access_audit")
    tables = ("access_token", "sign_in_link", "person_session")
    attempts = [attempt.format(table=table) for attempt in DIRECT for table in tables]
    attempts += [f"SELECT * FROM {what}" for what in ("token_listing", "session_listing", *CALLS)]
    with psycopg.connect(office.url, autocommit=True) as conn:
        for attempt in attempts:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                conn.execute(attempt)
        # What it may do with a hash that it has guessed: nothing is there.
        assert conn.execute("SELECT count(*) FROM authenticate_token_v1(sha256('x'))").fetchone() == (0,)
        assert conn.execute("SELECT end_session_v1(sha256('x'), true, '{}')").fetchone() == (0,)
    assert office.owner("SELECT count(*) AS n FROM memory_access_audit") == before

    tokens = Tokens(Gateway(office.application, ADMIN))
    with pytest.raises(PermissionDenied, match="IMEM_POSTGRES_CURATOR_URL"):
        await tokens.create("eve", Role.HUMAN_ADMIN, deadline=soon())
    with pytest.raises(PermissionDenied):
        await tokens.revoke(made.token.token_id, deadline=soon())
    with pytest.raises(StatementRejected):
        await tokens.list_tokens(deadline=soon())
    assert office.audited("write") == [("kate", "write", "denied")] * 2


async def test_curators_list_without_hashes_and_change_no_row_directly(office: Office) -> None:
    await office.token()
    with psycopg.connect(office.pipeline_url, autocommit=True) as conn:
        assert conn.execute("SELECT count(*) FROM token_listing").fetchone() == (1,)
        for attempt in DIRECT:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(attempt.format(table="access_token"))


async def test_a_creation_whose_audit_row_fails_creates_nothing(office: Office) -> None:
    office.owner(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'full'; END$$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON memory_access_audit FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(StatementRejected):
        await office.tokens.create("ann", Role.AGENT, deadline=Deadline.after_ms(10_000))
    assert office.owner("SELECT FROM access_token") == []
