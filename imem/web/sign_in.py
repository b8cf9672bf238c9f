"""The pages with which a session begins and ends."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from imem.api.identity import COOKIE
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, NotAuthenticated
from imem.web.guards import check_origin, read_form
from imem.web.rendering import render
from imem.web.visitors import error_page

if TYPE_CHECKING:
    from imem.api.server import Server

SIGN_IN_MS: Final = 5_000
"""Budget of beginning or ending a session, in milliseconds."""

KEPT: Final = timedelta(days=7)
"""How long a browser keeps the cookie; the session itself may be over before."""


async def show(request: Request) -> Response:
    """Show the button that begins a session. It changes nothing: programs fetch links of mails before people do."""
    return render("sign_in.html", link=request.query_params.get("link"), refused=None)


async def begin(request: Request) -> Response:
    """Begin the session of a link, and go on to the inbox."""
    server: Server = request.app.state.server
    try:
        check_origin(request)
        form = await read_form(request)
        new = await server.sessions.begin(form.get("link"), deadline=Deadline.after_ms(SIGN_IN_MS))
    except NotAuthenticated:
        refused = "This link does not sign in: it was used, is too old, or was withdrawn."
        return render("sign_in.html", status=401, link=None, refused=refused)
    except ImemError as error:
        return error_page(error, None)
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        COOKIE,
        new.secret,
        max_age=int(KEPT.total_seconds()),
        httponly=True,
        secure=request.url.scheme == "https",
        # Lax, so that a link to a task in a mail finds the session; what changes something checks its origin.
        samesite="lax",
    )
    return response


async def end(request: Request) -> Response:
    """End the session, or all of the person."""
    server: Server = request.app.state.server
    try:
        check_origin(request)
        form = await read_form(request)
        await server.sessions.end(
            request.cookies.get(COOKIE), everywhere="everywhere" in form, deadline=Deadline.after_ms(SIGN_IN_MS)
        )
    except ImemError as error:
        return error_page(error, None)
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE)
    return response
