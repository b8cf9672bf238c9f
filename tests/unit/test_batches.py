"""How large a batch of the applier may become."""

from __future__ import annotations

import pytest

from imem.kg.projection.lanes import FIRST_BATCH, QUICK_S, SLOW_S, STEADY_BATCH, next_size


@pytest.mark.parametrize(
    ("size", "took_s", "expected"),
    [
        (FIRST_BATCH, 60.0, 2 * FIRST_BATCH),
        (STEADY_BATCH, QUICK_S, 2 * STEADY_BATCH),
        (STEADY_BATCH, SLOW_S, STEADY_BATCH),
        (STEADY_BATCH, 60.0, STEADY_BATCH),
        (2000, QUICK_S, 2000),
        (2000, SLOW_S, 2000),
        (2000, SLOW_S + 0.1, 1000),
        (1600, SLOW_S + 0.1, 800),
    ],
)
def test_a_batch_grows_while_it_is_quick_and_shrinks_when_urgent_events_would_wait(
    size: int, took_s: float, expected: int
) -> None:
    """Small ones always grow, since their time is that of their statements; none grows past the most."""
    assert next_size(size, took_s, 2000) == expected


def test_the_most_holds_for_small_ones_too() -> None:
    """A setting below the steady size is kept."""
    assert next_size(64, 0.0, 77) == 77
    assert next_size(77, 0.0, 77) == 77
