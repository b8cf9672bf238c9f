"""
Resolution of a subject as of a moment: by id, ticker, market id, or the exact name of a company or market.

A subject exists as of T if its own record, or a record about it, was known by T; so one that is imported late exists
as soon as an analysis of it was known. Where no record answers to a name, a company exists if a memory of its ticker
was current at T: records come first, so that a memory never takes a name from them. A subject first known after T is
answered like an unknown one, suggestions included (docs/decisions/0024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import AmbiguousSubject, BadInput, ImemError, NameSearch, PermissionDenied, UnknownSubject
from imem.journal.gateway import Gateway
from imem.kg.asof import END_OF_TIME, AsOf, AsOfClock
from imem.kg.engine import Graph
from imem.kg.kinds.catalog import subject_ref
from imem.kg.queries import names_search
from imem.recall import retrievers

PRESENT: Final = AsOf(END_OF_TIME)
"""The as-of that hides nothing recorded."""

NAMES: Final = 5
"""Most nearest names listed for an unknown subject, and most ids listed for an ambiguous one."""

LONGEST_NAME: Final = 200
"""Most characters of a name."""

COMPARED: Final = 2000
"""Most subjects compared with an unknown name when Postgres is searched; about 20 ms."""

WORDS: Final = 4
"""Most words of an unknown name that are compared by themselves."""

WORD_ALIKE: Final = 0.8
"""Least similarity of a single word: one letter of five may differ."""

_KINDS: Final = {"Company": "company:", "Market": "market:"}
PREFIXES: Final = tuple(_KINDS.values())
"""Prefixes of subject ids."""


@dataclass(frozen=True, slots=True)
class SubjectName:
    """
    A subject that was found.

    Attributes:
        subject_id: its id.
        by_name: whether it was found by its name, which may change, not by an id or ticker, which does not.
    """

    subject_id: str
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class SubjectFinder:
    """
    Finds subjects by id, ticker or name.

    Attributes:
        gateway: authorizes and audits every read.
        actor: who asks.
        graph: where similar names are searched, as of now.
    """

    gateway: Gateway
    actor: Actor
    graph: Graph

    async def find(self, subject: str, at: AsOf, *, deadline: Deadline) -> SubjectName:
        """
        Return the subject that *subject* named at the moment; ids and tickers come before names, and memories last.

        Raises:
            UnknownSubject: nothing was known under that name; nearest names are given.
            AmbiguousSubject: several subjects had that name; their ids are given.
            BadInput: *subject* cannot be a name.
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time; retryable.
        """
        meant = [one for one in checked_candidates(subject) if one not in PREFIXES]
        refs = [subject_ref(one) for one in meant]
        given = {
            "kinds": [kind for kind, _ in refs],
            "keys": [key for _, key in refs],
            "subject_ids": meant,
            "name": None if subject.startswith(PREFIXES) else subject,
            "limit": NAMES + 1,
            **at.limits,
        }
        rows = await self.gateway.database.named("find_subject", given, deadline=deadline)
        found = [SubjectName(row["subject_id"], row["by_name"]) for row in rows]
        if len(found) > 1:
            raise AmbiguousSubject(subject, [one.subject_id for one in found[:NAMES]], more=len(found) > NAMES)
        if not found and (remembered := await self._remembered(meant, at, deadline)) is not None:
            return SubjectName(remembered)
        if not found:
            raise UnknownSubject(subject, *await self._nearest(subject, at, deadline))
        return found[0]

    async def _remembered(self, meant: Sequence[str], at: AsOf, deadline: Deadline) -> str | None:
        """Return the first company of *meant* with a memory below ``symbol/`` and its ticker; None without any."""
        company = _KINDS["Company"]
        places = {f"symbol/{one.removeprefix(company)}": one for one in meant if one.startswith(company)}
        of_all = Resource(ResourceType.MEMORIES, None, self.actor.id)
        if not places or not self.gateway.may(of_all, Action.READ, actor=self.actor):
            return None
        given = {"namespaces": list(places), **at.limits}
        rows = await self.gateway.database.named("namespace_with_memories", given, deadline=deadline)
        return places[rows[0]["namespace"]] if rows else None

    async def _nearest(self, subject: str, at: AsOf, deadline: Deadline) -> tuple[list[str], NameSearch]:
        """Return ids of subjects with names like *subject*, and whether the search succeeded."""

        async def ask() -> list[str]:
            share = deadline.within_ms(deadline.left_ms() * retrievers.GRAPH_SHARE)
            rows = await self.graph.read(
                "nearest_names", {"search": names_search(subject), "limit": NAMES}, deadline=share
            )
            return [row["subject_id"] for row in rows]

        async def ask_journal() -> list[str]:
            return await self._nearest_in_journal(subject, at, deadline)

        # The graph's index holds the newest names alone, and its order changes with every subject added: not as of T.
        of_now = at.asked is None and at.clock is AsOfClock.KNOWN
        for operation in (ask, ask_journal) if of_now else (ask_journal,):
            try:
                names = await self.gateway.authorize_and_execute(
                    Resource(ResourceType.GRAPH, None), Action.READ, operation, deadline=deadline, actor=self.actor
                )
            except PermissionDenied:
                raise
            except ImemError:
                continue
            return names, NameSearch.NAMES
        return [], NameSearch.NOTHING

    async def _nearest_in_journal(self, subject: str, at: AsOf, deadline: Deadline) -> list[str]:
        """Return subjects whose key or name at the moment is like *subject*, among those whose record was known."""
        kinds = [kind for kind, prefix in _KINDS.items() if subject.startswith(prefix)] or list(_KINDS)
        wanted = subject.removeprefix(_KINDS[kinds[0]]).strip().lower()
        given = {"kinds": kinds, "name": wanted, "limit": COMPARED, **at.limits}
        called: dict[str, list[str]] = {}
        for row in await self.gateway.database.named("subject_names", given, deadline=deadline):
            full = (row["name"] or row["key"]).lower()[:LONGEST_NAME]
            # Each word of a company's name is compared, as in the graph's index; words of markets are too common.
            own = full.split() if row["kind"] == "Company" else []
            for name in {row["key"].lower(), full, *own}:
                called.setdefault(name, []).append(f"{_KINDS[row['kind']]}{row['key']}")
        names = sorted(called)
        like = [*get_close_matches(wanted, names, NAMES), *(name for name in names if wanted in name)]
        if len(words := wanted.split()) > 1:
            # More of a name than is recorded, such as the form of a company; the graph's index takes single words, too.
            like += [name for word in words[:WORDS] for name in get_close_matches(word, names, NAMES, WORD_ALIKE)]
        return list(dict.fromkeys(subject_id for name in like for subject_id in called[name]))[:NAMES]


def checked_candidates(subject: str) -> list[str]:
    """
    Return the subject ids that *subject* may stand for, as :func:`candidates`.

    Raises:
        BadInput: *subject* cannot be a name.
    """
    if not subject.strip() or len(subject) > LONGEST_NAME or "\x00" in subject:
        raise BadInput("subject", f"must be a name of 1 to {LONGEST_NAME} characters.")
    return candidates(subject)


def candidates(subject: str) -> list[str]:
    """Return the subject ids that *subject* may stand for, in the order in which they are tried."""
    if subject.startswith(PREFIXES):
        return [subject]
    found = [f"{prefix}{subject}" for prefix in PREFIXES]
    return found if subject.upper() == subject else [*found, f"company:{subject.upper()}"]
