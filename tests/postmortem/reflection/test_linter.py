"""What contradicts a strategy's ``avoid`` list, and what a skill's memory may be configured to."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from imem.journal.errors import BadInput
from imem.postmortem.reflection.config import ReflectionCadence, SkillMemoryConfig
from imem.postmortem.reflection.distiller import statistics_of
from imem.postmortem.reflection.linter import contradictions
from imem.postmortem.trades.model import Side
from tests.postmortem.reflection.trades import closed

RULES = ["Shorting BTC", "never hold over weekends", "don't trade at 3.5x leverage", "the"]


@pytest.mark.spec("RC-15")
@pytest.mark.parametrize(
    ("bullet", "rules"),
    [
        ("- Repeat: short “BTC”: 20 trades.", ["Shorting BTC"]),
        ("- Repeat: shorts of btc, holding over the weekend [T1]", ["Shorting BTC", "never hold over weekends"]),
        ("- Repeat: 3.5x leverage", ["don't trade at 3.5x leverage"]),
        ("- Repeat: 5x leverage", []),
        ("- Repeat: long “BTC”: 20 trades.", []),
        ("- Repeat: short “ETH”: 20 trades.", []),
        ("- Repeat: not shorting BTC", []),
        ("- Repeat: don\u2019t short BTC", []),
        ("- Repeat: short BTC, which never failed", ["Shorting BTC"]),
        ("- Avoid: shorting BTC", []),
        ("Shorting BTC earned most.", []),
    ],
)
def test_what_contradicts(bullet: str, rules: list[str]) -> None:
    """A bullet that recommends all that a rule names, in whatever form of its words, and without a negation."""
    found = contradictions(f"All closed trades: shorting BTC.\n{bullet}", RULES)
    assert [one.rule for one in found] == rules
    assert all(one.bullet == bullet for one in found)


@pytest.mark.spec("RC-15")
def test_what_statistics_recommend_is_compared_too() -> None:
    """By all that their trades have in common, also where a group has several names."""
    text = statistics_of([closed(n, 10, side=Side.SHORT, symbol="BTC-USD") for n in range(40)]).text
    [found] = contradictions(text, ["Shorts", "Longs"])
    assert found.rule == "Shorts"
    assert found.bullet.startswith("- Repeat: symbol “BTC-USD”, side short, closed by close, held under 1 h: 40 trades")


def test_a_configuration_is_what_it_says() -> None:
    """Older payloads have the defaults; unknown keys and values out of bounds are refused."""
    default = SkillMemoryConfig.model_validate({})
    assert default == SkillMemoryConfig.model_validate({"enabled": True, "reflection": {}})
    assert (default.recent_trades_k, default.include_open_positions) == (10, True)
    assert default.reflection.cadence is ReflectionCadence.PER_N_TRADES
    assert (default.reflection.every_n_trades, default.reflection.model) == (10, None)
    assert SkillMemoryConfig.model_validate_json(default.model_dump_json()) == default
    for wrong in (
        {"recent_trades": 3},
        {"recent_trades_k": 31},
        {"reflection": {"every_n_trades": 1}},
        {"reflection": {"every_n_trades": 101}},
        {"reflection": {"cadence": "weekly"}},
        {"reflection": {"daily_hour": 24}},
        {"reflection": {"prompt": "x"}},
    ):
        with pytest.raises(ValidationError):
            SkillMemoryConfig.model_validate(wrong)
        with pytest.raises(BadInput):
            SkillMemoryConfig(**wrong)
    with pytest.raises(ValidationError):
        default.enabled = False  # type: ignore[misc]
