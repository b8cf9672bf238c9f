"""The pages, and their place in the application."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from imem.web import agents, audit, knowledge, operations, sign_in, subject, tasks
from imem.web.guards import SecurityHeaders
from imem.web.visitors import Page, Visitor, for_visitors

STATIC: Final = Path(__file__).parent / "static"


async def _home(_: Request, visitor: Visitor) -> Response:
    """Go to the first page that the role may read."""
    return RedirectResponse(visitor.links[0][0] if visitor.links else "/subject", status_code=303)


SHOWN: Final[dict[str, Page]] = {
    "/": _home,
    "/inbox": tasks.inbox,
    "/task": tasks.show,
    "/task/next": tasks.go_to_next,
    "/subject": subject.show,
    "/agents": agents.listed,
    "/agent": agents.explained,
    "/knowledge": knowledge.show,
    "/lesson": knowledge.lesson,
    "/operations": operations.show,
    "/audit": audit.show,
    "/audit.jsonl": audit.export,
}
"""Path → what a GET shows to a person with a session."""

DONE: Final[dict[str, Page]] = {
    "/task": tasks.answer,
    "/pattern/withdraw": knowledge.withdraw,
    "/alert/acknowledge": operations.acknowledge,
    "/pause/resume": operations.resume,
}
"""Path → what a POST does for a person with a session."""


def mount_pages(app: FastAPI) -> None:
    """Add the pages to the application; none is part of its OpenAPI document."""
    app.add_route("/sign-in", sign_in.show, methods=["GET"], include_in_schema=False)
    app.add_route("/sign-in", sign_in.begin, methods=["POST"], include_in_schema=False)
    app.add_route("/sign-out", sign_in.end, methods=["POST"], include_in_schema=False)
    for path, page in SHOWN.items():
        app.add_route(path, for_visitors(page, writes=False), methods=["GET"], include_in_schema=False)
    for path, page in DONE.items():
        app.add_route(path, for_visitors(page, writes=True), methods=["POST"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
