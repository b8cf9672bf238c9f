"""Which texts are one memory, at whatever length: what differs decides, and in doubt they are two."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from imem.recall.memories.model import StoreStatus
from imem.recall.memories.upkeep import UpkeepRules, consolidate
from tests.imem.memories.conftest import Places, memory_of, round_of
from tests.imem.memory.conftest import MemoryHarness

FILLERS = (
    "The annual meeting of the company takes place in its old hall near the river.",
    "Shareholders receive coffee and cake, and the chairman thanks them for their trust.",
    "A choir sings two songs, after which the minutes are read aloud.",
    "The weather is fair, the flags hang on their poles, and the press takes pictures of the guests.",
    "Then the board answers questions about the harbour, its cranes and the fishing fleet.",
)

DIFFERENT = """
    The auditor calls the accounts {reliable|unreliable}.
    The committee found the transfer {legal|illegal} in its report.
    Observers think that a merger is {possible|impossible} this way.
    The lender remains {solvent|insolvent} after the stress test.
    The plant is {compliant|noncompliant} with the rules.
    The plant is {compliant|non-compliant} with the rules.
    Its statement was {regular|irregular} in form.
    The treaty is {symmetric|asymmetric} in its duties.
    The pair was {stable|unstable} during the session.
    The regulator {agrees|disagrees} with the plan.
    The chief {trusts|distrusts} the data.
    The customer is {satisfied|dissatisfied} with the wafers.
    The residue is {harmful|harmless} to fish.
    The country suffers from {inflation|deflation} again.
    The contract will {include|exclude} the spare parts.
    The firm counts {internal|external} sources.
    The stock is {overpriced|underpriced} by the market.
    The system was {enabled|disabled} at noon.
    The bidder is {hardly|} interested in the mine.
    The jury finds the trader {guilty|innocent} of fraud.
    The bank is {solvent|bankrupt} as of today.
    The fund holds {4|5} per cent of the shares.
    The fund holds {four|five} blocks of shares.
    The tunnel is 12 {miles|kilometres} long.
    The tunnel is twelve {miles|kilometres} long.
    The fee is 40 {dollars|euros} for each ton.
    The fee is {$|€}40 for each ton.
    The outage took 3 {hours|days} in total.
    The debt is priced in {dollars|euros} by agreement.
    The pump moves 30 {kg|mg} in one go.
    The order came from {Micron|Samsung} as expected.
    {Micron|Samsung} placed the order as expected.
    The lead analyst is {Ann|Bob} since last week.
    The plant in {Boise|Austin} makes the chips.
    The new index is {NDX|SPX} by name.
    The plant moves from {Boise to Austin|Austin to Boise}.
    {The plant moves from Boise to Austin|The plant moves to Boise from Austin}.
    The dispute began when Micron {sued|was sued by} Samsung.
    The talks {succeeded|collapsed} after midnight, when delegates of both sides had taken seats in the great hall.
    Micron sued Samsung over a patent, and in the end {Micron|Samsung} won.
    The pump is {on|off} at night.
    The firm moves its cash {into|out of} the fund.
    Its cash is {in|out of} the fund.
    The auditor took the {same|other} view.
    The lender {had|has} a licence.
    The lender {hadn't|hasn't} a licence.
    The plant {is|was} open.
    The plant {isn't|wasn't} open.
    The plant {was in Boise and is|is in Boise and was} in Austin.
    The fee is due on {my|your} account.
    The dividend rose {to|by} 4 cents.
    {NOW|ON} is the analyst's first choice.
    The analyst prefers {NOW|SO} among the stocks.
    {NOW|ON} +4 %.
"""

SAME = """
    The {net |}result is flat.
    Margins {will rise|are going up}.
    The target was {cut|lowered} by 4 %.
    The target was cut by 4 {%|percent}.
    It {isn't|is not} open.
    He {likes|prefers} green tea.
    {Demand is strong|Strong demand}.
    It costs {more than|over} 4 dollars.
    The plant {has opened|opens}!
    {The|This} pump is idle.
    The chips sell {at|for} 4 dollars.
    The report is due {on |}Monday.
    {On |}Monday the plant opens.
    {- |}The pump is idle.
    The board {which|that} meets in Boise agrees.
"""


def pairs(table: str) -> list[tuple[str, str]]:
    found = []
    for line in table.strip().splitlines():
        head, _, rest = line.strip().partition("{")
        choice, _, tail = rest.partition("}")
        one, other = choice.split("|")
        found.append((f"{head}{one}{tail}", f"{head}{other}{tail}"))
    return found


def around(sentence: str, before: int, after: int) -> str:
    """Return the sentence within others that stay the same."""
    return " ".join([*FILLERS[:before], sentence, *FILLERS[before : before + after]])


@pytest.fixture
def same(harness: MemoryHarness) -> Callable[[str, str], bool]:
    """Return whether two texts of equal vectors may be one memory, whichever is first."""

    def asked(one: str, other: str) -> bool:
        query = "SELECT recall.may_say_the_same_v1(%s, %s) AS forth, recall.may_say_the_same_v1(%s, %s) AS back"
        [row] = harness.rows(query, one, other, other, one)
        assert row["forth"] == row["back"]
        return bool(row["forth"])

    return asked


@pytest.mark.spec("RC-17")
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 1), (2, 2), (5, 0), (0, 5)])
def test_what_differs_is_another(same: Callable[[str, str], bool], before: int, after: int) -> None:
    """By an opposite, a number, a name, a unit or a direction, in whatever length of what is the same."""
    wrong = [one for one, other in pairs(DIFFERENT) if same(around(one, before, after), around(other, before, after))]
    assert wrong == []


def test_what_is_said_in_other_words_is_the_same(same: Callable[[str, str], bool]) -> None:
    assert [(one, other) for one, other in pairs(SAME) if not same(one, other)] == []


@pytest.mark.spec("RC-17")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.sampled_from(pairs(DIFFERENT)),
    some.lists(some.sampled_from(FILLERS), max_size=4),
    some.lists(some.sampled_from(FILLERS), max_size=4),
)
def test_nothing_around_it_makes_it_the_same(
    harness: MemoryHarness, pair: tuple[str, str], before: list[str], after: list[str]
) -> None:
    one, other = (" ".join([*before, said, *after]) for said in pair)
    assert harness.rows("SELECT recall.may_say_the_same_v1(%s, %s) AS same", one, other) == [{"same": False}]


@pytest.mark.parametrize("text", [around(one, 2, 2) for one, _ in pairs(DIFFERENT)[::6]])
def test_a_text_says_the_same_as_itself(same: Callable[[str, str], bool], text: str) -> None:
    """In another case and with other punctuation, too."""
    if len(text.encode()) <= 500:
        assert same(text, text)
        assert same(text, text.replace(", ", " ").replace(".", "!"))


@pytest.mark.spec("RC-17")
@pytest.mark.parametrize("role", ["own", "shared"])
async def test_an_opposite_overwrites_nothing(harness: MemoryHarness, places: Places, role: str) -> None:
    """The later one is new, the earlier one stays as it was, whoever says it again; the daily round keeps both."""
    namespace = "agent/ann" if role == "own" else "symbol/MU"
    for nth, (one, other) in enumerate(pairs(DIFFERENT)[:8]):
        first, second = around(one, 2, 1), around(other, 2, 1)
        places.cosines = {first: 1.0, second: 1.0}
        space = f"{namespace}/{nth}"
        async with memory_of(harness) as ann, memory_of(harness, "bob") as bob:
            stored = await ann.remember(first, namespace=space)
            rival = ann if role == "own" else bob
            assert (await rival.remember(second, namespace=space)).status is StoreStatus.NEW
            again = await ann.remember(first, namespace=space)
            assert (again.status, again.id, again.version) == (StoreStatus.IDENTICAL, stored.id, 1)
    assert (await round_of(harness, consolidate, places, UpkeepRules()))["merged"] == 0


def test_the_less_differs_the_more_similar_the_vectors_must_be(harness: MemoryHarness) -> None:
    """Of a sentence in which one word of four is another, a quarter of the distance is as much as all of it."""
    with psycopg.connect(harness.admin_url) as conn:

        def left(one: str, other: str) -> float | None:
            [(found,)] = conn.execute("SELECT recall.difference_similarity_v1(%s, %s, 0.96)", (one, other)).fetchall()
            return None if found is None else round(found, 6)

        assert left("green tea", "green tea!") == 0.96
        assert left("fine tea", "dark coffee") == 0.96
        assert left("fine green tea", "dark green tea") == 0.92
        assert left("a fine green old tea", "green old tea") == 0.84
