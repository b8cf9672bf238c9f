"""Whose a request of a browser is, and the frame in which its page is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from imem.api.identity import AUTHENTICATION_MS, COOKIE
from imem.journal.actors import AUTHORIZATION, Action, Actor, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, NotAuthenticated, UnknownSubject
from imem.memory import Memory
from imem.services.problems import status_of
from imem.web.guards import check_origin
from imem.web.rendering import render

if TYPE_CHECKING:
    from imem.api.server import Server

log = structlog.get_logger()

PAGE_MS: Final = 8_000
"""Budget of what a page reads, in milliseconds."""

_T, _A = ResourceType, Action

NAVIGATION: Final = (
    ("/inbox", "Inbox", _T.REVIEWS, _A.READ),
    ("/subject", "Subject", _T.GRAPH, _A.READ),
    ("/agents", "Agents", _T.CREDIBILITY, _A.READ),
    ("/knowledge", "Knowledge", _T.PATTERNS, _A.READ),
    ("/operations", "Operations", _T.GRAPH, _A.READ),
    ("/audit", "Audit", _T.AUDIT, _A.READ),
)
"""Path, title and right of each page that the head of every page links."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """
    A person with a session.

    Attributes:
        actor: the person, with the role of the session.
        memory: acts as that actor: what the person may do is decided there.
        server: the process.
        path: of the page.
    """

    actor: Actor
    memory: Memory
    server: Server
    path: str

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page with the head that the person gets."""
        return render(template, status=status, visitor=self, links=self.links, **values)

    @property
    def links(self) -> list[tuple[str, str]]:
        """The pages that the role may read, as path and title."""
        role = self.actor.role
        return [(path, title) for path, title, of, action in NAVIGATION if (role, of, action) in AUTHORIZATION]


Page = Callable[[Request, Visitor], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def for_visitors(page: Page, *, writes: bool) -> Endpoint:
    """Return the endpoint of a page: it demands a session, counts the call, and tells errors as pages."""

    async def answer(request: Request) -> Response:
        visitor: Visitor | None = None
        try:
            if writes:
                check_origin(request)
            visitor = await _visitor(request, writes=writes)
            return await page(request, visitor)
        except ImemError as error:
            return error_page(error, visitor)
        except Exception as error:
            # Its text may hold anything, a password among it.
            log.exception("web.unexpected", error=type(error).__name__)
            return error_page(ImemError("Something unexpected went wrong."), visitor)

    return answer


async def _visitor(request: Request, *, writes: bool) -> Visitor:
    """Return whose the request is; it is counted."""
    server: Server = request.app.state.server
    due = Deadline.after_ms(AUTHENTICATION_MS)
    session = await server.sessions.session(request.cookies.get(COOKIE), deadline=due)
    await server.limiter.admit(session.actor, writes=writes, deadline=due)
    return Visitor(session.actor, server.memory_of(session.actor), server, request.url.path)


def error_page(error: ImemError, visitor: Visitor | None) -> HTMLResponse:
    """Return the page of an error: what is wrong, and what to do. Without a session it tells how to get one."""
    if isinstance(error, NotAuthenticated):
        return render("sign_in.html", status=401, link=None, refused=None)
    nearest = error.nearest if isinstance(error, UnknownSubject) else ()
    page = render(
        "error.html",
        status=status_of(error),
        visitor=visitor,
        links=[] if visitor is None else visitor.links,
        error=error,
        nearest=nearest,
    )
    if error.retryable:
        page.headers["Retry-After"] = f"{max(error.retry_after_s, 1):.0f}"
    return page
