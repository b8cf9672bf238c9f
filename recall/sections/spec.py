"""Declaration of a section: model, retriever, fallbacks, limits, rights, dependency tags and rendering."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

import orjson

from imem.journal.actors import ResourceType
from imem.recall.answers import BriefingSection
from imem.recall.dated_rows import DatedQuery
from imem.recall.rendering.rendered import RenderContext, RenderedSection
from imem.recall.retrievers import Limits, RetrievalRequest

A = TypeVar("A", bound=BriefingSection)


def _no_tags(_: Any) -> frozenset[str]:
    return frozenset()


def _no_lines(_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSpec(Generic[A]):
    """
    Declaration of one section.

    Attributes:
        name: name of the section, of its field in a briefing, and of its query in metrics and cache keys.
        model: its model.
        load: its retriever.
        fallbacks: fallback retrievers, in order.
        limits: fields of :class:`~imem.recall.retrievers.Limits` that are part of its cache key.
        resource: resource type that the gateway authorizes.
        own_record: whether its dependency tag is the subject's own record, not all records about the subject.
        tags: further dependency tags, from the answer.
        shows_patterns: whether it may show patterns.
        for_agent: whether it depends on the agent that asks.
        needs_agent: whether it is there only if an agent is named that asks.
        current_only: cached only without an as-of: the tags do not cover all that an answer as of a day depends on.
        query: the named query with which it finds its records as of a moment, if it has one.
        renderers: what renders it as Markdown; its parts in the order in which they are shown.
        item_text: renders one item of it as Markdown.
        tail: lines that follow its items.
    """

    name: str
    model: type[A]
    load: Callable[[RetrievalRequest], Awaitable[A]]
    fallbacks: tuple[Callable[[RetrievalRequest], Awaitable[A]], ...] = ()
    limits: tuple[str, ...] = ()
    resource: ResourceType = ResourceType.GRAPH
    own_record: bool = False
    tags: Callable[[A], frozenset[str]] = field(default=_no_tags)
    shows_patterns: bool = False
    for_agent: bool = False
    needs_agent: bool = False
    current_only: bool = False
    query: DatedQuery | None = None
    renderers: tuple[Callable[[RenderContext], RenderedSection], ...] = ()
    item_text: Callable[[Any], str] | None = None
    tail: Callable[[A], Iterable[str]] = field(default=_no_lines)

    def text(self, section: A) -> str:
        """Return its items and tail as Markdown; empty if there are none, or if none is rendered by itself."""
        if self.item_text is None:
            return ""
        return "\n".join([*(self.item_text(item) for item in getattr(section, "items", ())), *self.tail(section)])

    def arguments(self, limits: Limits) -> dict[str, int]:
        """Return the limits that are part of its cache key."""
        return {name: getattr(limits, name) for name in self.limits}


@cache
def schema_of(model: type[BriefingSection]) -> str:
    """Return a hash of a model's JSON schema, part of cache keys: programs with different models share no entry."""
    return hashlib.blake2b(orjson.dumps(model.model_json_schema()), digest_size=6).hexdigest()
