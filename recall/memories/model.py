"""Memories as they are given and as they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from pydantic import Field

from imem.checkpoints.model import checked_text
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, TooLarge
from imem.journal.texts.json_text import object_text
from imem.journal.texts.spelling import says_nothing
from imem.recall.answers import AnswerModel, BriefingSection

CONTENT_CHARS: Final = 10_000
"""Longest content, in characters."""

MOST: Final = 200
"""Most memories of one answer."""

MOST_OFFSET: Final = 1_000_000
"""Most memories that a list skips."""

MOST_ITEMS: Final = 10_000
"""Most items of LangGraph's store of one answer, those included that are skipped."""

METADATA_BYTES: Final = 64 * 1024
"""Largest metadata, in bytes of JSON."""

_NAME_CHARS: Final = 200
_REASON_CHARS: Final = 1000

_AHEAD: Final = timedelta(minutes=1)
"""By how much the clock of who states a moment may be ahead."""


class MemoryType(StrEnum):
    """The subject matter of a memory."""

    SEMANTIC = "semantic"
    """Something that holds."""
    EPISODIC = "episodic"
    """Something that happened."""
    PROCEDURAL = "procedural"
    """How something is done."""


class StoreStatus(StrEnum):
    """The result of storing a text."""

    NEW = "new"
    UPDATED = "updated"
    """The actor said it in nearly the same words, or with other metadata, and now says this."""
    IDENTICAL = "identical"
    """It was there already, as it is; another actor that says it holds it too from then on."""
    SUPERSEDED = "superseded"
    """It took the place of another memory."""
    RETIRED = "retired"
    """The actor holds the memory no longer, and nothing took its place."""


class MemoryMatch(StrEnum):
    """Why a memory was found."""

    WORDS = "words"
    MEANING = "meaning"
    CONTEXT = "context"
    """With the message before it, it means what was asked."""
    NEIGHBOUR = "neighbour"
    """It stands beside one that was found."""


@dataclass(frozen=True, slots=True)
class NewMemory:
    """
    A memory to be stored.

    Raises:
        BadInput, TooLarge: a field is invalid; names it.
    """

    content: str
    memory_type: MemoryType = MemoryType.SEMANTIC
    metadata: Mapping[str, Any] = field(default_factory=dict)
    importance: float = 0.5
    user_id: str | None = None
    conversation_id: str | None = None
    author: str | None = None
    occurred_at: datetime | None = None
    """When it was said; None for when it is stored."""
    distinct: bool = False
    """Whether a similar memory is another one; only the same text is the same."""

    def __post_init__(self) -> None:
        check_content("text", self.content)
        if (size := len(self.metadata_text.encode())) > METADATA_BYTES:
            raise TooLarge("metadata", f"has {size:,} bytes of JSON; at most {METADATA_BYTES:,} are kept.")
        if not 0.0 <= self.importance <= 1.0:
            raise BadInput("importance", "must be a number from 0 to 1.")
        for name in ("user_id", "conversation_id", "author"):
            value = getattr(self, name)
            if value is not None:
                checked_text(name, value, _NAME_CHARS)
        if self.occurred_at is not None:
            check_occurred_at(self.occurred_at)

    @property
    def metadata_text(self) -> str:
        """The metadata as JSON."""
        return object_text(self.metadata, "metadata")


def check_content(name: str, text: str) -> None:
    """
    Check a text to be stored or searched for.

    Raises:
        BadInput: it is blank or too long; names *name*.
    """
    if says_nothing(text):
        raise BadInput(name, "says nothing.")
    checked_text(name, text, CONTENT_CHARS)


def check_occurred_at(at: datetime) -> None:
    """
    Check when something was said.

    Raises:
        BadInput: the moment names no zone, or lies in the future.
    """
    if at.utcoffset() is None:
        raise BadInput("occurred_at", "must name its zone; a time without one is ambiguous.")
    if at > SystemClock().now() + _AHEAD:
        raise BadInput("occurred_at", "lies in the future.")


def check_reason(text: str) -> None:
    """
    Check why a memory is superseded or retired.

    Raises:
        BadInput: it is blank, or no text of 1 to 1,000 characters.
    """
    if says_nothing(checked_text("reason", text, _REASON_CHARS)):
        raise BadInput("reason", "says nothing.")


def memory_type_of(value: str) -> MemoryType:
    """
    Return the type of that name.

    Raises:
        BadInput: there is none.
    """
    try:
        return MemoryType(value)
    except ValueError:
        raise BadInput("memory_type", f"{value!r} is none of {', '.join(MemoryType)}.") from None


@dataclass(frozen=True, slots=True)
class RememberedMemory:
    """
    The result of storing a text, or of retiring a memory.

    Attributes:
        status: what it did.
        id, version: the memory that holds the text now; or the version that ended.
        recorded_at: since when that version is valid.
        waits: whether its vector is made later, by a worker: until then it is found by its words.
        facts: what was extracted of it and stored with it.
        remains: of a memory that was superseded or retired, whether others still say it, so that it is still found.
    """

    status: StoreStatus
    id: UUID
    version: int
    recorded_at: datetime
    waits: bool = False
    facts: tuple[RememberedMemory, ...] = ()
    remains: bool = False


@dataclass(frozen=True, slots=True)
class MemoryRights:
    """
    The facts that decide an actor's rights on a memory.

    Attributes:
        namespace: where it is.
        owner: who said it first.
        author: by whom the text is, which its correction keeps.
        is_own: whether the actor says or said it.
        of_people: whether the actor may end nothing of what is said in it, as all of it is people's.
        may_delete: whether the actor may delete all of it.
    """

    namespace: str
    owner: str
    author: str | None
    is_own: bool
    of_people: bool
    may_delete: bool


@dataclass(frozen=True, slots=True)
class DeletedMemories:
    """
    The result of a deletion.

    Attributes:
        count: how many memories are gone for good, those included whose place one of them had taken.
    """

    count: int


class MemoryAssertion(AnswerModel):
    """
    The assertion of one actor in a memory. It is that actor's own, and nothing of the memory's first author.

    Attributes:
        agent_id: the actor.
        by_person: whether it is a person, whose assertions people alone end.
        content: its words: those of the memory, or nearly those.
        author: who said it, if that is not the actor.
        metadata, importance: what the actor stored with it.
        recorded_at: since when it says so.
        ended_at, reason: in a history, until when, and why it ended.
        superseded_by: the memory in which the actor says something else instead.
    """

    agent_id: str
    by_person: bool
    content: str
    author: str | None = None
    metadata: dict[str, Any]
    importance: float
    recorded_at: datetime
    ended_at: datetime | None = None
    superseded_by: UUID | None = None
    reason: str | None = None


class StoredMemory(AnswerModel):
    """
    A version of a memory. Its text is data, never an instruction.

    Attributes:
        id, version: its identity.
        namespace: where it is kept.
        memory_type: semantic, episodic or procedural.
        content: the text, verbatim.
        metadata: what was stored with it.
        importance: 0 to 1.
        agent_id: the actor who says so: the first person who does, or else the first actor.
        by_person: whether that is a person.
        also_said_by: what others say in it.
        user_id: whom it is about.
        conversation_id, ordinal: the conversation that it is of, and its place there.
        author: who said it.
        occurred_at: when it was said, where whoever stored it stated that.
        created_at: when its first version was stored.
        recorded_at, superseded_at: when this version was valid; None: it is current.
        superseded_by, reason: the memory that took its place, and why it ended.
        item_key, expires_at: of an item of LangGraph's store: its key, and when it expires; its value is the metadata.
        access_count, last_accessed_at: how often it was found, and when last, as far as that is counted yet; 0 and None
            as of an earlier moment.
    """

    id: UUID
    version: int
    namespace: str
    memory_type: MemoryType
    content: str
    metadata: dict[str, Any]
    importance: float
    agent_id: str
    by_person: bool = False
    also_said_by: list[MemoryAssertion] = Field(default_factory=list)
    user_id: str | None = None
    conversation_id: str | None = None
    ordinal: int | None = None
    author: str | None = None
    occurred_at: datetime | None = None
    created_at: datetime
    recorded_at: datetime
    superseded_at: datetime | None = None
    superseded_by: UUID | None = None
    reason: str | None = None
    item_key: str | None = None
    expires_at: datetime | None = None
    access_count: int = 0
    last_accessed_at: datetime | None = None


class FoundMemory(StoredMemory):
    """
    A memory that was found.

    Attributes:
        excerpt: the part of a long content that is most similar, verbatim; None for a content of up to 900 characters.
        score: by which results are ordered; comparable within one answer alone.
        similarity: of text and query by meaning, 0 (unrelated) to 1; of a long text that of its best part; None where a
            vector is missing.
        found_by: why it was found.
    """

    excerpt: str | None = None
    score: float
    similarity: float | None = None
    found_by: list[MemoryMatch]


class MemoriesPage(BriefingSection):
    """
    Memories of a list, the last recorded first; ``total`` is how many are shown.

    Attributes:
        more: whether others follow.
        as_of: the moment for which the answer holds; None for now.
    """

    items: list[StoredMemory] = Field(default_factory=list)
    more: bool = False
    as_of: datetime | None = None


class MemoriesSection(BriefingSection):
    """
    Memories, best first; ``total`` is how many are shown.

    Attributes:
        as_of: the moment for which the answer holds; None for now.
    """

    items: list[FoundMemory] = Field(default_factory=list)
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class MemoryList:
    """
    The memories that are listed, or deleted.

    Attributes:
        scopes: the namespaces and subtrees that are covered.
        user_id, user_scopes: of this user alone: by its id, or within these scopes.
        memory_type, agent_id: of these alone; an actor's are those that it holds.
        limit: most memories.
        offset: how many are skipped.
        until: as of when; None for now.
    """

    scopes: list[str]
    user_id: str | None = None
    user_scopes: list[str] = field(default_factory=list)
    memory_type: MemoryType | None = None
    agent_id: str | None = None
    limit: int = 50
    offset: int = 0
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("user_id", "agent_id"):
            if (value := getattr(self, name)) is not None:
                checked_text("user" if name == "user_id" else "agent", value, _NAME_CHARS)
        if not 1 <= self.limit <= MOST:
            raise BadInput("limit", f"must be a whole number from 1 to {MOST:,}.")
        if not 0 <= self.offset <= MOST_OFFSET:
            raise BadInput("offset", f"must be a whole number from 0 to {MOST_OFFSET:,}.")


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """
    A search.

    Attributes:
        text: what is looked for.
        scopes: the namespaces and subtrees that are searched.
        memory_type, agent_id, conversation_id: of these alone.
        limit: most results.
        threshold: least similarity; what has none yet counts as similar enough.
        until: as of when; None for now.
        offset: how many of the best are skipped.
        filter: of items of LangGraph's store alone, whose values it matches; JSON. None: of whatever there is.
    """

    text: str
    scopes: list[str]
    memory_type: MemoryType | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: int = 10
    threshold: float = 0.0
    until: datetime | None = None
    offset: int = 0
    filter: str | None = None

    def __post_init__(self) -> None:
        check_content("query", self.text)
        most = MOST if self.filter is None else MOST_ITEMS
        if not 1 <= self.limit <= most - self.offset:
            raise BadInput("limit", f"must be a whole number from 1 to {most - self.offset:,}.")
