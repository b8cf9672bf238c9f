"""Reads of one section, record or named query, each under its own deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from imem.credibility.panels.evidence import weights_as_of
from imem.credibility.scores.people import pinned_scores
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import (
    TrackRecord,
    dated_pairs,
    dated_records,
    moments_read,
    track_pairs,
    track_records,
)
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, UnknownDebate
from imem.kg.asof import AsOf, ValuesAsOf, active_among, dated, parse_as_of
from imem.kg.kinds.catalog import KINDS
from imem.kg.kinds.enums import PatternStatus
from imem.kg.kinds.learning import visibility
from imem.kg.queries import arguments, named_queries
from imem.kg.similarity.scoring import NEIGHBOURS
from imem.recall.brief import Recall
from imem.recall.dated_rows import active_patterns
from imem.recall.model import (
    BriefingSection,
    DatedTrackRecord,
    DatedWeight,
    DebateItem,
    LongText,
    PanelsSection,
    Quality,
    RecordedDebate,
    Rows,
    SimilarSection,
    TrackRecordsSection,
    TrackRecordsTable,
    TurnItem,
    WeightsTable,
)
from imem.recall.retrievers import Limits, RetrievalRequest, record
from imem.recall.scores import parse_context
from imem.recall.section_registry import DATED_QUERIES
from imem.recall.sections import panels, similar_analyses
from imem.recall.sections.panels import weight_item
from imem.recall.sections.spec import SectionSpec
from imem.recall.sections.track_records import track_record
from imem.recall.timing.lateness import reports_lateness

A = TypeVar("A", bound=BriefingSection)

ACTIVE: Final = "active"
"""Parameter of queries that need the keys of active patterns."""

MOST: Final = 200
"""Most rows of one answer."""

MOST_TURNS: Final = 1_000
"""Most turns and resolutions of a debate that are read."""

_TURN: Final = tuple(TurnItem.model_fields)

_AREAS: Final[Mapping[str, tuple[ResourceType, Action]]] = {
    "patterns": (ResourceType.PATTERNS, Action.VALIDATE),
    "evidence": (ResourceType.PATTERNS, Action.VALIDATE),
    "agents": (ResourceType.CREDIBILITY, Action.READ),
    "learning": (ResourceType.LESSONS, Action.READ),
}
"""Right needed for named queries of an area; other areas need only reading the graph."""

_QUERIES: Final[Mapping[str, tuple[ResourceType, Action]]] = {
    "active_patterns": (ResourceType.PATTERNS, Action.READ),
}
"""Right needed for single queries: one that shows active patterns alone is open to every reader of patterns."""

_ACTIVE_ONLY: Final = frozenset({"active_patterns", "patterns_pending_revision"})
"""Queries that show active patterns alone."""

_SHOWN: Final = "pattern"
"""The column that holds the pattern in these queries."""

_LESSON: Final = "Lesson"
_PATTERN: Final = "Pattern"
_KINDS: Final[Mapping[str, tuple[ResourceType, Action]]] = {
    _PATTERN: (ResourceType.PATTERNS, Action.READ),
    **dict.fromkeys(
        ("PatternValidation", "ShadowAnalysis", "ArchiveDirectory", "DataFile"),
        (ResourceType.PATTERNS, Action.VALIDATE),
    ),
    "AgentCredibility": (ResourceType.CREDIBILITY, Action.READ),
    **dict.fromkeys(
        ("PostMortem", "FailureAnalysis", "HumanInsight", "SuccessValidation"), (ResourceType.LESSONS, Action.READ)
    ),
}
"""Right needed for records of a kind; other kinds need only reading the graph."""

_GRAPH: Final = (ResourceType.GRAPH, Action.READ)

_UNSCORED: Final = "some outcomes are not scored yet"


@reports_lateness
async def part(
    recall: Recall,
    spec: SectionSpec[A],
    subject: str,
    *,
    as_of: datetime | None,
    clock: str,
    limit: int | None,
    deadline: Deadline,
) -> A:
    """
    Return the section *spec* for *subject*.

    Raises:
        UnknownSubject, BadInput, PermissionDenied: as a briefing.
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    limits = Limits()
    if limit is not None:
        # However few analyses are asked for, those that are shown have their findings.
        limits = replace(Limits.all(bounded(limit)), findings=max(limit, limits.findings))
    asked, on = parse_as_of(as_of, clock)
    reader = await recall.open_reader(subject, (spec,), asked=asked, on=on, limits=limits, deadline=deadline)
    try:
        async with asyncio.timeout(deadline.left_s()):
            shown = await reader.cached_sections((spec,))
        section: A | None = shown.get(spec.name)
        if section is None:
            section = await recall.sources.assembly.in_time(reader.section(spec), deadline)
        _, mode = await recall.horizon_and_mode(reader, whole=section.quality is Quality.EXACT)
    except TimeoutError as error:
        raise BudgetExceeded("The result did not come before the deadline.") from error
    finally:
        await reader.lookup.end()
    return section.model_copy(update={"mode": mode})


@reports_lateness
async def panels_on(
    recall: Recall,
    subject: str,
    *,
    metric: str | None,
    target_at: datetime | None,
    as_of: datetime | None,
    clock: str,
    limit: int | None,
    deadline: Deadline,
) -> PanelsSection:
    """
    Return the panels on the questions about *subject* of a metric, a moment, or both; read anew each time.

    Raises:
        UnknownSubject, BadInput, PermissionDenied: as a briefing.
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    limits = Limits() if limit is None else Limits.all(bounded(limit))
    at, read_horizon = await recall.begin(as_of, clock, deadline)

    async def answer() -> PanelsSection:
        subject_id = await recall.subject(subject, at, deadline=deadline)
        ask = RetrievalRequest(
            subject_id, at, recall.database, recall.sources.graph, deadline, limits, recall.sources.halflife_years,
            seasons=recall.sources.seasons,
        )  # fmt: skip
        return await panels.load(ask, metric=metric, target_at=target_at)

    section = await recall.authorized(Resource(ResourceType.GRAPH, subject), Action.READ, answer, deadline=deadline)
    return section.model_copy(update={"mode": recall.mode(read_horizon, whole=section.quality is Quality.EXACT)})


@reports_lateness
async def similar_to(
    recall: Recall,
    what: str,
    *,
    as_of: datetime | None,
    clock: str,
    limit: int | None,
    min_score: float,
    deadline: Deadline,
) -> SimilarSection:
    """
    Return analyses of other subjects similar to an analysis, or to the newest ones of a subject.

    Raises:
        UnknownSubject: neither an analysis nor a subject was known under that name.
        BadInput: *limit* is out of bounds.
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    limits = Limits(similar=NEIGHBOURS if limit is None else bounded(limit))
    at, read_horizon = await recall.begin(as_of, clock, deadline)

    async def answer() -> SimilarSection:
        ask = RetrievalRequest(
            "", at, recall.database, recall.sources.graph, deadline, limits, recall.sources.halflife_years
        )
        subject_id = await similar_analyses.subject_of(ask, what)
        if subject_id is not None:
            return await similar_analyses.load_like(replace(ask, subject_id=subject_id), what, min_score=min_score)
        subject_id = await recall.subject(what, at, deadline=deadline)
        return await similar_analyses.load(replace(ask, subject_id=subject_id), min_score=min_score)

    section = await recall.authorized(Resource(ResourceType.GRAPH, what), Action.READ, answer, deadline=deadline)
    return section.model_copy(update={"mode": recall.mode(read_horizon, whole=section.quality is Quality.EXACT)})


def bounded(limit: int) -> int:
    """
    Return *limit* if it is valid.

    Raises:
        BadInput: it is below 1 or over :data:`MOST`.
    """
    if not 1 <= limit <= MOST:
        raise BadInput("limit", f"must be 1 to {MOST}.")
    return limit


@reports_lateness
async def agent_records(
    recall: Recall, agent: str, domain: str | None, *, as_of: datetime | None, clock: str, deadline: Deadline
) -> TrackRecordsSection:
    """
    Return the track records of one agent, in one domain or in each in which it was scored.

    Raises:
        PermissionDenied: an agent reads its own alone.
    """
    at, read_horizon = await recall.begin(as_of, clock, deadline)

    async def ask() -> TrackRecordsSection:
        database = recall.database
        pairs = [(agent, domain)] if domain else await track_pairs(database, [agent], deadline=deadline)
        if not pairs:
            return TrackRecordsSection(mode=recall.mode(read_horizon))
        answer = await track_records(
            database, pairs, at, halflife_years=recall.sources.halflife_years, deadline=deadline
        )
        # The pairs are those of now: empty records as of the moment are left out, unless the domain was given.
        items = [track_record(one) for one in answer.records if domain or one.n or one.abstained]
        return TrackRecordsSection(items=items, total=len(items), mode=recall.mode(read_horizon))

    return await recall.authorized(
        Resource(ResourceType.CREDIBILITY, agent, owner=agent), Action.READ, ask, deadline=deadline
    )


MOST_RECORDS: Final = 10_000
"""Most track records per statement, and per call that names agents and domains, or several moments."""


@reports_lateness
async def many_records(
    recall: Recall,
    agents: Sequence[str] | None,
    domains: Sequence[str] | None,
    *,
    as_of: Sequence[datetime] | None,
    unscored: bool,
    clock: str,
    deadline: Deadline,
) -> TrackRecordsTable:
    """
    Return the track records of many agents in many domains as of many moments, in pages of one statement each.

    Args:
        unscored: whether to include agents none of whose claims was settled.

    Raises:
        BadInput: more than :data:`MOST_RECORDS` records are named, or found as of several moments. Records first known
            later do not count.
        PermissionDenied: an agent reads its own record alone.
    """
    _, on = parse_as_of(None, clock)
    asked = [None] if as_of is None else [parse_as_of(one, clock)[0] for one in as_of]
    _, read_horizon = await recall.begin(None, clock, deadline)
    moments = [read_horizon.resolve(one, on) for one in asked]
    named = None if agents is None else list(dict.fromkeys(agents))

    async def wanted() -> list[tuple[str, str, AsOf]]:
        if named is None or domains is None:
            return await dated_pairs(
                recall.database, moments, agents=named, domains=domains, unscored=unscored, deadline=deadline
            )
        # Empty records are returned only if agents and domains were named; else they would reveal later agents.
        areas = list(dict.fromkeys(domains))
        bound(len(named) * len(areas) * len(moments))
        return [(agent, domain, moment) for moment in moments for agent in named for domain in areas]

    def bound(count: int) -> None:
        if count > MOST_RECORDS:
            raise BadInput("agents", f"times domains times moments must be at most {MOST_RECORDS:,}.")

    async def ask() -> TrackRecordsTable:
        records = await wanted()
        if len(moments) > 1:
            bound(len(records))
        found, waits = [], []
        for start in range(0, len(records), MOST_RECORDS):
            page, waiting = await dated_records(
                recall.database,
                records[start : start + MOST_RECORDS],
                halflife_years=recall.sources.halflife_years,
                deadline=deadline,
            )
            found += page
            waits += [waiting] if waiting is not None else []
        whole = unscored or (named is not None and domains is not None)
        shown = [(moment, one) for moment, one in found if one.n or one.abstained or whole]
        shown.sort(key=lambda one: (one[0].at, one[1].domain, one[1].baseline, one[1].agent))
        pins = await _pins(recall, shown, min(waits, default=None), deadline) if len(moments) == 1 else {}
        items = [
            DatedTrackRecord(
                as_of=moment.at, pinned=pins.get((one.agent, one.domain)), **track_record(one).model_dump()
            )
            for moment, one in shown
        ]
        table = TrackRecordsTable(items=items, total=len(items), mode=recall.mode(read_horizon))
        if waits and any(min(waits) <= moment.recorded_until for moment in moments):
            return table.model_copy(update={"quality": Quality.PARTIAL, "reason": _UNSCORED})
        return table

    return await recall.authorized(_records_resource(recall, named), Action.READ, ask, deadline=deadline)


async def _pins(
    recall: Recall, shown: Sequence[tuple[AsOf, TrackRecord]], waiting: datetime | None, deadline: Deadline
) -> Mapping[tuple[str, str], float]:
    """Return the pinned scores by agent and domain of track records as of one moment."""
    if not shown:
        return {}
    at, about = shown[0][0], [(one.agent, one.domain) for _, one in shown]
    return await pinned_scores(recall.database, about, at, min(moments_read(at, waiting)), deadline=deadline)


MOST_WEIGHTS: Final = 100_000
"""Most agents times moments of one call for weights."""


@reports_lateness
async def weights(
    recall: Recall,
    agents: Sequence[str],
    domain: str,
    context: Mapping[str, str | None] | None,
    *,
    as_of: Sequence[datetime] | None,
    clock: str,
    deadline: Deadline,
) -> WeightsTable:
    """
    Return the weights of *agents* as one panel in *domain*, as of each moment, in one statement.

    Raises:
        BadInput: no agent is named, agents times moments are more than :data:`MOST_WEIGHTS`, or a dimension of the
            context is unknown.
        PermissionDenied: an agent reads its own record alone; a panel shows the weights of those who answered.
    """
    named, of_questions = list(dict.fromkeys(agents)), parse_context(context)
    if not named:
        raise BadInput("agents", "must name at least one.")
    _, on = parse_as_of(None, clock)
    asked = [None] if as_of is None else [parse_as_of(one, clock)[0] for one in as_of]
    if len(named) * len(asked) > MOST_WEIGHTS:
        raise BadInput("agents", f"times moments must be at most {MOST_WEIGHTS:,}.")
    _, read_horizon = await recall.begin(None, clock, deadline)
    moments = [read_horizon.resolve(one, on) for one in asked]

    async def ask() -> WeightsTable:
        panel = [TrackRecordKey(agent, domain) for agent in named]
        found, waiting = await weights_as_of(
            recall.database,
            [panel],
            moments,
            contexts=[of_questions],
            seasons=recall.sources.seasons,
            deadline=deadline,
        )
        items = [
            DatedWeight(as_of=moment.at, **weight_item(one).model_dump())
            for moment, by_context in zip(moments, found[0], strict=True)
            for one in by_context[0].answer
        ]
        table = WeightsTable(items=items, total=len(items), mode=recall.mode(read_horizon))
        if waiting is not None and any(waiting <= moment.recorded_until for moment in moments):
            return table.model_copy(update={"quality": Quality.PARTIAL, "reason": _UNSCORED})
        return table

    return await recall.authorized(_records_resource(recall, named), Action.READ, ask, deadline=deadline)


def _records_resource(recall: Recall, agents: Sequence[str] | None) -> Resource:
    """Return the resource to authorize for *agents*: the first record that the actor may not read, else the first."""
    owners: list[str | None] = [None] if agents is None else [*agents] or [recall.actor.id]
    resources = [Resource(ResourceType.CREDIBILITY, one, owner=one) for one in owners]
    return next((one for one in resources if not recall.may(one, Action.READ)), resources[0])


@reports_lateness
async def debate(
    recall: Recall, debate_id: str, *, as_of: datetime | None, clock: str, deadline: Deadline
) -> RecordedDebate:
    """
    Return a debate with every turn.

    Raises:
        UnknownDebate: there was no such debate.
    """
    at, read_horizon = await recall.begin(as_of, clock, deadline)

    async def ask() -> RecordedDebate:
        database = recall.database
        given = {"debates": [debate_id], "kinds": ["record.DebateResolution", "record.DebateTurn"]}
        parts = await database.named("parts_of_debates", {**given, "limit": MOST_TURNS, **at.limits}, deadline=deadline)
        refs = [("Debate", debate_id), *((row["kind"], row["key"]) for row in parts)]
        answer: ValuesAsOf = await dated(database, refs, at, deadline=deadline)
        found = answer.records.get(("Debate", debate_id))
        if found is None:
            raise UnknownDebate(debate_id)
        rows = await database.named(
            "turns_of_debate",
            {"debate_id": debate_id, "position": found.turns_position, "limit": MOST_TURNS},
            deadline=deadline,
        )
        turns = [TurnItem(**row) for row in rows]
        recorded = [one for one in answer.records.values() if one.kind == "DebateTurn"]
        recorded.sort(key=lambda one: (one.known_at, one.key))
        turns += [
            TurnItem.model_validate({name: one.get(name) for name in _TURN if name in one.core}) for one in recorded
        ]
        turns.sort(key=lambda turn: turn.number)
        resolutions = [one for ref, one in sorted(answer.records.items()) if ref[0] == "DebateResolution"]
        return RecordedDebate(
            debate=DebateItem(
                debate=record(found),
                resolutions=[record(one) for one in resolutions],
                turns=len(turns),
                speakers=len({turn.speaker for turn in turns}),
            ),
            turns=turns,
            mode=recall.mode(read_horizon),
        )

    return await recall.authorized(Resource(ResourceType.GRAPH, debate_id), Action.READ, ask, deadline=deadline)


@reports_lateness
async def text(
    recall: Recall, kind: str, key: str, *, as_of: datetime | None, clock: str, deadline: Deadline
) -> LongText | None:
    """
    Return the long text of a record as of the moment; None if it had none.

    For a pattern that was not active it is None, unless the actor may validate patterns, and for a lesson that agents
    did not see, unless the actor may read lessons in every state.

    Raises:
        BadInput: there is no such kind.
        PermissionDenied: records of that kind are closed to the actor's role.
    """
    if kind not in KINDS:
        raise BadInput("kind", f"{kind!r} is no kind of record.")
    at, read_horizon = await recall.begin(as_of, clock, deadline)
    database = recall.database
    type_, action = _KINDS.get(kind, _GRAPH)
    found = None
    if type_ is not ResourceType.GRAPH or kind == _LESSON:
        found = (await dated(database, [(kind, key)], at, deadline=deadline)).records.get((kind, key))
    resource = Resource(type_, key, owner=found.get("agent_id") if found is not None else None)

    async def ask() -> LongText | None:
        active = found is not None and found.groups.get("status", {}).get("status") == PatternStatus.ACTIVE
        if kind == _PATTERN and not active and not recall.may(resource, Action.VALIDATE):
            return None
        shown = found is not None and visibility(found.groups.get("state")) is not None
        if kind == _LESSON and not shown and not recall.may(Resource(ResourceType.LESSONS, key), Action.READ):
            return None
        rows = await database.named("body_of", {"kind": kind, "key": key, **at.limits}, deadline=deadline)
        if not rows:
            return None
        return LongText(
            kind=kind, key=key, body=rows[0]["body"], known_at=rows[0]["known_at"], mode=recall.mode(read_horizon)
        )

    return await recall.authorized(resource, action, ask, deadline=deadline)


@reports_lateness
async def named(
    recall: Recall,
    name: str,
    parameters: Mapping[str, Any],
    *,
    as_of: datetime | None,
    clock: str,
    deadline: Deadline,
) -> Rows:
    """
    Run a named query of the graph and return its rows, times as RFC 3339 text.

    A query that answers as of a moment returns keys alone, chosen and sorted by the values of that moment.

    Args:
        parameters: the query's parameters; ``limit`` is 20 by default; those of the as-of are filled in here.

    Raises:
        BadInput: there is no such query, a parameter is missing or unknown, or the query does not answer as of a day.
        PermissionDenied: the query shows what the actor's role may not see.
        GraphUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    query = named_queries().get(name)
    if query is None:
        raise BadInput("query", f"{name!r} is no named query.")
    if as_of is not None and not query.as_of:
        raise BadInput("as_of", f"{name} does not answer as of an earlier day.")
    values = {"limit": 20, **parameters}
    bounded(values["limit"])
    at, read_horizon = await recall.begin(as_of, clock, deadline) if query.as_of else (None, None)
    if at is not None:
        values |= at.limits
        if ACTIVE in query.parameters:
            values[ACTIVE] = await active_patterns(recall.database, values.get("subject_id", ""), at, deadline=deadline)
    try:
        bound = arguments(name, **values)
    except TypeError as error:
        raise BadInput("parameters", str(error)) from None

    async def ask() -> list[dict[str, Any]]:
        rows = await recall.sources.graph.read(name, bound, deadline=deadline)
        if name in _ACTIVE_ONLY:
            shown = (row[_SHOWN]["pattern_id"] for row in rows)
            active = await active_among(shown, recall.database, deadline=deadline)
            rows = [row for row in rows if row[_SHOWN]["pattern_id"] in active]
        if at is None:
            return rows
        return await DATED_QUERIES[name].finished(rows, bound, recall.database, at, deadline=deadline)

    kind, action = _QUERIES.get(name) or _AREAS.get(query.area, _GRAPH)
    resource = Resource(kind, name, owner=bound["agent"] if kind is ResourceType.CREDIBILITY else None)
    rows = await recall.authorized(resource, action, ask, deadline=deadline)
    mode = await recall.mode_now(deadline) if read_horizon is None else recall.mode(read_horizon)
    return Rows(({column: _plain(value) for column, value in row.items()} for row in rows), mode=mode)


def _plain(value: Any) -> Any:
    """Return a value of the graph as JSON types."""
    from neo4j.time import DateTime  # noqa: PLC0415 - a search shall not wait for the driver

    if isinstance(value, DateTime):
        return value.iso_format()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
