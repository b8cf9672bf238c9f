"""People sign in by a link that works once, and their sessions end when they or an admin say so."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from imem.journal.actors import Actor
from imem.journal.errors import BadInput, NotAuthenticated, PermissionDenied
from imem.journal.gateway import Gateway
from imem.journal.identity.sessions import FIRST_LINK_LASTS, NewSession, Sessions
from imem.journal.identity.tokens import Tokens
from imem.journal.identity.verifier import Verifier
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.upkeep import remove_old_identities
from tests.imem.identity.conftest import ADMIN, Office, soon


def web(database: Database) -> Sessions:
    """Return the sessions of a server under the application's login."""
    return Sessions(Gateway(database, Actor("server", Role.READER)))


async def signed_in(office: Office, person: str = "rita", role: Role = Role.REVIEWER) -> NewSession:
    link = await office.sessions.create_link(person, role, deadline=soon())
    return await web(office.application).begin(link.secret, deadline=soon())


async def test_a_link_begins_one_session_of_its_person(office: Office) -> None:
    """Also for a server under the application's login; the audit says who made the link and who came."""
    link = await office.sessions.create_link("rita", Role.REVIEWER, deadline=soon())
    sessions = web(office.application)
    begun = await sessions.begin(link.secret, deadline=soon())
    session = await sessions.session(begun.secret, deadline=soon())

    assert session == begun.session
    assert session.actor == Actor("rita", Role.REVIEWER)
    assert session.begun_by == "link"
    assert link.path == f"/sign-in?link={link.secret}"
    for refused in (link.secret, begun.secret, None, "\x00", "a" * 2**20):
        with pytest.raises(NotAuthenticated):
            await sessions.begin(refused, deadline=soon())
    stored = str([office.owner(f"SELECT * FROM {table}") for table in ("sign_in_link", "person_session")])
    assert link.secret not in stored + repr(link)
    assert begun.secret not in stored + repr(begun)
    assert office.audited() == [
        ("kate", "create_sign_in_link", "done"),
        ("rita", "begin_session", "done"),
        ("rita", "authenticate", "denied"),
        *[("unknown", "authenticate", "denied")] * 4,
    ]


async def test_of_many_uses_of_a_link_at_once_one_gets_the_session(office: Office) -> None:
    """From two processes: the second to come waits for the first, and is refused."""
    link = await office.sessions.create_link("rita", Role.READER, deadline=soon())
    processes = [web(office.application), web(office.curators)]
    results = await asyncio.gather(
        *(process.begin(link.secret, deadline=soon()) for process in processes * 4), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["NewSession"] + ["NotAuthenticated"] * 7
    assert office.owner("SELECT count(*) AS n FROM person_session") == [{"n": 1}]


async def test_links_end_after_a_quarter_of_an_hour_and_the_first_after_a_day(office: Office) -> None:
    short = await office.sessions.create_link("rita", Role.READER, deadline=soon())
    first = await office.sessions.create_link("kate", Role.HUMAN_ADMIN, lasts=FIRST_LINK_LASTS, deadline=soon())
    async with office.later(timedelta(minutes=15, seconds=1)) as later:
        with pytest.raises(NotAuthenticated):
            await web(later).begin(short.secret, deadline=soon())
    async with office.later(timedelta(hours=23, minutes=59)) as later:
        begun = await web(later).begin(first.secret, deadline=soon())
    assert begun.session.actor == Actor("kate", Role.HUMAN_ADMIN)


async def test_a_session_lasts_half_a_day_from_its_last_use_and_a_week_at_most(office: Office) -> None:
    used, unused = await signed_in(office, "rita"), await signed_in(office, "sam")
    assert used.session.expires_at - used.session.created_at == timedelta(hours=12)
    for hours in (*range(11, 168, 11), 167.9):
        async with office.later(timedelta(hours=hours)) as later:
            session = await web(later).session(used.secret, deadline=soon())
    assert session.expires_at - session.created_at == timedelta(days=7)
    for secret, hours in ((unused.secret, 12.1), (used.secret, 168.1)):
        async with office.later(timedelta(hours=hours)) as later:
            with pytest.raises(NotAuthenticated):
                await web(later).session(secret, deadline=soon())


async def test_signing_out_ends_one_session_or_all(office: Office) -> None:
    """Of its person alone; what was over stays over, and a link that was not used yet is withdrawn."""
    first, second, third = [await signed_in(office) for _ in range(3)]
    other = await signed_in(office, "sam")
    link = await office.sessions.create_link("rita", Role.REVIEWER, deadline=soon())
    sessions = web(office.application)

    assert await sessions.end(first.secret, deadline=soon()) == 1
    assert await sessions.end(first.secret, deadline=soon()) == 0
    with pytest.raises(NotAuthenticated):
        await sessions.session(first.secret, deadline=soon())
    assert (await sessions.session(second.secret, deadline=soon())).person == "rita"
    assert await sessions.end(second.secret, everywhere=True, deadline=soon()) == 2
    for secret in (second.secret, third.secret):
        with pytest.raises(NotAuthenticated):
            await sessions.session(secret, deadline=soon())
    with pytest.raises(NotAuthenticated):
        await sessions.begin(link.secret, deadline=soon())
    assert (await sessions.session(other.secret, deadline=soon())).person == "sam"


async def test_an_admin_ends_all_sessions_of_a_person(office: Office) -> None:
    begun, other = await signed_in(office), await signed_in(office, "sam")
    listed = await office.sessions.list_sessions(deadline=soon())
    assert {session.person for session in listed} == {"rita", "sam"}
    assert await office.sessions.revoke_all("rita", deadline=soon()) == 1
    with pytest.raises(NotAuthenticated):
        await web(office.application).session(begun.secret, deadline=soon())
    assert [session.session_id for session in await office.sessions.list_sessions(deadline=soon())] == [
        other.session.session_id
    ]
    assert office.audited("revoke_sessions") == [("kate", "revoke_sessions", "done")]


@pytest.mark.spec("AC-3")
async def test_nobody_but_an_admin_makes_links_or_ends_other_peoples_sessions(office: Office) -> None:
    await signed_in(office)
    eve = Actor("eve", Role.REVIEWER)
    as_server = Sessions(Gateway(office.application, ADMIN))
    for call in (
        office.sessions.create_link("eve", Role.HUMAN_ADMIN, actor=eve, deadline=soon()),
        office.sessions.revoke_all("rita", actor=eve, deadline=soon()),
        office.sessions.list_sessions(actor=eve, deadline=soon()),
        as_server.create_link("eve", Role.HUMAN_ADMIN, deadline=soon()),
        as_server.begin_verified("eve", Role.HUMAN_ADMIN, deadline=soon()),
    ):
        with pytest.raises(PermissionDenied):
            await call
    assert office.owner("SELECT person FROM person_session WHERE revoked_at IS NULL") == [{"person": "rita"}]
    assert office.audited("read", "write") == [
        ("eve", "write", "denied"),
        ("eve", "write", "denied"),
        ("eve", "read", "denied"),
        ("kate", "write", "denied"),
        ("eve", "write", "denied"),
    ]


async def test_a_person_for_whom_a_provider_vouches_has_a_session(office: Office) -> None:
    """Of a server with the curators' login beside the application's."""
    sessions = Sessions(Gateway(office.application, Actor("server", Role.READER)), curators=office.curators)
    begun = await sessions.begin_verified("rita@example.com", Role.REVIEWER, deadline=soon())
    session = await sessions.session(begun.secret, deadline=soon())
    assert (session.person, session.begun_by) == ("rita@example.com", "oidc")
    assert office.audited() == [("rita@example.com", "begin_session", "done")]


@pytest.mark.parametrize(
    ("person", "role", "lasts", "field"),
    [
        ("rita", Role.AGENT, timedelta(minutes=1), "role"),
        ("rita", Role.LEARNING_ENGINE, timedelta(minutes=1), "role"),
        ("import:x", Role.READER, timedelta(minutes=1), "person"),
        ("\ud800", Role.READER, timedelta(minutes=1), "person"),
        ("rita", Role.READER, timedelta(hours=25), "lasts"),
        ("rita", Role.READER, timedelta(0), "lasts"),
    ],
)
async def test_wrong_arguments_are_named(office: Office, person: str, role: Role, lasts: timedelta, field: str) -> None:
    with pytest.raises(BadInput) as error:
        await office.sessions.create_link(person, role, lasts=lasts, deadline=soon())
    assert error.value.field == field
    assert office.owner("SELECT FROM sign_in_link") == []


async def test_what_ended_long_ago_is_deleted_in_batches(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """What expired within 90 days stays, and so does the audit."""
    monkeypatch.setattr("imem.journal.upkeep._MOST_REMOVED", 1)
    for _ in range(3):
        await signed_in(office)
    await office.token("old", days=1)
    recent = await office.token("recent", days=60)
    before = office.owner("SELECT count(*) AS n FROM memory_access_audit")
    async with office.later(timedelta(days=98), pipelines=True) as later:
        assert await remove_old_identities(later, deadline=soon()) == 7
        assert await remove_old_identities(later, deadline=soon()) == 0
    assert office.owner("SELECT token_id FROM access_token") == [{"token_id": recent.token.token_id}]
    assert office.owner("SELECT count(*) AS n FROM memory_access_audit") == before
    assert (await Verifier(office.application).actor(recent.secret, deadline=soon())).id == "recent"
    assert [token.actor_id for token in await Tokens(Gateway(office.curators, ADMIN)).list_tokens(deadline=soon())] == [
        "recent"
    ]
