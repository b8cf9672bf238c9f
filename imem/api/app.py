"""The web application: REST under ``/v1``, MCP at ``/mcp``, the pages for people, and health."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Route

from imem.api.guards import BodyGuard, problem_response
from imem.api.identity import authenticate
from imem.api.mcp_endpoint import PATH as MCP_PATH
from imem.api.mcp_endpoint import McpEndpoint
from imem.api.routes import OperationRoute, Problem, make_routes
from imem.api.server import Server
from imem.journal.errors import BadInput, ImemError
from imem.metrics import text_of
from imem.services.health import check_health
from imem.services.problems import MEDIA_TYPE, TYPE
from imem.services.remote import PREFIX
from imem.terminal.version import version_of_this
from imem.web.pages import mount_pages

log = structlog.get_logger()

OPENAPI: Final = f"{PREFIX}/openapi.json"
"""Path of the document."""

DESCRIPTION: Final = (
    "The operations of `Memory`, with the same names, arguments and units. Each call carries the bearer token of its"
    " identity. Errors are problem documents (RFC 9457); `retryable` says whether the same call may succeed later."
)


class Ready(BaseModel):
    """Whether the process can answer."""

    ready: bool
    mode: str


def make_app(server: Server) -> FastAPI:
    """Return the application over the parts of *server*."""
    mcp = McpEndpoint(server)
    app = FastAPI(
        title="Institutional Memory",
        version=version_of_this(),
        description=DESCRIPTION,
        docs_url=None,  # It loads scripts from elsewhere.
        redoc_url=None,
        openapi_url=None,  # See _describe.
        lifespan=lambda _: mcp.running(),
    )
    app.state.server = server
    routes = make_routes()
    app.router.routes += routes
    app.router.routes.append(Route(MCP_PATH, mcp, methods=["POST"]))
    app.add_middleware(BodyGuard, below=(PREFIX, MCP_PATH))
    app.add_exception_handler(ImemError, _refused)
    app.add_exception_handler(RequestValidationError, _wrong)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _unexpected)
    app.add_api_route("/healthz", _alive, methods=["GET"], include_in_schema=False)
    app.add_api_route("/readyz", _ready, methods=["GET"], include_in_schema=False)
    app.add_api_route("/metrics", _metrics, methods=["GET"], include_in_schema=False)
    mount_pages(app)
    _describe(app, routes)
    return app


def _describe(app: FastAPI, routes: Sequence[OperationRoute]) -> None:
    """Have the OpenAPI document, made when it is first asked for, describe *routes*, problem documents and tokens."""
    making = threading.Lock()

    def described() -> dict[str, Any]:
        with making:
            if app.openapi_schema is None:
                app.openapi_schema = document()
            return app.openapi_schema

    def document() -> dict[str, Any]:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=[one.made() for one in routes],
            separate_input_output_schemas=app.separate_input_output_schemas,
        )
        components = made.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
        return made

    async def openapi() -> Response:
        # In a thread: it takes seconds, and other calls go on meanwhile.
        return JSONResponse(await asyncio.to_thread(described))

    app.openapi = described  # type: ignore[method-assign] # as FastAPI's documentation extends it
    app.add_api_route(OPENAPI, openapi, methods=["GET"], include_in_schema=False)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ImemError)  # noqa: S101 - it is registered for them
    return problem_response(error)


async def _wrong(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    first = error.errors()[0]
    # Names of validators stand among those of fields.
    within = [str(one) for one in first["loc"] if one not in {"body", "query", "header", "arguments"}]
    where = [one for one in within if not one.startswith("function-")]
    reason = str(first["msg"]).removeprefix("Value error, ")
    return problem_response(BadInput(".".join(where)[:200] or "body", f"{reason}."))


async def _of_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    document = {
        "type": f"{TYPE}Http{error.status_code}", "title": error.detail, "status": error.status_code,
        "detail": error.detail, "mend": f"{OPENAPI} lists what there is.", "retryable": False,
    }  # fmt: skip
    return JSONResponse(document, status_code=error.status_code, media_type=MEDIA_TYPE, headers=error.headers)


async def _unexpected(_: Request, error: Exception) -> Response:
    # Its text may hold anything, a password among it.
    log.error("api.unexpected", error=type(error).__name__, exc_info=error)
    return problem_response(ImemError("Something unexpected went wrong."))


async def _alive() -> dict[str, str]:
    """Return that the process runs."""
    return {"status": "alive"}


async def _ready(request: Request) -> Response:
    """Return whether the stores answer; 503 while Postgres does not."""
    health = await check_health(request.app.state.server.stores)
    ready = Ready(ready=health.postgres, mode=health.mode.value)
    return JSONResponse(ready.model_dump(), status_code=200 if ready.ready else 503)


async def _metrics(request: Request) -> Response:
    """Return the metrics of all processes of the stack, for who has a token."""
    server: Server = request.app.state.server
    await authenticate(server, request.headers.get("authorization"))
    return Response(text_of(server.stores.settings.home), media_type="text/plain; version=0.0.4")
