"""
The registry of metrics: what a claim may be about, and how an outcome settles it.

The first metric whose expression matches the whole name counts. Users add their own before the built-in ones with a
file (``IMEM_METRICS_FILE``, :func:`read_metrics`), which can override tolerances and units, or behind them with
:func:`register`. Both are needed in every process before any data is read, since the registry belongs to the program
and not to the data. Scores follow the worker's registry: after a change the next reconciliation computes them anew.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter

from imem.journal.arguments import check_number, check_text, checks_call
from imem.journal.errors import BadInput, SettingsError

SettlingKind = Literal["binary", "direction", "value"]

Cautious = Literal["low", "high"]
"""The end of the values of a metric that is the most cautious one."""

ASKS: Final[dict[SettlingKind, str]] = {"binary": "probability", "direction": "direction", "value": "value"}
"""Kind of metric → the field of a finding that holds the claim."""

_TOLERANCE: Final = 1e-9
"""Tolerance of comparisons at a boundary (credibility-and-contradictions, section 0)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """
    One metric, or a family whose names differ in one placeholder.

    Attributes:
        match: expression that the whole name must match.
        kind: how a claim is settled. ``binary`` compares its probability with what happened (0.5 abstains),
            ``direction`` its direction with the sign of the outcome (neutral abstains), ``value`` is right inside the
            tolerance.
        tolerance: of a value metric, the greatest relative deviation that is still right, as a fraction.
        unit: of the outcome's value, when it is always the same.
        meaning: in words.
        cautious: which of several values is the most cautious one: the lowest or the highest. None: neither is, so that
            a debate about it has no default.
        floor: of a value metric, the least size of a forecast that a deviation is relative to.
    """

    match: str
    kind: SettlingKind
    tolerance: float | None = None
    unit: str | None = None
    meaning: str | None = None
    cautious: Cautious | None = None
    floor: float | None = None
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """
        Refuse a metric that could not be settled.

        Raises:
            BadInput: a value is invalid; names it.
        """
        check_text("match", self.match)
        if self.kind not in get_args(SettlingKind):
            raise BadInput("kind", f"must be {', '.join(get_args(SettlingKind))}, not {self.kind!r}.")
        if self.cautious is not None and self.cautious not in get_args(Cautious):
            raise BadInput("cautious", f"must be {', '.join(get_args(Cautious))}, not {self.cautious!r}.")
        for name in ("tolerance", "floor"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        for name in ("unit", "meaning"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        if (self.tolerance is None) == (self.kind == "value"):
            raise BadInput("tolerance", f"{self.match}: a value metric has a tolerance, and no other has one.")
        if self.tolerance is not None and self.tolerance <= 0:
            raise BadInput("tolerance", f"{self.match}: the tolerance must be above zero.")
        try:
            pattern = re.compile(self.match, re.ASCII)
        except re.error as error:
            raise BadInput("match", f"{self.match!r} is no regular expression: {error}.") from error
        object.__setattr__(self, "_pattern", pattern)

    def matches(self, name: str) -> bool:
        """Return whether *name* is a name of this metric."""
        return self._pattern.fullmatch(name) is not None

    def permits(self, actual: float) -> bool:
        """Return whether an outcome can have the value *actual*: of a binary metric only 0 or 1 says what happened."""
        return self.kind != "binary" or min(abs(actual), abs(actual - 1.0)) <= _TOLERANCE


_METRICS: list[Metric] = [
    Metric(
        "^return_[0-9]+s$", "direction", unit="fraction", meaning="return over the n sessions that end at target_at"
    ),
    Metric("^up$", "binary", meaning="the event happened"),
    Metric("^(close|price_target)$", "value", tolerance=0.20, unit="USD", cautious="low"),
    Metric(
        "^(revenue|eps|ebitda|net_income|operating_income|cash_flow_from_operations|free_cash_flow|gross_margin|operating_margin)$",
        "value",
        tolerance=0.15,
        cautious="low",
    ),
    Metric(
        "^(debt|total_debt|net_debt|debt_to_equity|capex|shares_outstanding)$", "value", tolerance=0.15, cautious="high"
    ),
    Metric("^(risk|volatility|value_at_risk)$", "value", tolerance=0.20, cautious="high"),
    Metric("^strategic_[a-z_]+$", "binary"),
    Metric(
        "^total_return$",
        "value",
        tolerance=0.20,
        unit="fraction",
        floor=0.05,
        meaning="return with dividends from period_start to target_at",
    ),
]


_FIRST: list[Metric] = []
"""Metrics of the user's file, tried before the built-in ones."""


@lru_cache(maxsize=4096)
def metric_of(name: str) -> Metric | None:
    """Return the metric of *name*, or None when there is none."""
    return next((metric for metric in metrics() if metric.matches(name)), None)


def unit_of(name: str, stated: str | None) -> str | None:
    """Return the unit of a claim on the metric *name*: the stated one, else the metric's own."""
    metric = metric_of(name)
    return stated or (metric.unit if metric is not None else None)


def read_metrics(path: Path) -> list[Metric]:
    """
    Return the metrics of a TOML file: one table ``[[metric]]`` each, with the fields of :class:`Metric`.

    Raises:
        SettingsError: it cannot be read, or a table is no metric; it names the file and the table.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"The metrics in {path} cannot be read: {error}.", mend=_MEND) from error
    if set(tables) - {"metric"} or not isinstance(tables.get("metric", []), list):
        raise SettingsError(f"The metrics in {path} are not tables [[metric]].", mend=_MEND)
    found = []
    for number, table in enumerate(tables.get("metric", []), start=1):
        try:
            found.append(_TABLE.validate_python(table).metric())
        except (ValueError, BadInput) as error:
            raise SettingsError(f"[[metric]] number {number} in {path} is none: {error}", mend=_MEND) from error
    return found


_MEND: Final = "One looks so: [[metric]] match = '^price_target$' kind = 'value' tolerance = 0.1 unit = 'USD'."


class _Table(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    match: str
    kind: SettlingKind
    tolerance: float | None = None
    unit: str | None = None
    meaning: str | None = None
    cautious: Cautious | None = None
    floor: float | None = None

    def metric(self) -> Metric:
        return Metric(self.match, self.kind, self.tolerance, self.unit, self.meaning, self.cautious, self.floor)


_TABLE: Final = TypeAdapter(_Table)


def prefer(first: Sequence[Metric]) -> None:
    """Set the metrics that are tried before all others."""
    _FIRST[:] = first
    metric_of.cache_clear()


@checks_call
def register(metric: Metric) -> None:
    """Add *metric* behind the known ones; where an earlier one matches a name too, the earlier one counts."""
    if metric not in _METRICS:
        _METRICS.append(metric)
        metric_of.cache_clear()


def metrics() -> Iterator[Metric]:
    """Return the metrics in the order in which they are tried."""
    return iter((*_FIRST, *_METRICS))
