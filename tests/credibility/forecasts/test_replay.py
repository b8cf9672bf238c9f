"""Another policy is compared with the one in force, over all that was measured as of a moment."""

from __future__ import annotations

import pytest

from imem.credibility.forecasts import replay
from imem.credibility.forecasts.replay import policy_of, replay_policy
from imem.credibility.forecasts.sessions import checkpoint_at
from imem.journal.errors import BadInput
from imem.kg.asof import AsOf
from imem.kg.kinds.forecasts import Forecast

from ..conftest import World, outcome, text  # noqa: TID252 - a folder of its own
from .test_tracking import DAY, DECIDED, ENOUGH, decided, happened

AT = checkpoint_at(DECIDED, 30) + 2 * DAY


async def test_other_thresholds_decide_otherwise_and_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than one page.
    monkeypatch.setattr(replay, "PAGE", 2)
    month = checkpoint_at(DECIDED, 30)
    for number, actual in enumerate((0.15, 0.28, 0.30, 0.50, 0.90)):
        key = f"d{number}"
        forecast = Forecast.of_return(0.20, days=30, low=0.19, high=0.21)
        await world.say(
            decided(key, forecast=forecast),
            outcome(
                f"o{number}", month + DAY, month, actual, metric="total_return", unit="fraction", decision_id=key,
                subject_id="company:MU", checkpoint=30, period_start=text(DECIDED),
            ),
        )  # fmt: skip
    await world.say(decided())
    before = await world.written()
    found = await replay_policy(world.database, {"deviation": 0.5}, AsOf(AT), deadline=ENOUGH)
    # Of 0.20 they deviate by 0.25, 0.40, 0.50, 1.5 and 3.5.
    assert (found.measured, found.off, found.off_then, found.cases, found.cases_then) == (5, 4, 2, 4, 2)
    assert [one.decision_id for one in found.lost] == ["d1", "d2"]
    assert found.gained == ()
    tight = await replay_policy(world.database, {"deviation": 0.2}, AsOf(AT), deadline=ENOUGH)
    assert [one.decision_id for one in tight.gained] == ["d0"]
    early = await replay_policy(world.database, {"deviation": 0.5}, AsOf(month), deadline=ENOUGH)
    assert (early.measured, early.off, early.cases_then) == (0, 0, 0), "nothing was known then"
    assert await world.written() == before


async def test_noise_counts_where_no_interval_was_stated(world: World) -> None:
    forecast = Forecast.of_return(0.20, days=30)
    await world.say(decided(forecast=forecast), happened(0.50, volatility=0.20))
    in_force = await replay_policy(world.database, {"noise": 1.645}, AsOf(AT), deadline=ENOUGH)
    assert (in_force.off, in_force.off_then) == (0, 0), "1.5 standard deviations"
    other = await replay_policy(world.database, {"noise": 1.4}, AsOf(AT), deadline=ENOUGH)
    assert [one.verdict for one in other.gained] == ["off"]


@pytest.mark.parametrize("settings", [{}, {"tolerance": 0.1}, {"deviation": -0.1}, {"noise": float("nan")}])
def test_wrong_settings_are_named(settings: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(settings), "settings") if settings != {"tolerance": 0.1} else "noise"):
        policy_of(settings)
