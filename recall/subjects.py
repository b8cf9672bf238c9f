"""
Which subject a name means, as of a moment: an id, a ticker, a market id, or the exact name of a company or question.

A subject exists as of T when its own record, or a record about it, was known by T. Its own clock hides nothing: one
that is imported late exists as soon as an analysis of it was known. What was first known later is answered like what
never existed, suggestions included (docs/decisions/0024).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import AmbiguousSubject, BadInput, ImemError, NameSearch, PermissionDenied, UnknownSubject
from imem.journal.gateway import Gateway
from imem.kg.asof import END_OF_TIME, AsOf, AsOfClock
from imem.kg.engine import Graph
from imem.kg.kinds.catalog import subject_ref
from imem.kg.queries import names_search
from imem.recall import retrievers

PRESENT: Final = AsOf(END_OF_TIME)
"""The moment by which everything that is on file was known."""

NAMES: Final = 5
"""How many nearest names an unknown subject is answered with, and how many of those that share a name are listed."""

LONGEST_NAME: Final = 200
"""Most characters of a name that is looked for."""

COMPARED: Final = 2000
"""How many subjects an unknown name is compared with where the journal is asked; some 20 ms."""

_KINDS: Final = {"Company": "company:", "Market": "market:"}
PREFIXES: Final = tuple(_KINDS.values())
"""What subject ids begin with."""


@dataclass(frozen=True, slots=True)
class SubjectName:
    """
    A subject that was found.

    Attributes:
        subject_id: which.
        by_name: whether it was found by what it was called then, which may change, and not by what it is for ever.
    """

    subject_id: str
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class SubjectFinder:
    """
    Finds subjects by what people call them.

    Attributes:
        gateway: through which everything is read.
        graph: where names that look alike are searched for the present.
    """

    gateway: Gateway
    graph: Graph

    async def find(self, subject: str, at: AsOf, *, deadline: Deadline) -> SubjectName:
        """
        Return the subject that *subject* meant at the moment, in one statement; ids and tickers come before names.

        Raises:
            UnknownSubject: nothing was known under that name; nearest names are given.
            AmbiguousSubject: several subjects had that name; their ids are given.
            BadInput: it is no name at all.
            PostgresUnavailable, BudgetExceeded: nobody can say; retryable.
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
        if not found:
            raise UnknownSubject(subject, *await self._nearest(subject, at, deadline))
        return found[0]

    async def _nearest(self, subject: str, at: AsOf, deadline: Deadline) -> tuple[list[str], NameSearch]:
        """Return ids of subjects that look like *subject*, and whether anybody could look for them."""

        async def ask() -> list[str]:
            share = deadline.within_ms(deadline.left_ms() * retrievers.GRAPH_SHARE)
            rows = await self.graph.read(
                "nearest_names", {"search": names_search(subject), "limit": NAMES}, deadline=share
            )
            return [row["subject_id"] for row in rows]

        async def ask_journal() -> list[str]:
            return await self._nearest_in_journal(subject, at, deadline)

        # The graph's index knows the newest names alone, and its order changes with every subject that is added.
        of_now = at.asked is None and at.clock is AsOfClock.KNOWN
        for operation in (ask, ask_journal) if of_now else (ask_journal,):
            try:
                names = await self.gateway.authorize_and_execute(
                    Resource(ResourceType.GRAPH, None), Action.READ, operation, deadline=deadline
                )
            except PermissionDenied:
                raise
            except ImemError:
                continue
            return names, NameSearch.NAMES
        return [], NameSearch.NOTHING

    async def _nearest_in_journal(self, subject: str, at: AsOf, deadline: Deadline) -> list[str]:
        """Return subjects whose key or name at the moment is like *subject*; of those whose own record was known."""
        kinds = [kind for kind, prefix in _KINDS.items() if subject.startswith(prefix)] or list(_KINDS)
        wanted = subject.removeprefix(_KINDS[kinds[0]]).strip().lower()
        given = {"kinds": kinds, "name": wanted, "limit": COMPARED, **at.limits}
        called: dict[str, list[str]] = {}
        for row in await self.gateway.database.named("subject_names", given, deadline=deadline):
            full = (row["name"] or row["key"]).lower()[:LONGEST_NAME]
            # Of a company's name each word counts, as in the graph's index; a question's words are those of many.
            words = full.split() if row["kind"] == "Company" else []
            for name in {row["key"].lower(), full, *words}:
                called.setdefault(name, []).append(f"{_KINDS[row['kind']]}{row['key']}")
        like = [*get_close_matches(wanted, sorted(called), NAMES), *(name for name in sorted(called) if wanted in name)]
        return list(dict.fromkeys(subject_id for name in like for subject_id in called[name]))[:NAMES]


def checked_candidates(subject: str) -> list[str]:
    """
    Return the subject ids that somebody may mean by *subject*, as :func:`candidates`.

    Raises:
        BadInput: it is no name at all.
    """
    if not subject.strip() or len(subject) > LONGEST_NAME or "\x00" in subject:
        raise BadInput("subject", f"must be a name of 1 to {LONGEST_NAME} characters.")
    return candidates(subject)


def candidates(subject: str) -> list[str]:
    """Return the subject ids that somebody may mean by *subject*, in the order in which they are tried."""
    if subject.startswith(PREFIXES):
        return [subject]
    found = [f"{prefix}{subject}" for prefix in PREFIXES]
    return found if subject.upper() == subject else [*found, f"company:{subject.upper()}"]
