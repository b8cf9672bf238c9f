"""What is told of lessons of a known effect is what was simulated, and what a few new simulations find."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from docs.lesson_simulation import COUNTS, PICTURE, WORLDS, kept, picture, runs_of, table, verdicts
from docs.pictures import FOLDER
from imem.postmortem.lessons.effect import EffectVerdict
from tests.docs.pictures import check_picture

PAGE = FOLDER.parent / "lessons.md"
AGAIN = 25
OTHER_SEED = 1_066


def test_the_counts_are_whole() -> None:
    found = kept()
    assert list(found) == list(WORLDS)
    for name, counts in found.items():
        assert list(counts) == list(COUNTS)
        assert {sum(said.values()) for said in counts.values()} == {runs_of(name)}


def test_the_picture_and_the_table_are_those_of_the_counts() -> None:
    check_picture(PICTURE, picture(kept()))
    page = PAGE.read_text("utf-8")
    assert f"(pictures/{PICTURE.name})" in page
    assert table(kept()) in page


@pytest.mark.parametrize("name", ["+0.3", "none"])
def test_a_few_new_simulations_agree(name: str) -> None:
    """Of other seeds; a difference that chance makes once in a thousand times is none."""
    said = verdicts(name, 20, AGAIN, seed=OTHER_SEED)
    stored = kept()[name][20]
    share = stored[EffectVerdict.EFFECTIVE] / sum(stored.values())
    assert binomtest(said.get(EffectVerdict.EFFECTIVE, 0), AGAIN, share).pvalue > 0.001
    assert set(said) <= {EffectVerdict.EFFECTIVE, EffectVerdict.HARMFUL, EffectVerdict.UNCLEAR}
