"""
Resolution of a subject as of a moment: by id, ticker, market id, or the name of a company or market.

Of names and keys the exact one comes first, then one that differs in case, blanks or the form of its characters, then
one that differs in accents, which answers say.

A subject exists as of T if its own record, or a record about it, was known by T; so one that is imported late exists
as soon as an analysis of it was known. Where no record answers to a name, a company exists if a memory of its ticker
was current at T: records come first, so that a memory never takes a name from them. A subject first known after T is
answered like an unknown one, suggestions included (docs/decisions/0024).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any, Final

from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    AmbiguousSubject,
    BadInput,
    ImemError,
    NameSearch,
    PermissionDenied,
    UnknownSubject,
)
from imem.journal.gateway import Gateway
from imem.journal.texts.spelling import displayed, says_nothing, spelled, without_accents
from imem.kg.asof import END_OF_TIME, AsOf, AsOfClock
from imem.kg.kinds.catalog import subject_ref
from imem.kg.queries import names_search
from imem.recall import retrievers

if TYPE_CHECKING:
    from imem.kg.engine import Graph

PRESENT: Final = AsOf(END_OF_TIME)
"""The as-of that hides nothing recorded."""

UNACCENTED: Final = "found without regard to accents"
"""How answers say that a subject is spelled otherwise than it was asked for."""

ALIKE: Final = 50
"""Most subjects that are compared because they differ from a name in case, blanks or accents alone."""

NAMES: Final = 5
"""Most nearest names listed for an unknown subject, and most ids listed for an ambiguous one."""

LONGEST_NAME: Final = 200
"""Most characters of a name."""

COMPARED: Final = 2000
"""Most subjects compared with an unknown name when Postgres is searched; about 20 ms."""

COMPARED_OF_GRAPH: Final = 50
"""Subjects that the graph's index finds for an unknown name, of which the most alike are listed."""

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
        label: how answers say that it was found without regard to accents; None if it was not.
    """

    subject_id: str
    by_name: bool = False
    label: str | None = None


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
            **_alike(subject),
            "limit": ALIKE,
            **at.limits,
        }
        rows = await self.gateway.database.named("find_subject", given, deadline=deadline)
        found = _best(subject, rows)
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
                "nearest_names", {"search": names_search(subject), "limit": COMPARED_OF_GRAPH}, deadline=share
            )
            return by_likeness(subject, [(row["subject_id"], row["name"]) for row in rows])

        async def ask_journal() -> list[str]:
            return await self._nearest_in_journal(subject, at, deadline)

        # The graph's index holds the newest names alone, and its order changes with every subject added: not as of T.
        of_now = at.asked is None and at.clock is AsOfClock.KNOWN
        searched = NameSearch.NOTHING
        for operation in (ask, ask_journal) if of_now else (ask_journal,):
            try:
                names = await self.gateway.authorize_and_execute(
                    Resource(ResourceType.GRAPH, None), Action.READ, operation, deadline=deadline, actor=self.actor
                )
            except PermissionDenied:
                raise
            except ImemError:
                continue
            searched = NameSearch.NAMES
            # The graph's index knows nothing of accents.
            if names:
                return names, searched
        return [], searched

    async def _nearest_in_journal(self, subject: str, at: AsOf, deadline: Deadline) -> list[str]:
        """Return subjects whose key or name at the moment is like *subject*, among those whose record was known."""
        kinds = [kind for kind, prefix in _KINDS.items() if subject.startswith(prefix)] or list(_KINDS)
        wanted = without_accents(subject.removeprefix(_KINDS[kinds[0]]))
        given = {"kinds": kinds, "name": wanted, "limit": COMPARED, **at.limits}
        called: dict[str, list[tuple[str, str | None]]] = {}
        for row in await self.gateway.database.named("subject_names", given, deadline=deadline):
            for name in _compared(row["kind"] == "Company", row["key"], row["name"]):
                called.setdefault(name, []).append((f"{_KINDS[row['kind']]}{row['key']}", row["name"]))
        like = [*get_close_matches(wanted, called, NAMES), *(name for name in called if wanted in name)]
        if len(words := wanted.split()) > 1:
            # More of a name than is recorded, such as the form of a company; the graph's index takes single words, too.
            like += [name for word in words[:WORDS] for name in get_close_matches(word, called, NAMES, WORD_ALIKE)]
        return by_likeness(subject, [one for name in dict.fromkeys(like) for one in called[name]])


def _compared(is_company: bool, key: str, name: str | None) -> set[str]:  # noqa: FBT001 - of a row
    """Return what of a subject is compared with an unknown name: its key, its name, and a company's each word."""
    full = without_accents((name or key)[:LONGEST_NAME])
    # As in the graph's index; words of markets are too common.
    return {without_accents(key), full, *(full.split() if is_company else ())}


def by_likeness(subject: str, found: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return at most :data:`NAMES` ids of the subjects *found* (id and name), those most like *subject* first."""
    asked = next((subject.removeprefix(one) for one in PREFIXES if subject.startswith(one)), subject)
    wanted = without_accents(asked[:LONGEST_NAME])
    scores = {subject_id: _likeness(wanted, subject_id, name) for subject_id, name in found}
    return sorted(scores, key=lambda one: (-scores[one], one))[:NAMES]


def _likeness(wanted: str, subject_id: str, name: str | None) -> float:
    """Return how like a subject is to a name, 0 to 1: the whole, or its words, each by its length."""
    prefix, _, key = subject_id.partition(":")
    names = _compared(prefix == "company", key, name)
    whole = max(_ratio(wanted, one) for one in names)
    words = wanted.split() or [wanted]
    own = {word for one in names for word in one.split()} or {""}
    parts = sum(len(word) * max(_ratio(word, one) for one in own) for word in words) / max(1, sum(map(len, words)))
    # A word by itself says less than the whole: others have it as well.
    return max(whole, 0.9 * parts)


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _alike(subject: str) -> dict[str, object]:
    """Return what is compared without regard to case and accents: a name, and keys of which kinds."""
    seen = displayed(subject)
    for kind, prefix in _KINDS.items():
        if seen.casefold().startswith(prefix):
            return {"name": None, "key": seen[len(prefix) :], "key_kinds": [kind]}
    return {"name": subject, "key": subject, "key_kinds": list(_KINDS)}


def _best(subject: str, rows: Iterable[Mapping[str, Any]]) -> list[SubjectName]:
    """Return the subjects that are spelled most like *subject*: exactly, alike, or alike but for accents."""
    tiers: dict[int, dict[str, SubjectName]] = {0: {}, 1: {}, 2: {}}
    for row in rows:
        subject_id = row["subject_id"]
        if not row["by_name"]:
            return [SubjectName(subject_id)]
        forms = {subject_id, subject_id.partition(":")[2], row["name"] or subject_id}
        if subject in forms:
            tiers[0][subject_id] = SubjectName(subject_id, by_name=True)
        elif spelled(subject) in set(map(spelled, forms)):
            tiers[1][subject_id] = SubjectName(subject_id, by_name=True)
        elif without_accents(subject) and any(map(str.isalnum, subject)):
            tiers[2][subject_id] = SubjectName(subject_id, by_name=True, label=UNACCENTED)
    return next((list(tier.values()) for tier in tiers.values() if tier), [])


def label_of(asked: str, subject_id: str, name: str | None) -> str | None:
    """Return :data:`UNACCENTED` if a subject differs from what was asked in accents; None if it does not."""
    forms = [subject_id, subject_id.partition(":")[2], *([name] if name else ())]
    if spelled(asked) in set(map(spelled, forms)):
        return None
    return UNACCENTED if without_accents(asked) in set(map(without_accents, forms)) else None


def checked_candidates(subject: str) -> list[str]:
    """
    Return the subject ids that *subject* may stand for, as :func:`candidates`.

    Raises:
        BadInput: *subject* cannot be a name.
    """
    if says_nothing(subject) or len(subject) > LONGEST_NAME or "\x00" in subject:
        raise BadInput("subject", f"must be a name of 1 to {LONGEST_NAME} characters.")
    return candidates(subject)


def candidates(subject: str) -> list[str]:
    """Return the subject ids that *subject* may stand for, in the order in which they are tried."""
    found = []
    for form in (subject, displayed(subject)):
        prefixes = [one for one in PREFIXES if form.casefold().startswith(one)]
        key = form[len(prefixes[0]) :] if prefixes else form
        found += [f"{prefix}{key}" for prefix in prefixes or PREFIXES]
        if _KINDS["Company"] in (prefixes or PREFIXES):
            found.append(f"{_KINDS['Company']}{key.upper()}")
    return list(dict.fromkeys(found))
