"""
Groups of closed trades, and which of them differ from chance. Pure.

Trades are grouped by what was known or chosen, never by what they earned, so that the groups say nothing by themselves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import NormalDist
from typing import Final

from imem.postmortem.trades.model import Trade

LEAST_TRADES: Final = 5
"""Trades of a group of which anything is said."""

FALSE_ALARM: Final = 0.05
"""
Probability, at most, that a note on trades of pure chance says anything of any group. Measured over 5,000 such
histories with 25 groups each it is 0.002, since the bound of :func:`chance` holds for any amounts: a deployment gets a
note every few trades, and each is another occasion for a false alarm.
"""

HOLDING: Final = ((60, "held under 1 h"), (24 * 60, "held 1 h to 1 d"), (7 * 24 * 60, "held 1 d to 7 d"))
"""Buckets of holding times: minutes below which each ends, and its name."""

HELD_LONG: Final = "held over 7 d"

NAME_CHARS: Final = 40
"""Characters of a symbol that a group's name shows."""

_TERM = re.compile(r"[^\W\d_]{4,30}")
"""Words of a reason that may name a cluster."""

_COMMON: Final = (
    "about above after again against also because been before below being between both could does down during each from"
    " further have here into just more most much only other over same should since some such than that their them then"
    " there these they this those through trade under until very were what when where which while will with would your"
)
"""Words that name no cluster."""

_COMMON_WORDS: Final = frozenset(_COMMON.split())

_BOUND: Final = 1 / (4 * (1 - NormalDist().cdf(math.sqrt(2.0))))
"""The constant of the bound of :func:`chance`, 3.18."""

_INTERVAL: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class TradeGroup:
    """
    Trades that have something in common.

    Attributes:
        name: what.
        pnls: realised profit and loss of each, fees included, in USD.
    """

    name: str
    pnls: tuple[Decimal, ...]

    @property
    def total(self) -> Decimal:
        """Sum of profit and loss, in USD."""
        return sum(self.pnls, Decimal(0))

    @property
    def text(self) -> str:
        """Number of trades, win rate with its interval, mean and total."""
        count, wins = len(self.pnls), sum(pnl > 0 for pnl in self.pnls)
        low, high = wilson(wins, count)
        return (
            f"{count:,} trades, win rate {wins / count * 100:.0f} % (95 % interval {low * 100:.0f} to"
            f" {high * 100:.0f} %), mean PnL {dollars(self.total / count)}, total {dollars(self.total)}"
        )


def dollars(amount: Decimal) -> str:
    """Return an amount with its sign, in dollars and cents."""
    return f"{'-' if amount < 0 else '+'}${abs(amount):,.2f}"


def wilson(wins: int, count: int) -> tuple[float, float]:
    """
    Return the 95 % interval of a share.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the American
    Statistical Association 22, 1927, 209 to 212: with p = wins/n, (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n).
    """
    share, z2 = wins / count, _INTERVAL**2
    middle = share + z2 / (2 * count)
    half = _INTERVAL * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max((middle - half) / (1 + z2 / count), 0.0), min((middle + half) / (1 + z2 / count), 1.0)


def chance(pnls: Iterable[Decimal]) -> float:
    """
    Return an upper bound of the probability that chance alone earns or loses as much as *pnls*.

    Chance: each trade wins or loses its amount with probability ½. The sum over the root of the sum of squares,
    t = |Σx|/√Σx², then exceeds what it is with a probability of at most 2c(1 - Φ(t)), c = 1/(4(1 - Φ(√2))), for any
    number of trades and any amounts: V. Bentkus and D. Dzindzalieta, "A tight Gaussian bound for weighted sums of
    Rademacher random variables", Bernoulli 21(2), 2015, 1231 to 1237. A rare loss that is much larger than the usual
    win, and has not happened yet, is not seen by this or any other test.
    """
    amounts = [float(pnl) for pnl in pnls]
    size = math.hypot(*amounts)
    if size == 0.0:
        return 1.0
    return min(1.0, _BOUND * math.erfc(abs(math.fsum(amounts)) / size / math.sqrt(2.0)))


def distinguishable(groups: Sequence[TradeGroup]) -> list[TradeGroup]:
    """
    Return the groups that differ from chance, the least probable first.

    Holm's procedure (S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
    Statistics 6, 1979, 65 to 70): of m groups, the k-th least probable must not be above
    :data:`FALSE_ALARM`/(m - k + 1), as all before it. Where all is chance, the probability that any is returned is at
    most :data:`FALSE_ALARM`, however the groups overlap.
    """
    ordered = sorted(((chance(group.pnls), group.name, group) for group in groups), key=lambda one: one[:2])
    found = []
    for nth, (probability, _, group) in enumerate(ordered):
        if probability > FALSE_ALARM / (len(ordered) - nth):
            break
        found.append(group)
    return found


def groups_of(trades: Sequence[Trade]) -> list[TradeGroup]:
    """
    Return all trades and their groups of at least :data:`LEAST_TRADES`.

    By symbol, side, kind of close, holding time, the most frequent word of the entry's reason, and symbol with side.
    Groups of the same trades are one, with all their names.
    """
    words = _cluster_words(trades)
    keys: tuple[Callable[[Trade], str | None], ...] = (
        lambda trade: f"symbol {_symbol(trade)}",
        lambda trade: f"side {trade.side}",
        lambda trade: f"closed by {trade.close_kind}",
        _held,
        lambda trade: _word(trade, words),
    )
    found: dict[frozenset[int], list[str]] = {}
    for key in keys:
        for name, which in _members(trades, key).items():
            found.setdefault(which, []).append(name)
    for name, which in _members(trades, lambda trade: f"{trade.side} {_symbol(trade)}").items():
        found.setdefault(which, [name])
    found.setdefault(frozenset(range(len(trades))), ["all trades"])
    return [
        TradeGroup(", ".join(names), tuple(trades[nth].realized_pnl_usd for nth in sorted(which)))
        for which, names in found.items()
        if len(which) >= LEAST_TRADES
    ]


def _members(trades: Sequence[Trade], key: Callable[[Trade], str | None]) -> Mapping[str, frozenset[int]]:
    """Return the numbers of the trades that *key* gives one name; those to which it gives None are of no group."""
    found: dict[str, list[int]] = {}
    for nth, trade in enumerate(trades):
        if (name := key(trade)) is not None:
            found.setdefault(name, []).append(nth)
    return {name: frozenset(which) for name, which in found.items()}


def _symbol(trade: Trade) -> str:
    return f"“{trade.symbol[:NAME_CHARS]}”"


def _held(trade: Trade) -> str | None:
    if trade.holding_minutes is None:
        return None
    return next((name for end, name in HOLDING if trade.holding_minutes < end), HELD_LONG)


def _words_of(trade: Trade) -> set[str]:
    return set(_TERM.findall(trade.entry_reason.casefold())) - _COMMON_WORDS


def _cluster_words(trades: Sequence[Trade]) -> Mapping[str, int]:
    """Return the words that enough reasons have, and not most, with the number of those."""
    counts = Counter(word for trade in trades for word in _words_of(trade))
    return {word: count for word, count in counts.items() if LEAST_TRADES <= count <= len(trades) / 2}


def _word(trade: Trade, words: Mapping[str, int]) -> str | None:
    known = sorted(_words_of(trade) & words.keys(), key=lambda word: (-words[word], word))
    return f"entry reason with “{known[0]}”" if known else None
