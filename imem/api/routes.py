"""Routes of REST, made from the operations: one each, with its arguments, its result and its errors as they stand."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from imem.api.idempotency import answer_once
from imem.api.identity import Caller, admit
from imem.journal.errors import BadInput
from imem.services.operations import Operation
from imem.services.problems import MEDIA_TYPE, STATUSES
from imem.services.registry import operations
from imem.services.remote import path_of
from imem.services.wire import Wire, given_of, wire_of

MOST_DEADLINE_MS: Final = 2_000
"""Longest budget that ``X-Deadline-Ms`` may ask for, in milliseconds."""

MOST_ITEMS: Final = 200
"""Most items of one answer: what is asked for beyond is refused by the operations themselves."""


class Problem(BaseModel):
    """A problem document of RFC 9457; more members say what the error says of itself."""

    type: str = Field(examples=["urn:imem:error:BadInput"])
    title: str
    status: int
    detail: str
    mend: str = ""
    retryable: bool = False
    field: str | None = Field(default=None, description="The argument that is wrong.")


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}, "description": "Refused."}
    for status in (*STATUSES, 415)
}

DeadlineMs = Annotated[
    float | None,
    Header(alias="X-Deadline-Ms", ge=1, le=MOST_DEADLINE_MS, description="Budget of the call, in milliseconds."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Repeats with it have one effect."),
]


def make_router() -> APIRouter:
    """Return the routes of all operations."""
    router = APIRouter(responses=PROBLEMS)
    for operation in operations():
        wire = wire_of(operation)
        router.add_api_route(
            path_of(operation),
            _endpoint(wire),
            methods=["GET" if wire.in_query else "POST"],
            operation_id=operation.name,
            tags=[operation.facet or "memory"],
            summary=_summary(operation),
            description=inspect.getdoc(operation.method) or "",
            # For the document alone: what an endpoint returns is a response already.
            response_model=wire.result_type,
        )
    return router


def _summary(operation: Operation) -> str:
    return (inspect.getdoc(operation.method) or operation.name).splitlines()[0]


def _endpoint(wire: Wire) -> Callable[..., Any]:
    if wire.in_query:

        async def read(request: Request, arguments: BaseModel, x_deadline_ms: DeadlineMs = None) -> Response:
            caller = await admit(request, wire.operation)
            return await _answered(caller, wire, given_of(arguments), x_deadline_ms)

        return _with_arguments(read, Annotated[wire.query, Query()])

    async def write(
        request: Request, arguments: BaseModel, x_deadline_ms: DeadlineMs = None, idempotency_key: IdempotencyKey = None
    ) -> Response:
        caller = await admit(request, wire.operation)
        given = given_of(arguments)
        if idempotency_key is None or not wire.operation.right.writes:
            return await _answered(caller, wire, given, x_deadline_ms)
        whole = wire.operation.name, arguments.model_dump_json()
        return await answer_once(caller, idempotency_key, whole, lambda: _answered(caller, wire, given, x_deadline_ms))

    return _with_arguments(write, Annotated[wire.arguments, Body()])


def _with_arguments(endpoint: Callable[..., Any], annotation: Any) -> Callable[..., Any]:
    """Give an endpoint the signature that FastAPI reads."""
    signature = inspect.signature(endpoint, eval_str=True)
    parameters = {**signature.parameters}
    parameters["arguments"] = parameters["arguments"].replace(annotation=annotation)
    endpoint.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined] # read by FastAPI
    return endpoint


async def _answered(caller: Caller, wire: Wire, given: Mapping[str, Any], deadline_ms: float | None) -> Response:
    """Call the operation, and return its result with how long it took."""
    named = dict(given)
    if deadline_ms is not None:
        if "deadline_ms" not in wire.operation.signature.parameters:
            raise BadInput("X-Deadline-Ms", "this operation has no deadline.")
        named["deadline_ms"] = deadline_ms
    begun = time.perf_counter()
    result = await attrgetter(wire.operation.name)(caller.memory)(**named)
    took_ms = (time.perf_counter() - begun) * 1000.0
    return Response(
        wire.result.dump_json(result),
        media_type="application/json",
        headers={"Server-Timing": f"memory;dur={took_ms:.1f}", "Cache-Control": "no-store"},
    )
