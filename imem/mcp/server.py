"""
The server: lists the tools that the actor may use, calls them, and reads resources.

Every call is one of ``Memory`` under the actor of the settings, so that the gateway authorizes and audits it. A call
that is denied or wrong is a result that says so, not a failure of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import structlog
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool

from imem.ingest.recorder import NOTHING_RECORDED
from imem.journal.actors import Action, Actor
from imem.journal.errors import AmbiguousSubject, BadInput, ImemError, OutcomeUnknown, PermissionDenied, UnknownSubject
from imem.journal.texts.prompt_text import WARNING, name, shortened
from imem.mcp.results import MOST_CHARS, NOTICE, as_text, structured
from imem.mcp.tools import FOUND_CHARS, TOOLS, TOOLS_BY_NAME, Tool
from imem.memory import Memory
from imem.recall.sections.debates import debate_text, turn_text

log = structlog.get_logger()

INSTRUCTIONS: Final = (
    f"The memory of an institution: ask it before you analyse a subject, and record what you concluded. {NOTICE}"
)

MARKDOWN: Final = "text/markdown"

RESOURCES: Final = (
    ("company", "imem://company/{ticker}", "The briefing on a company."),
    ("subject", "imem://subject/{id}", "The briefing on a subject, such as company:MU or market:ID."),
    ("debate", "imem://debate/{id}", "A debate with every turn."),
)
"""Name, template and description of each kind of resource."""


@dataclass(frozen=True, slots=True)
class MemoryServer:
    """
    The handlers of one actor.

    Attributes:
        memory: answers.
        actor: of the settings, as in *memory*.
        version: of the program.
    """

    memory: Memory
    actor: Actor
    version: str

    def protocol(self) -> Server[Any]:
        """Return the protocol's server over these handlers."""
        return Server(
            "imem",
            version=self.version,
            title="Institutional Memory",
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
        )

    async def list_tools(self, *_: Any) -> ListToolsResult:
        """Return the tools that the actor may use."""
        return ListToolsResult(tools=[listed_tool(tool) for tool in TOOLS if tool.listed_for(self.actor)])

    async def call_tool(self, _: Any, params: CallToolRequestParams) -> CallToolResult:
        """Return the result of a tool, or the error in a sentence; one that is not listed is denied by the gateway."""
        tool = TOOLS_BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool {shortened(params.name, 100)!r}.")
        try:
            answer = await tool.call(self.memory, self.actor, params.arguments or {})
            remark = tool.remark(params.arguments or {}, self.actor)
            text, document = tool.text(answer, remark), tool.json(answer, remark)
            return CallToolResult(content=[TextContent(text=text)], structured_content=document)
        except ImemError as error:
            return _failed(error, writes=tool.action is not Action.READ, destroys=tool.destroys)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next call shall be answered
            return _failed(_unexpected(error))

    async def list_resources(self, *_: Any) -> ListResourcesResult:
        """Return none: there are as many as subjects and debates, and templates name them."""
        return ListResourcesResult(resources=[])

    async def list_templates(self, *_: Any) -> ListResourceTemplatesResult:
        """Return the templates of resources."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(name=name, uri_template=template, description=purpose, mime_type=MARKDOWN)
                for name, template, purpose in RESOURCES
            ]
        )

    async def read_resource(self, _: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a resource as Markdown; an error is one of the protocol, in a sentence."""
        try:
            text = await self._resource(params.uri)
        except ImemError as error:
            raise MCPError(INVALID_PARAMS, shortened(_sentence(error), MOST_CHARS)) from error
        except Exception as error:  # whatever it is, the client gets an error of the protocol
            raise MCPError(INVALID_PARAMS, str(_unexpected(error))) from error
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=MARKDOWN, text=text)])

    async def _resource(self, uri: str) -> str:
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise BadInput("uri", f"cannot be read: {error}.") from error
        kind, key = parts.netloc, unquote(parts.path.removeprefix("/"))
        if parts.scheme == "imem" and key and kind in {"company", "subject"}:
            brief, subject = TOOLS_BY_NAME["brief"], f"company:{key}" if kind == "company" else key
            return brief.text(await brief.call(self.memory, self.actor, {"subject": subject}))
        if parts.scheme == "imem" and key and kind == "debate":
            found = await self.memory.debate(key)
            turns = (one.model_copy(update={"text": shortened(one.text, FOUND_CHARS)}) for one in found.turns)
            return as_text([debate_text(found.debate), *map(turn_text, turns)])
        raise BadInput("uri", f"is none of {', '.join(template for _, template, _ in RESOURCES)}.")


def listed_tool(tool: Tool) -> ListedTool:
    """Return *tool* as the protocol lists it."""
    # What a hint says by default is left out: it is sent to every model.
    hints = (
        ToolAnnotations(read_only_hint=True) if tool.action is Action.READ else ToolAnnotations(destructive_hint=False)
    )
    return ListedTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=None if tool.destroys else hints,
    )


def _failed(error: ImemError, *, writes: bool = False, destroys: bool = False) -> CallToolResult:
    """
    Return *error* as a result: its kind, the argument that is wrong, and whether the same call may succeed later.

    Args:
        writes: whether the tool writes: the result then says that nothing was recorded, unless nobody knows.
        destroys: whether it can delete: a deletion of many memories that stops half-way has deleted some. Arguments
            and rights are checked before.
    """
    refused = writes and not isinstance(error, OutcomeUnknown)
    if destroys:
        refused = isinstance(error, BadInput | PermissionDenied)
    details = {
        "error": type(error).__name__,
        "message": error.message,
        "mend": error.mend,
        "retryable": error.retryable,
        **({"argument": error.field} if isinstance(error, BadInput) else {}),
        **({"recorded": False} if refused else {}),
    }
    sentence = _sentence(error)
    nothing = f" {NOTHING_RECORDED}" if refused and NOTHING_RECORDED not in sentence else ""
    text = f"{type(error).__name__}: {sentence}{nothing}{' Try again later.' if error.retryable else ''}"
    return CallToolResult(
        content=[TextContent(text=shortened(text, MOST_CHARS - 100))],
        structured_content=structured(details),
        is_error=True,
    )


def _sentence(error: ImemError) -> str:
    """Return what went wrong and the mend; ids that others chose are quoted, since one can be an instruction."""
    match error:
        case UnknownSubject(nearest=(_, *_)):
            return f"{error.message} Did you mean {', '.join(map(name, error.nearest))}? {WARNING}"
        case AmbiguousSubject():
            ids = ", ".join(map(name, error.subject_ids))
            return f"{error.field}: {error.subject!r} is the name of {ids}. {error.mend} {WARNING}"
        case _:
            return str(error)


def _unexpected(error: Exception) -> ImemError:
    """Return the sentence about an unexpected error, whose own text may hold anything, a password among it."""
    log.error("mcp.unexpected", error=type(error).__name__)
    return ImemError(f"Something unexpected went wrong ({type(error).__name__}).")
