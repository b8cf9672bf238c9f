"""The pictures of the documentation are those that the code makes."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from docs.pictures import BETTER, FOLDER, PICTURES, contenders, power, table_of_power
from imem.credibility.scores.auto_resolve import auto_resolve
from tests.docs.pictures import check_picture


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_picture_is_what_the_code_makes(name: str) -> None:
    check_picture(FOLDER / name, PICTURES[name]())


def test_each_picture_is_shown() -> None:
    page = (FOLDER.parent / "scores.md").read_text("utf-8")

    assert set(re.findall(r"\(pictures/([a-z]+\.svg)\)", page)) == set(PICTURES)


def test_the_table_of_power_is_what_the_code_makes() -> None:
    assert table_of_power() in (FOLDER.parent / "scores.md").read_text("utf-8")


@pytest.mark.spec("CR-22")
@pytest.mark.parametrize(("n", "gap"), [(30, 0.2), (100, 0.3)])
def test_power_is_what_a_simulation_finds(n: int, gap: float) -> None:
    """Sums over what two agents may come to are what seeded draws of them show, on both bases."""
    drawn = np.random.default_rng(22).binomial(n, (BETTER, BETTER - gap), size=(4_000, 2))
    sides, winners = contenders(n), Counter[tuple[str, str | None]]()
    for (own, other), times in Counter(map(tuple, drawn.tolist())).items():
        for verdict in auto_resolve(sides[own], sides[other])[1:]:
            winners[verdict.basis.value, verdict.winner] += times
    for shown, basis in (("posterior", "posterior"), ("product", "as_designed")):
        found = [winners[basis, winner] / len(drawn) for winner in ("a", "b")]
        assert found == pytest.approx(power(n, gap)[shown], abs=0.03)
