"""The order of memories: what it depends on, and what not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as some

from imem.recall.memories.dates import named_dates
from imem.recall.memories.ranking import (
    AFTER,
    BEFORE,
    DATE_HALVES_DAYS,
    DATED,
    NAMED,
    Candidate,
    rank,
    similarity,
)

SCORES = some.floats(0, 30).map(lambda x: round(x, 3))
COSINES = some.none() | some.floats(-1, 1).map(lambda x: round(x, 3))
AUTHORS = some.none() | some.sampled_from(["Ann", "Bob", "Ann-Marie"])


@some.composite
def candidates(draw: some.DrawFn) -> list[Candidate]:
    count = draw(some.integers(0, 12))
    found = []
    for number in range(count):
        place = draw(some.none() | some.just(("agent/ann", "c", number)))
        words, own, context, author = draw(SCORES), draw(COSINES), draw(COSINES), draw(AUTHORS)
        found.append(Candidate(UUID(int=number), words, own, context, place, author))
    return found


@given(candidates(), some.randoms(use_true_random=False), some.sampled_from(["", "What did Ann say?"]))
def test_the_order_of_the_candidates_does_not_matter(found: list[Candidate], chance: Random, query: str) -> None:
    """Every one is ranked once, best first, equal ones by id, to the last bit whatever came first."""
    ranked = rank(found, query)
    mixed = list(found)
    chance.shuffle(mixed)
    assert rank(mixed, query) == ranked
    assert sorted(one.id for one, _ in ranked) == [one.id for one in found]
    assert ranked == sorted(ranked, key=lambda pair: (-pair[1], pair[0].id))


@given(candidates())
def test_without_vectors_words_decide(found: list[Candidate]) -> None:
    """Where nothing stands in a conversation and no author is named."""
    bare = [replace(one, own=None, context=None, place=None) for one in found]
    ranked = [one for one, _ in rank(bare, "")]
    assert ranked == sorted(bare, key=lambda one: (-one.words, one.id))


@given(candidates(), some.floats(1, 100).map(lambda x: round(x, 2)))
def test_scores_have_no_scale(found: list[Candidate], factor: float) -> None:
    """Words counted in another unit order alike."""
    before = {one.id: score for one, score in rank(found, "")}
    after = {one.id: score for one, score in rank([replace(one, words=one.words * factor) for one in found], "")}
    assert all(abs(before[key] - after[key]) < 1e-6 for key in before)


@given(candidates().filter(lambda found: len(found) > 0))
def test_a_named_author_is_preferred(found: list[Candidate]) -> None:
    """By as much for each of their sentences; a name within another word is none."""
    plain = {one.id: score for one, score in rank(found, "what was said by banners?")}
    named = {one.id: (one, score) for one, score in rank(found, "WHAT did ann say?")}
    assert all(
        abs(score - plain[key] - (NAMED if one.author == "Ann" else 0.0)) < 1e-12 for key, (one, score) in named.items()
    )


@given(candidates(), some.randoms(use_true_random=False), some.sampled_from(["", "in 2024?", "on 7 May", "last year"]))
def test_a_named_date_is_preferred(found: list[Candidate], chance: Random, query: str) -> None:
    """By as much for all that was said then, by less the farther away; a question without a date orders as before."""
    now = datetime(2025, 3, 1, tzinfo=UTC)
    days = [now - timedelta(days=chance.randrange(900)) for _ in found]
    dated = [replace(one, occurred_at=at) for one, at in zip(found, days, strict=True)]
    plain = {one.id: score for one, score in rank(found, query, now=now)}
    gained = [
        (min((abs(named.days_from(one.occurred_at.date())) for named in named_dates(query, now)), default=None), score)
        for one, score in ((one, score - plain[one.id]) for one, score in rank(dated, query, now=now))
        if one.occurred_at is not None
    ]
    for days_away, bonus in gained:
        assert abs(bonus - (0.0 if days_away is None else DATED * 2 ** (-days_away / DATE_HALVES_DAYS))) < 1e-9


def test_neighbours_share_what_they_found() -> None:
    """The one after a hit gains more than the one before; another conversation gains nothing."""
    hit = Candidate(UUID(int=1), 9.0, 0.9, 0.9, ("n", "c", 5))
    rest = [
        Candidate(UUID(int=2 + n), 0.0, 0.1, 0.1, place)
        for n, place in enumerate((("n", "c", 6), ("n", "c", 4), ("n", "d", 6)))
    ]
    scores = {one.id.int: score for one, score in rank([hit, *rest], "")}
    assert scores[1] > scores[2] > scores[3] > scores[4]
    alone = {one.id.int: score for one, score in rank([replace(one, place=None) for one in (hit, *rest)], "")}
    assert abs(scores[2] - alone[2] - BEFORE * alone[1]) < 1e-12
    assert abs(scores[3] - alone[3] - AFTER * alone[1]) < 1e-12


@given(some.floats(-1, 1), some.floats(0, 0.9))
def test_similarity_is_a_share(cosine: float, unrelated: float) -> None:
    assert 0.0 <= similarity(cosine, unrelated) <= 1.0
    assert similarity(unrelated, unrelated) == 0.0
    assert similarity(1.0, unrelated) == 1.0
