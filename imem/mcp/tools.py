"""
The tools, each declared once: the method of ``Memory`` that it calls, the right that it takes, its arguments, its text.

Arguments have the names and meanings of the method's, which checks them. All that stands here is sent to every model
that uses the server: descriptions are short, and an argument that several tools take is described at the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic_core import to_jsonable_python

from imem.credibility.disputes.reading import MetricValue
from imem.debates.precedents.rendering import precedents_lines
from imem.debates.rendering import progress_document, progress_lines
from imem.debates.states import Act
from imem.journal.actors import Action, Actor, Resource, ResourceType, allowed
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput
from imem.journal.settings import Role
from imem.kg.kinds.enums import Direction, Recommendation, Stance
from imem.kg.model import Analysis, Decision, Finding
from imem.mcp.results import MOST_CHARS, as_text, structured
from imem.mcp.times import stated_time, unheeded_time
from imem.recall.memories.model import DeletedMemories, MemoriesPage
from imem.recall.rendering.formatting import found_text_lines, memory_text
from imem.recall.rendering.metric_values import value_lines
from imem.recall.section_registry import SECTIONS_BY_NAME
from imem.recall.sections.similar_analyses import similar_text
from imem.recall.sections.track_records import track_table
from imem.terminal.command import moment, parse_period

if TYPE_CHECKING:
    from imem.debates.service import DebateProgress
    from imem.memory import Memory

ENCODING_MS: Final = 5_000
"""Budget of a tool that encodes a text, in milliseconds: the first call loads the encoder."""

FOUND_CHARS: Final = 1_000
"""Characters of a text that was found, in the text of a result."""

Schema = Mapping[str, Any]
"""JSON schema of one argument."""


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "number"}
_INTEGER: Final[Schema] = {"type": "integer"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_VALUE: Final[Schema] = {}
"""A number, or a rating."""


def _one_of(kinds: type[StrEnum]) -> Schema:
    return {"enum": [one.value for one in kinds]}


_FINDING: Final[Mapping[str, Schema]] = {
    "statement": _TEXT,
    "subject_id": _TEXT,
    "direction": _one_of(Direction),
    "probability": _NUMBER,
    "confidence": _NUMBER,
    "key_drivers": _TEXTS,
    "metric": _text("Claimed: up, return_5s, close."),
    "value": _NUMBER,
    "target_at": _TEXT,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """
    A method that some arguments of a tool choose.

    Attributes:
        method: the method of ``Memory``, dotted.
        required, optional: the arguments that it takes.
    """

    method: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """
    One tool.

    Attributes:
        name, description: what a model reads.
        method: the method of ``Memory``, dotted, or what chooses it, and which arguments it takes, by the arguments.
        arguments: JSON schemas by name.
        required: which of them must be given.
        resource, action: the right that the method takes; a tool that writes is listed only for roles that have it.
        destroys: whether it can delete what was stored.
        lines: the result as lines of Markdown, in which stored text is quoted.
        prepared: turns the arguments into those of the method.
        document: the result as a mapping; None: it is one, or a model.
        remark: what the result says about the arguments that were given; empty for nothing.
    """

    name: str
    description: str
    method: str | Callable[[Mapping[str, Any]], Variant]
    arguments: Mapping[str, Schema]
    required: tuple[str, ...]
    lines: Callable[[Any], Iterable[str]]
    resource: ResourceType = ResourceType.GRAPH
    action: Action = Action.READ
    destroys: bool = False
    prepared: Callable[[dict[str, Any], Actor], dict[str, Any]] = field(default=lambda given, _: given)
    document: Callable[[Any], Mapping[str, Any]] | None = None
    remark: Callable[[Mapping[str, Any], Actor], str] = field(default=lambda _, __: "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        required = {"required": list(self.required)} if self.required else {}
        return {"type": "object", "properties": dict(self.arguments), **required}

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
        stated = {name: self._meant(name, value) for name, value in given.items() if value is not None}
        self._check(stated, self.required, tuple(self.arguments))
        method = self.method
        if not isinstance(method, str):
            chosen = method(stated)
            self._check(stated, chosen.required, (*chosen.required, *chosen.optional))
            method = chosen.method
        if isinstance(stated.get("as_of"), str):
            stated["as_of"] = moment(stated["as_of"], "as_of")
        return await attrgetter(method)(memory)(**self.prepared(stated, actor))

    def _meant(self, name: str, value: Any) -> Any:
        """
        Return the value of an argument in the type that the schema names: clients send lists and numbers as text.

        Raises:
            BadInput: it has another type, and no single meaning in the right one; shows a right argument.
        """
        kind = self.arguments.get(name, {}).get("type")
        if kind not in _EXAMPLES:
            return value
        meant = _of_text(value, kind) if isinstance(value, str) else value
        if kind == "integer" and isinstance(meant, float) and meant.is_integer():
            meant = int(meant)
        if isinstance(meant, bool) or not isinstance(meant, _TYPES[kind]):
            raise BadInput(name, f"must be {_EXAMPLES[kind].format(name=name)}, not {value!r:.60}.")
        return meant

    def _check(self, stated: Mapping[str, Any], required: tuple[str, ...], known: tuple[str, ...]) -> None:
        for name in required:
            if name not in stated:
                raise BadInput(name, "is required.")
        for name in stated:
            if name not in known:
                raise BadInput(name, f"is no argument of {self.name} here; it takes {', '.join(known)}.")

    def text(self, answer: Any, remark: str = "") -> str:
        """Return the result as Markdown within the bound, with its quality unless that is exact, and the remark."""
        reason, quality = getattr(answer, "reason", None), getattr(answer, "quality", None)
        note = f"[{quality.value}: {reason}]" if reason is not None and quality is not None else ""
        return as_text([*self.lines(answer), *filter(None, [remark])] or ["Nothing was found."], note=note)

    def json(self, answer: Any, remark: str = "") -> dict[str, Any]:
        """Return the result as JSON types within the bound, with the remark."""
        whole = to_jsonable_python(answer if self.document is None else self.document(answer), exclude_none=True)
        return structured({**whole, "remark": remark} if remark else whole)


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {"integer": int, "number": (int, float), "array": list}

_EXAMPLES: Final = {
    "integer": 'a whole number, as {{"{name}": 5}}', "number": 'a number, as {{"{name}": 0.5}}',
    "array": 'a list of texts, as {{"{name}": ["…", "…"]}}',
}  # fmt: skip
"""Types that are taken from text, and how an argument of each looks."""


def _of_text(text: str, kind: str) -> Any:
    """Return the number or the list that a text writes, or the text; a name alone is a list of one."""
    found: Any = text
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(text)
    if kind != "array" or isinstance(found, list):
        return found
    name = found if isinstance(found, str) else text
    return [name] if re.fullmatch(r"[\w.:/-]+", name) else text


def _for_itself(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """Add the agent that asks: its own track record is part of its briefing."""
    return {**given, "for_agent": actor.id} if actor.role is Role.AGENT else given


def _encoding(given: dict[str, Any], _: Actor) -> dict[str, Any]:
    return {**given, "deadline_ms": ENCODING_MS}


def _period(given: dict[str, Any], _: Actor) -> dict[str, Any]:
    text = given["period"]
    if not isinstance(text, str):
        raise BadInput("period", f"must be text, not {type(text).__name__}.")
    return {**given, "period": parse_period(text, "period")}


_SEARCH: Final = Variant("memories.search", ("query",), ("namespace", "limit", "as_of"))
_LIST: Final = Variant("memories.list", (), ("namespace", "user", "limit", "offset", "as_of"))
_GET: Final = Variant("memories.get", ("id",), ("as_of",))
_DELETE_ALL: Final = Variant("memories.delete_all", ("action",), ("namespace", "user"))
_CHANGES: Final = {
    "correct": Variant("memories.supersede", ("action", "id", "text", "reason")),
    "retire": Variant("memories.retire", ("action", "id", "reason")),
    "delete": Variant("memories.delete", ("action", "id")),
}
"""The name of a change of memories, and its method."""


def _memories(given: Mapping[str, Any]) -> Variant:
    return _SEARCH if "query" in given else _GET if "id" in given else _LIST


def _asking(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    return _encoding(given, actor) if "query" in given else _by_id(given, actor)


def _change(given: Mapping[str, Any]) -> Variant:
    """
    Return the method for a change of memories.

    Raises:
        BadInput: there is no such action.
    """
    action = given["action"]
    if not isinstance(action, str) or action not in _CHANGES:
        raise BadInput("action", f"is none of {', '.join(_CHANGES)}.")
    return _CHANGES[action] if action != "delete" or "id" in given else _DELETE_ALL


def _by_id(given: dict[str, Any], _: Actor) -> dict[str, Any]:
    return {("memory_id" if name == "id" else name): value for name, value in given.items()}


def _changing(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    return _by_id({name: value for name, value in given.items() if name != "action"}, actor)


_ACTS: Final = {
    Act.RESPOND: Variant("respond", ("act", "debate_id", "text"), ("value", "evidence")),
    Act.JUDGE: Variant("judge", ("act", "debate_id", "winner", "text")),
    **{
        act: Variant(act.value, ("act", "debate_id"), () if act is Act.ACKNOWLEDGE else ("text",))
        for act in (Act.ACKNOWLEDGE, Act.ACCEPT, Act.STAND, Act.WITHDRAW)
    },
}
"""Acts in a debate that is open, each with its method and what that takes."""
_PROGRESS: Final = Variant("debate_progress", ("debate_id",))
_RUNNING: Final = Variant("running_debates", ())


def _act(given: Mapping[str, Any]) -> Variant:
    """
    Return the method for an act, or for a read without one.

    Raises:
        BadInput: there is no such act.
    """
    if "act" not in given:
        return _PROGRESS if "debate_id" in given else _RUNNING
    if given["act"] not in list(_ACTS):
        raise BadInput("act", f"is none of {', '.join(_ACTS)}.")
    return _ACTS[Act(given["act"])]


def _acting(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    known = {name: value for name, value in given.items() if name != "act"}
    return known if "debate_id" in known else {**known, "agent": actor.id}


def _debate_lines(answer: DebateProgress | list[DebateProgress]) -> Iterable[str]:
    now = SystemClock().now()
    return (line for one in (answer if isinstance(answer, list) else [answer]) for line in progress_lines(one, now))


def _debate_json(answer: DebateProgress | list[DebateProgress]) -> dict[str, Any]:
    return {"items": [*map(progress_document, answer)]} if isinstance(answer, list) else progress_document(answer)


def _analysis(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    given = stated_time(given, actor)
    at = given.pop("occurred_at", None)
    known = {} if at is None else {"known_at": at, "occurred_at": at}
    body = {"body": given.pop("body")} if "body" in given else {}
    stated = given.pop("findings", [])
    if not isinstance(stated, list):
        raise BadInput("findings", "must be a list of objects.")
    analysis = Analysis(**given)
    findings = [_finding(one, number, analysis, actor) for number, one in enumerate(stated)]
    return {"analysis": analysis, "findings": findings, **body, **known}


def _decision(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """Return the arguments of a decision that the actor takes."""
    more: dict[str, Any] = {name: given.pop(name) for name in ("body", "cites") if name in given}
    return {"decision": Decision(**given, agents_involved=(actor.id,)), **more}


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
    yield from (memory_text(item, FOUND_CHARS) for item in getattr(answer, "items", [answer]))
    if isinstance(answer, MemoriesPage) and answer.more:
        yield "More follow: raise the offset."


def _changed(done: Any) -> Iterable[str]:
    return [f"deleted: {done.count:,}"] if isinstance(done, DeletedMemories) else _remembered(done)


TOOLS: Final = (
    Tool(
        name="brief",
        description="What is known about a subject.",
        method="brief",
        arguments={
            "subject": _text("Ticker, id (company:MU, market:ID) or name."),
            "as_of": _text("A day, or RFC 3339."),
        },
        required=("subject",),
        prepared=_for_itself,
        lines=lambda briefing: briefing.to_markdown(max_chars=MOST_CHARS).splitlines(),
    ),
    Tool(
        name="search",
        description="Search records and memories.",
        method="search",
        arguments={
            "query": _TEXT,
            "kinds": _TEXTS,
            "subject": _TEXT,
            "limit": _INTEGER,
            "as_of": _TEXT,
        },
        required=("query",),
        prepared=_encoding,
        lines=lambda answer: (line for item in answer.items for line in found_text_lines(item, FOUND_CHARS)),
    ),
    Tool(
        name="similar",
        description="Similar analyses of other subjects.",
        method="similar",
        arguments={"what": _text("Analysis or subject."), "limit": _INTEGER, "as_of": _TEXT},
        required=("what",),
        lines=lambda answer: map(similar_text, answer.items),
    ),
    Tool(
        name="track_record",
        description="How often an agent was right.",
        method="track_record",
        arguments={"agent": _TEXT, "domain": _TEXT, "as_of": _TEXT},
        required=("agent",),
        resource=ResourceType.CREDIBILITY,
        lines=lambda answer: track_table(answer.items).splitlines(),
    ),
    Tool(
        name="contradictions",
        description="Values on which sources disagree.",
        method="contradictions",
        arguments={"subject": _TEXT, "limit": _INTEGER, "as_of": _TEXT},
        required=("subject",),
        lines=lambda answer: SECTIONS_BY_NAME["contradictions"].text(answer).splitlines(),
    ),
    Tool(
        name="value",
        description="Which value of a metric counts, and why.",
        method="value",
        arguments={
            "subject": _TEXT,
            "metric": _TEXT,
            "period": _text("Day, or 2019-01-01..2019-12-31."),
            "unit": _TEXT,
            "basis": _TEXT,
            "as_of": _TEXT,
        },
        required=("subject", "metric", "period"),
        prepared=_period,
        lines=value_lines,
        document=MetricValue.to_dict,
    ),
    Tool(
        name="find_precedents",
        description="Earlier debates like one.",
        method="find_precedents",
        arguments={"debate_or_topic": _TEXT, "as_of": _TEXT},
        required=("debate_or_topic",),
        prepared=_encoding,
        lines=precedents_lines,
    ),
    Tool(
        name="search_memories",
        description="Search memories; list them, or show one.",
        method=_memories,
        arguments={
            "query": _TEXT,
            "id": _TEXT,
            "namespace": _text("symbol/MU, or symbol/MU/*."),
            "user": _TEXT,
            "limit": _INTEGER,
            "offset": _INTEGER,
            "as_of": _TEXT,
        },
        required=(),
        resource=ResourceType.MEMORIES,
        prepared=_asking,
        lines=_listed,
    ),
    Tool(
        name="record_analysis",
        description="Record an analysis with findings.",
        method="record_analysis",
        arguments={
            "id": _text("New, such as ann:MU-1."),
            "subject_id": _TEXT,
            "date": _TEXT,
            "kind": _text("Such as equity_research."),
            "summary": _TEXT,
            "recommendation": _one_of(Recommendation),
            "confidence": {"type": "number", "description": "0 to 1"},
            "probability": _NUMBER,
            "horizon_days": _INTEGER,
            "model": _TEXT,
            "occurred_at": _TEXT,
            "body": _TEXT,
            "findings": {
                "type": "array",
                "description": "Their ids: ID/1, ID/2.",
                "items": {"type": "object", "properties": dict(_FINDING), "required": ["statement"]},
            },
        },
        required=("id", "subject_id", "date", "kind"),
        resource=ResourceType.JOURNAL,
        action=Action.APPEND,
        prepared=_analysis,
        remark=unheeded_time,
        lines=_receipt,
    ),
    Tool(
        name="record_decision",
        description="Record a decision.",
        method="record_decision",
        arguments={
            "id": _TEXT,
            "subject_id": _TEXT,
            "type": _TEXT,
            "decided_at": _TEXT,
            "stance": _one_of(Stance),
            "cites": {**_TEXTS, "description": "Findings; the first one gives the verdict."},
            "analysis_id": _TEXT,
            "action": _TEXT,
            "confidence": _NUMBER,
            "size_usd": _NUMBER,
            "body": _TEXT,
        },
        required=("id", "subject_id", "type", "decided_at"),
        resource=ResourceType.JOURNAL,
        action=Action.APPEND,
        prepared=_decision,
        remark=unheeded_time,
        lines=_receipt,
    ),
    Tool(
        name="challenge",
        description="Dispute a finding.",
        method="challenge",
        arguments={
            "finding_id": _TEXT,
            "basis": _TEXT,
            "value": _VALUE,
            "evidence": _TEXTS,
            "priority": _TEXT,
            "judge": _TEXT,
        },
        required=("finding_id", "basis"),
        resource=ResourceType.JOURNAL,
        action=Action.APPEND,
        lines=_debate_lines,
        document=_debate_json,
    ),
    Tool(
        name="respond",
        description="Act in a debate, see it, or list yours.",
        method=_act,
        arguments={
            "debate_id": _TEXT,
            "act": {"enum": [one.value for one in _ACTS]},
            "text": _TEXT,
            "value": _VALUE,
            "evidence": _TEXTS,
            "winner": _TEXT,
        },
        required=(),
        resource=ResourceType.JOURNAL,
        action=Action.APPEND,
        prepared=_acting,
        lines=_debate_lines,
        document=_debate_json,
    ),
    Tool(
        name="store_memory",
        description="Store a text.",
        method="remember",
        arguments={
            "text": _TEXT,
            "namespace": _text("symbol/X or user/X; by default yours."),
            "memory_type": _TEXT,
            "importance": _NUMBER,
            "occurred_at": _TEXT,
        },
        required=("text",),
        resource=ResourceType.MEMORIES,
        action=Action.WRITE,
        prepared=stated_time,
        remark=unheeded_time,
        lines=_remembered,
    ),
    Tool(
        name="change_memory",
        description="Correct, retire or delete a memory, or all of a namespace or user.",
        method=_change,
        arguments={
            "action": {"enum": list(_CHANGES)},
            "id": _TEXT,
            "text": _TEXT,
            "reason": _TEXT,
            "namespace": _TEXT,
            "user": _TEXT,
        },
        required=("action",),
        resource=ResourceType.MEMORIES,
        action=Action.WRITE,
        destroys=True,
        prepared=_changing,
        lines=_changed,
    ),
)
"""All tools, in the order in which they are listed."""

TOOLS_BY_NAME: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
