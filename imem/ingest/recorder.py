"""
Appends lines from callers and files to the journal, with their authorization.

:class:`imem.memory.Memory` and ``imem load`` both write through :func:`record`, so that both check ownership of facts
and the right to correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from imem.cache.working.published import PublishedItem
from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType, Scope
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.events.entry import AppendStatus, JournalEntry, Receipt, Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.kinds.fields import shown
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import CorrectLine, Line, RecordLine
from imem.kg.load_format.ownership import (
    NO_OWNER,
    OWN_OUTCOMES,
    REFERENCE_KINDS,
    Ref,
    is_of_debates,
    mismatch_of,
    needs_owner_of,
    owner_of,
    owner_of_core,
    referred_record,
    requires_person,
    sets_measure,
)
from imem.kg.load_format.verdicts import refusal_by


class Recorder:
    """
    Appends items that agents published, each with the agent's owner as the actor.

    If the owner is the actor who asks, its own role applies; else the role of an agent, and claims of an agent that
    others are measured against are refused, since the owner's name is only what the working memory claims.

    Args:
        gateway: appends the items.
        own_role: whether actors who ask have items of their own. A pipeline has none.
    """

    def __init__(self, gateway: Gateway, *, own_role: bool = True) -> None:
        self._gateway = gateway
        self._own_role = own_role

    async def __call__(
        self,
        items: Sequence[PublishedItem],
        *,
        owner: str,
        by: Actor | None = None,
        lock_epoch: int | None,
        deadline: Deadline,
    ) -> list[Receipt]:
        """Append *items*, each under its own identity; see :func:`record`."""
        own = by or self._gateway.actor
        actor = own if self._own_role and own.id == owner else Actor(owner, Role.AGENT)
        if actor is not own:
            await self._refuse_reference(items, actor, deadline)
        prepared = [prepare(item.line, tier=item.tier) for item in items]
        lines = [
            PreparedLine(one.line, replace(one.entry, event_id=item.id))
            for one, item in zip(prepared, items, strict=True)
        ]
        return await record(self._gateway, lines, actor=actor, lock_epoch=lock_epoch, deadline=deadline)

    async def _refuse_reference(self, items: Sequence[PublishedItem], actor: Actor, deadline: Deadline) -> None:
        """Refuse claims of a baseline, an ensemble or a human that it does not push itself."""
        if not any(isinstance(item.line, RecordLine) and item.line.kind == "Finding" for item in items):
            return
        if await reference_kind(self._gateway.database, actor.id, deadline=deadline) is not None:
            # An agent appends for no owner but itself: the gateway refuses, and audits it.
            its = Resource(ResourceType.JOURNAL, f"pushed for {actor.id}", NO_OWNER)
            await self._gateway.authorize(its, Action.APPEND, deadline=deadline, actor=actor)

    def refusal(self, receipt: Receipt, line: Line) -> BadInput | None:
        """Return why the journal refused *line*; None if it did not."""
        return refusal_of(receipt.verdict, line)


async def reference_kind(database: Database, agent: str, *, deadline: Deadline) -> str | None:
    """
    Return the kind of *agent* if others are measured against it: a baseline, an ensemble or a human; else None.

    Its kind is that of the newest statement of its profile with the import right or by a person.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be looked up; retryable.
    """
    [found] = await database.named("governed_kind", {"agent": agent}, deadline=deadline)
    kind: str | None = found["kind"]
    return kind if kind in REFERENCE_KINDS else None


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """
    A line with its journal entry.

    Attributes:
        line: the parsed line.
        entry: the entry made from it.
    """

    line: Line
    entry: JournalEntry


def prepare(line: Line, *, tier: Tier | None = None) -> PreparedLine:
    """Return *line* with its entry; *tier* is its urgency, by default that of its kind or a finding's importance."""
    return PreparedLine(line, entry_of(line, tier=tier))


async def record(
    gateway: Gateway,
    lines: Sequence[PreparedLine],
    *,
    actor: Actor | None = None,
    lock_epoch: int | None = None,
    all_or_none: bool = False,
    deadline: Deadline,
    wait_visible: Deadline | None = None,
) -> list[Receipt]:
    """
    Commit *lines* in order and return one receipt for each; refused lines have a receipt that says so.

    Args:
        actor: the ordering actor, the gateway's by default.
        lock_epoch: epoch of the lock on the actor's writes, if the caller holds it.
        all_or_none: whether a line that is refused undoes the others; see :func:`record_all`.
        wait_visible: how long to wait for the graph to hold them.

    Raises:
        BadInput: nothing was written. Of lines without known_at: a pin that is to end, a correction of a bias that is
            decided, or a finding that is overridden is not recorded, or the finding is of another agent or domain.
        PermissionDenied: nothing was written but the denial. An agent records its own facts alone; corrections,
            outcomes that settle, and agents' kinds that serve as a reference take the import right or a person; pins,
            overrides and the approval of a bias take a person.
        PostgresUnavailable: retryable; batches before the failed one stay.
        OutcomeUnknown: the connection broke while committing; repeating the same call is harmless.
        LeaseHeld: the actor's writes are locked while a snapshot is taken; retryable.
    """
    if not lines:
        return []
    actor = actor or gateway.actor
    corrects = any(isinstance(prepared.line, CorrectLine) for prepared in lines)
    measures = any(sets_measure(prepared.line, actor.id) for prepared in lines)
    imports = (corrects or measures) and actor.role is not Role.HUMAN_ADMIN
    for line in (prepared.line for prepared in lines if requires_person(prepared.line)):
        its = Resource(ResourceType.CREDIBILITY, getattr(line, "key", None))
        await gateway.authorize(its, Action.APPROVE, deadline=deadline, actor=actor)
    await _check_referred_records(gateway.database, [prepared.line for prepared in lines], deadline)
    try:
        return await gateway.append(
            [prepared.entry for prepared in lines],
            actor=actor,
            action=Action.IMPORT if imports else _action(actor, [prepared.line for prepared in lines]),
            owner=await _owner(gateway.database, actor, [prepared.line for prepared in lines], deadline),
            lock_epoch=lock_epoch,
            all_or_none=all_or_none,
            deadline=deadline,
            wait_visible=wait_visible,
        )
    except PermissionDenied as denied:
        if not (measures and imports):
            raise
        raise PermissionDenied(denied.message, mend=_MEASURE.format(actor=shown(actor.id))) from denied


async def record_all(
    gateway: Gateway,
    lines: Sequence[PreparedLine],
    *,
    actor: Actor | None = None,
    deadline: Deadline,
    wait_visible: Deadline | None = None,
) -> list[Receipt]:
    """
    Commit all *lines* of one call in one transaction, or none, and return one receipt for each.

    Raises:
        BadInput: a line is refused; names it, and nothing was written.
        PermissionDenied, PostgresUnavailable, OutcomeUnknown, LeaseHeld: as :func:`record`.
    """
    receipts = await record(
        gateway,
        lines,
        actor=actor,
        all_or_none=len(lines) > 1,
        deadline=deadline,
        wait_visible=wait_visible,
    )
    for receipt, line in zip(receipts, (one.line for one in lines), strict=True):
        if (refusal := refusal_of(receipt.verdict, line)) is not None:
            raise refusal if len(lines) == 1 else _refusal_of_call(refusal, line)
    return receipts


NOTHING_RECORDED: Final = "Nothing was recorded."
"""End of a refusal of a call that would have recorded several things."""


def _refusal_of_call(refusal: BadInput, line: Line) -> BadInput:
    """Return *refusal* with the record that it is about; the whole call was refused with it."""
    what = f"{line.kind} {shown(line.key)}" if isinstance(line, RecordLine | CorrectLine) else f"a link {line.type}"
    return type(refusal)(
        refusal.field, f"of {what} {refusal.reason}", mend=f"{refusal.mend} {NOTHING_RECORDED}".strip()
    )


_MEASURE: Final = (
    "Whether an agent is a baseline, an ensemble or a human, what settles claims, the regime of a market and biases "
    "take the import right or a person. The id of an outcome that settles nothing begins with "
    f"{OWN_OUTCOMES}{{actor}}/."
)


async def _check_referred_records(database: Database, lines: Sequence[Line], deadline: Deadline) -> None:
    """Refuse lines without known_at that refer to a record that is not recorded, or is not the named agent's."""
    wanted = [(ref, line) for line in lines if (ref := referred_record(line)) is not None and line.known_at is None]
    if not wanted:
        return
    refs = sorted({ref for ref, _ in wanted})
    given = {"kinds": [kind for kind, _ in refs], "keys": [key for _, key in refs]}
    rows = await database.named("recorded_cores", given, deadline=deadline)
    cores = {(line.kind, line.key): line.core for line in lines if isinstance(line, RecordLine) and line.core}
    cores |= {(row["kind"], row["key"]): row["core"] for row in rows}
    for ref, line in wanted:
        if (reason := mismatch_of(line, ref, cores.get(ref))) is not None:
            raise reason


def _action(actor: Actor, lines: Sequence[Line]) -> Action:
    """Return the action to authorize: roles that may not append facts may be allowed to append debates."""
    if (actor.role, ResourceType.JOURNAL, Action.APPEND) in AUTHORIZATION:
        return Action.APPEND
    return Action.APPEND_DEBATES if all(map(is_of_debates, lines)) else Action.APPEND


async def _owner(database: Database, actor: Actor, lines: Sequence[Line], deadline: Deadline) -> str | None:
    """Return the first owner of *lines* other than *actor*; None if there is none, or the role may append for all."""
    if AUTHORIZATION.get((actor.role, ResourceType.JOURNAL, Action.APPEND)) is not Scope.OWN:
        return None
    recorded = await _recorded_owners(database, actor, lines, deadline)
    for line in lines:
        owner = owner_of(line, actor.id, recorded)
        if owner != actor.id:
            return owner
        if isinstance(line, RecordLine) and line.core is not None:
            # Later lines of the call may refer to this record; an owner recorded before takes precedence.
            recorded.setdefault((line.kind, line.key), owner)
    return None


async def _recorded_owners(
    database: Database, actor: Actor, lines: Sequence[Line], deadline: Deadline
) -> dict[Ref, str]:
    wanted = sorted({ref for line in lines if (ref := needs_owner_of(line)) is not None})
    if not wanted:
        return {}
    rows = await database.named(
        "recorded_cores",
        {"kinds": [kind for kind, _ in wanted], "keys": [key for _, key in wanted]},
        deadline=deadline,
    )
    return {(row["kind"], row["key"]): owner_of_core(row["kind"], row["core"], row["actor"], actor.id) for row in rows}


def refusal_of(verdict: AppendStatus, line: Line) -> BadInput | None:
    """Return why the journal refused *line*, with the field; None if it did not."""
    if not verdict.refused:
        return None
    return refusal_by(verdict, getattr(line, "kind", "a link"), getattr(line, "key", "it"))
