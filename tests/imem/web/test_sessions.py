"""How a browser gets a session, what it may do with it, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.web.guards import POLICY
from imem.web.pages import DONE, SHOWN
from tests.imem.api.conftest import ADMIN
from tests.imem.web.conftest import ORIGIN, Office

TEMPLATES = Path(__file__).parents[3] / "imem" / "web" / "templates"


async def test_a_link_signs_in_once_and_looking_at_it_uses_nothing(office: Office) -> None:
    link = await office.link("dana")
    browser = office.browser()
    for _ in range(2):
        page = await browser.get("/sign-in", params={"link": link})
        assert page.status_code == 200
        assert f'value="{link}"' in page.text
    assert not browser.cookies
    done = await browser.post("/sign-in", data={"link": link})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    cookie = done.headers["set-cookie"]
    assert re.fullmatch(r"imem_session=[\w.~-]+; HttpOnly; Max-Age=604800; Path=/; SameSite=lax", cookie)
    assert (await browser.get("/", follow_redirects=True)).url.path == "/inbox"

    again = await office.browser().post("/sign-in", data={"link": link})
    assert again.status_code == 401
    assert "set-cookie" not in again.headers
    assert "was used" in again.text


async def test_over_tls_the_cookie_is_secure(office: Office) -> None:
    browser = office.browser()
    secure = {"Origin": "https://face"}
    done = await browser.post("https://face/sign-in", data={"link": await office.link("dana")}, headers=secure)
    assert "; Secure" in done.headers["set-cookie"]


@pytest.mark.parametrize("path", sorted(SHOWN))
async def test_without_a_session_every_page_says_how_to_get_one(office: Office, path: str) -> None:
    page = await office.browser().get(path)
    assert page.status_code == 401
    assert "imem sign-in" in page.text


@pytest.mark.parametrize("path", [*sorted(DONE), "/sign-in", "/sign-out"])
async def test_what_another_site_sends_is_refused(office: Office, path: str) -> None:
    """By a foreign or missing origin, also where the session is there; and it has no effect."""
    dana = await office.signed_in("dana", Role.HUMAN_ADMIN)
    foreign = (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
    )
    for headers in foreign:
        refused = await dana.post(path, data={"id": "x"}, headers=headers)
        assert refused.status_code == 403, headers
    del dana.headers["Origin"]
    assert (await dana.post(path, data={"id": "x"})).status_code == 403
    assert (await dana.get("/inbox")).status_code == 200, "the session is still there"


async def test_a_session_that_ended_is_refused_at_once(office: Office) -> None:
    dana, other = await office.signed_in(), await office.signed_in()
    assert (await dana.post("/sign-out", data={"here": "1"})).headers["location"] == "/sign-in"
    assert (await dana.get("/inbox")).status_code == 401
    assert (await other.get("/inbox")).status_code == 200
    await office.face.server.sessions.revoke_all("dana", actor=ADMIN, deadline=Deadline.after_ms(10_000))
    assert (await other.get("/inbox")).status_code == 401

    third, fourth = await office.signed_in(), await office.signed_in()
    await third.post("/sign-out", data={"everywhere": "1"})
    assert (await fourth.get("/inbox")).status_code == 401


async def test_every_response_carries_the_policy(office: Office) -> None:
    browser = await office.signed_in()
    for path in ("/inbox", "/sign-in", "/static/pages.css", "/static/htmx.min.js", "/nothing", "/v1/brief"):
        response = await browser.get(path)
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
    assert POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert (await browser.get("/inbox")).headers["cache-control"] == "no-store"


def test_no_template_has_what_the_policy_forbids() -> None:
    """Scripts and styles inside of a page, handlers in attributes, and addresses of other servers."""
    forbidden = re.compile(
        r"<script(?! src=\"/static/)|<style|\sstyle=|\son\w+=|hx-on|js:|javascript:|(?:src|href)=\"(?!/|#|\{)|\|\s*safe"
    )
    for path in TEMPLATES.glob("*.html"):
        assert not forbidden.findall(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize(
    ("body", "type_", "status"),
    [
        (b"link=%FF%FE", "application/x-www-form-urlencoded", 422),
        (b"link=\xff", "application/x-www-form-urlencoded", 422),
        (b"&".join(b"a=1" for _ in range(10_001)), "application/x-www-form-urlencoded", 422),
        (b"a=" + b"x" * 2**20, "application/x-www-form-urlencoded", 413),
        (b"{}", "application/json", 422),
    ],
)
async def test_bodies_that_are_no_forms_are_refused(office: Office, body: bytes, type_: str, status: int) -> None:
    refused = await office.browser().post("/sign-in", content=body, headers={"Content-Type": type_})
    assert refused.status_code == status
    assert refused.headers["content-type"].startswith("text/html")
