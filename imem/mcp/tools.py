"""
The tools, each declared once: the method of ``Memory`` that it calls, the right that it takes, its arguments, its text.

Arguments have the names and meanings of the method's, which checks them; all that stands here is sent to every model
that uses the server, so descriptions are short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_jsonable_python

from imem.journal.actors import Action, Actor, Resource, ResourceType, allowed
from imem.journal.errors import BadInput
from imem.journal.settings import Role
from imem.kg.kinds.enums import Direction, Recommendation
from imem.kg.model import Analysis, Finding
from imem.mcp.results import MOST_CHARS, as_text, structured
from imem.recall.memories.model import DeletedMemories, MemoriesPage
from imem.recall.rendering.formatting import found_text_lines, memory_text
from imem.recall.search.model import SearchKind
from imem.recall.section_registry import SECTIONS_BY_NAME
from imem.recall.sections.similar_analyses import similar_text
from imem.recall.sections.track_records import track_table
from imem.terminal.command import moment

if TYPE_CHECKING:
    from imem.memory import Memory

ENCODING_MS: Final = 5_000
"""Budget of a tool that encodes a text, in milliseconds: the first call loads the encoder."""

FOUND_CHARS: Final = 1_000
"""Characters of a text that was found, in the text of a result."""

Schema = Mapping[str, Any]
"""JSON schema of one argument."""


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _number(description: str) -> Schema:
    return {"type": "number", "description": description}


_AS_OF: Final = _text("As of this RFC 3339 time or day.")
_SUBJECT: Final = _text("Ticker, subject id (company:MU) or exact name.")
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 200}

_FINDING: Final[Mapping[str, Schema]] = {
    "statement": {"type": "string"},
    "subject_id": _text("That of the analysis by default."),
    "direction": {"enum": [one.value for one in Direction]},
    "probability": {"type": "number"},
    "confidence": {"type": "number"},
    "key_drivers": {"type": "array", "items": {"type": "string"}},
    "metric": _text("Of a claim: up, return_5s, close, revenue ..."),
    "value": {"type": "number"},
    "target_at": _text("When the claim is settled."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """
    One tool.

    Attributes:
        name, description: what a model reads.
        method: the method of ``Memory``, dotted, or what chooses it by the arguments.
        arguments: JSON schemas by name.
        required: which of them must be given.
        resource, action: the right that the method takes; a tool that writes is listed only for roles that have it.
        lines: the result as lines of Markdown, in which stored text is quoted.
        prepared: turns the arguments into those of the method.
    """

    name: str
    description: str
    method: str | Callable[[Mapping[str, Any]], str]
    arguments: Mapping[str, Schema]
    required: tuple[str, ...]
    lines: Callable[[Any], Iterable[str]]
    resource: ResourceType = ResourceType.GRAPH
    action: Action = Action.READ
    prepared: Callable[[dict[str, Any], Actor], dict[str, Any]] = field(default=lambda given, _: given)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        found = {"type": "object", "properties": dict(self.arguments), "additionalProperties": False}
        return {**found, "required": list(self.required)}

    def listed_for(self, actor: Actor) -> bool:
        """Return whether *actor* sees it: reading is answered or denied when asked, writing is not even offered."""
        return self.action is Action.READ or allowed(actor, Resource(self.resource, None, actor.id), self.action)

    async def call(self, memory: Memory, actor: Actor, given: Mapping[str, Any]) -> Any:
        """
        Call the method.

        Raises:
            BadInput: an argument is missing, unknown or wrong; names it.
            ImemError: as the method.
        """
        # Many models state every argument that they know of, the unused ones as null.
        stated = {name: value for name, value in given.items() if value is not None}
        for name in self.required:
            if name not in stated:
                raise BadInput(name, "is required.")
        for name in stated:
            if name not in self.arguments:
                raise BadInput(name, f"is no argument of {self.name}; it takes {', '.join(self.arguments)}.")
        if isinstance(stated.get("as_of"), str):
            stated["as_of"] = moment(stated["as_of"], "as_of")
        method = self.method if isinstance(self.method, str) else self.method(stated)
        return await attrgetter(method)(memory)(**self.prepared(stated, actor))

    def text(self, answer: Any) -> str:
        """Return the result as Markdown within the bound, with its quality unless that is exact."""
        reason = getattr(answer, "reason", None)
        note = f"[{answer.quality.value}: {reason}]" if reason is not None else ""
        return as_text(list(self.lines(answer)) or ["Nothing was found."], note=note)

    def json(self, answer: Any) -> dict[str, Any]:
        """Return the result as JSON types within the bound."""
        return structured(to_jsonable_python(answer, exclude_none=True))


def _for_itself(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """Add the agent that asks: its own track record is part of its briefing."""
    return {**given, "for_agent": actor.id} if actor.role is Role.AGENT else given


def _encoding(given: dict[str, Any], _: Actor) -> dict[str, Any]:
    return {**given, "deadline_ms": ENCODING_MS}


_CHANGES: Final = {"correct": "memories.supersede", "retire": "memories.retire", "delete": "memories.delete"}
"""Action of a change of a memory → the method."""


def _listing(given: Mapping[str, Any]) -> str:
    return "memories.get" if "id" in given else "memories.list"


def _change(given: Mapping[str, Any]) -> str:
    """
    Return the method for a change of memories.

    Raises:
        BadInput: there is no such action, or it needs an id.
    """
    if (action := given["action"]) not in _CHANGES:
        raise BadInput("action", f"is none of {', '.join(_CHANGES)}.")
    if "id" in given:
        return _CHANGES[action]
    if action != "delete":
        raise BadInput("id", "is required.")
    return "memories.delete_all"


def _by_id(given: dict[str, Any], _: Actor) -> dict[str, Any]:
    return {("memory_id" if name == "id" else name): value for name, value in given.items()}


def _changing(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    return _by_id({name: value for name, value in given.items() if name != "action"}, actor)


def _analysis(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    body = {"body": given.pop("body")} if "body" in given else {}
    stated = given.pop("findings", [])
    if not isinstance(stated, list):
        raise BadInput("findings", "must be a list of objects.")
    analysis = Analysis(**given)
    findings = [_finding(one, number, analysis, actor) for number, one in enumerate(stated)]
    return {"analysis": analysis, "findings": findings, **body}


def _finding(stated: Any, number: int, analysis: Analysis, actor: Actor) -> Finding:
    """Return the finding at that place of an analysis; its id follows from both: a repeated call changes nothing."""
    if not isinstance(stated, dict):
        raise BadInput(f"findings.{number}", "must be an object.")
    stated = {name: value for name, value in stated.items() if value is not None}
    if unknown := sorted(map(str, stated.keys() - _FINDING.keys())):
        raise BadInput(f"findings.{number}.{unknown[0]}", f"is none of {', '.join(_FINDING)}.")
    own = {"id": f"{analysis.id}/{number + 1}", "analysis_id": analysis.id, "agent": actor.id}
    about = {"subject_id": analysis.subject_id, "domain": analysis.kind}
    try:
        return Finding(**{**about, **stated, **own})
    except BadInput as error:
        raise BadInput(f"findings.{number}.{error.field}", error.reason) from error


def _receipt(receipt: Any) -> Iterable[str]:
    yield f"{receipt.verdict.value}: event {receipt.event_id}, recorded {receipt.recorded_at.isoformat()}"


def _remembered(done: Any) -> Iterable[str]:
    later = "; a worker makes its vector later, until then words find it" if done.waits else ""
    others = "; the old one remains, as others say it" if done.remains else ""
    yield f"{done.status.value}: memory {done.id}, version {done.version}{later}{others}"


def _listed(answer: Any) -> Iterable[str]:
    page = isinstance(answer, MemoriesPage)
    yield from (memory_text(item, FOUND_CHARS) for item in (answer.items if page else [answer]))
    if page and answer.more:
        yield "More follow: raise the offset."


def _changed(done: Any) -> Iterable[str]:
    return [f"deleted: {done.count:,}"] if isinstance(done, DeletedMemories) else _remembered(done)


TOOLS: Final = (
    Tool(
        name="brief",
        description="What the institution knows about a subject: analyses, outcomes, debates, track records, lessons.",
        method="brief",
        arguments={"subject": _SUBJECT, "as_of": _AS_OF},
        required=("subject",),
        prepared=_for_itself,
        lines=lambda briefing: briefing.to_markdown(max_chars=MOST_CHARS).splitlines(),
    ),
    Tool(
        name="search",
        description="Find analyses, findings, debates, lessons, memories and more by words and meaning, best first.",
        method="search",
        arguments={
            "query": _text("Plain words."),
            "kinds": {"type": "array", "items": {"enum": [one.value for one in SearchKind]}},
            "subject": _SUBJECT,
            "limit": _LIMIT,
            "as_of": _AS_OF,
        },
        required=("query",),
        prepared=_encoding,
        lines=lambda answer: (line for item in answer.items for line in found_text_lines(item, FOUND_CHARS)),
    ),
    Tool(
        name="similar",
        description="Analyses of other subjects similar to an analysis or a subject, and what came of them.",
        method="similar",
        arguments={"what": _text("Id of an analysis, or a subject."), "limit": _LIMIT, "as_of": _AS_OF},
        required=("what",),
        lines=lambda answer: map(similar_text, answer.items),
    ),
    Tool(
        name="track_record",
        description="How often an agent was right, by domain, with 95 % intervals. An agent may ask for its own alone.",
        method="track_record",
        arguments={"agent": _text("Its name."), "domain": _text("One domain alone."), "as_of": _AS_OF},
        required=("agent",),
        resource=ResourceType.CREDIBILITY,
        lines=lambda answer: track_table(answer.items).splitlines(),
    ),
    Tool(
        name="contradictions",
        description="Where sources disagree about a subject's data, open ones first.",
        method="contradictions",
        arguments={"subject": _SUBJECT, "limit": _LIMIT, "as_of": _AS_OF},
        required=("subject",),
        lines=lambda answer: SECTIONS_BY_NAME["contradictions"].text(answer).splitlines(),
    ),
    Tool(
        name="search_memories",
        description="Find remembered texts by words and meaning, best first.",
        method="memories.search",
        arguments={
            "query": _text("Plain words."),
            "namespace": _text("One, such as symbol/MU, or a subtree, symbol/MU/*; all by default."),
            "limit": _LIMIT,
            "as_of": _AS_OF,
        },
        required=("query",),
        resource=ResourceType.MEMORIES,
        prepared=_encoding,
        lines=lambda answer: (memory_text(item, FOUND_CHARS) for item in answer.items),
    ),
    Tool(
        name="record_analysis",
        description="Record an analysis of a subject, with findings. The same again changes nothing.",
        method="record_analysis",
        arguments={
            "id": _text("Your own, such as ann:MU-2026-06-01."),
            "subject_id": _text("company:TICKER or market:ID."),
            "date": _text("When it was made, RFC 3339 with zone."),
            "kind": _text("Sort of work, such as equity_research."),
            "summary": _text("At most a few sentences."),
            "recommendation": {"enum": [one.value for one in Recommendation]},
            "confidence": _number("0 to 1"),
            "probability": _number("Of yes, 0 to 1"),
            "horizon_days": {"type": "integer"},
            "model": _text("Language model that wrote it."),
            "body": _text("The whole text, at most 64 kB."),
            "findings": {
                "type": "array",
                "description": "What you conclude; you are shown it next time.",
                "items": {"type": "object", "properties": dict(_FINDING), "required": ["statement"]},
            },
        },
        required=("id", "subject_id", "date", "kind"),
        resource=ResourceType.JOURNAL,
        action=Action.APPEND,
        prepared=_analysis,
        lines=_receipt,
    ),
    Tool(
        name="store_memory",
        description="Remember a text; nearly the same text in its namespace is updated.",
        method="remember",
        arguments={
            "text": _text("At most 10,000 characters."),
            "namespace": _text("agent/NAME, symbol/NAME, user/NAME or below; your own by default."),
            "memory_type": {"enum": ["semantic", "episodic", "procedural"]},
            "importance": _number("0 to 1"),
        },
        required=("text",),
        resource=ResourceType.MEMORIES,
        action=Action.WRITE,
        lines=_remembered,
    ),
    Tool(
        name="list_memories",
        description="Memories, newest first; or one by id.",
        method=_listing,
        arguments={
            "id": {"type": "string"},
            "namespace": {"type": "string"},
            "user": {"type": "string"},
            "limit": {"type": "integer"},
            "offset": {"type": "integer"},
            "as_of": {"type": "string"},
        },
        required=(),
        resource=ResourceType.MEMORIES,
        prepared=_by_id,
        lines=_listed,
    ),
    Tool(
        name="change_memory",
        description="Correct, retire or delete a memory; delete takes a namespace or user, too.",
        method=_change,
        arguments={
            "action": {"enum": list(_CHANGES)},
            "id": {"type": "string"},
            "text": {"type": "string"},
            "reason": {"type": "string"},
            "namespace": {"type": "string"},
            "user": {"type": "string"},
        },
        required=("action",),
        resource=ResourceType.MEMORIES,
        action=Action.WRITE,
        prepared=_changing,
        lines=_changed,
    ),
)
"""All tools, in the order in which they are listed."""

TOOLS_BY_NAME: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
