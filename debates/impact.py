"""
Whether a changed value asks for its dependants to be computed again (sync-and-debates, section 2.5). Pure.

A change is relative to the earlier value, except that of a confidence or a risk, which are fractions already.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from imem.credibility.settlement import TOLERANCE
from imem.debates.defaults import RATING

DEFAULT_THRESHOLD: Final = 0.10
"""The relative threshold of a metric that declares none, such as the target price."""

ABSOLUTE_THRESHOLDS: Final = {"confidence": 0.15, "risk": 0.10}
"""Metric → the change that is still only noted, in the metric's own unit."""


class Impact(NamedTuple):
    """
    The effect of a changed value on the records that depend on it.

    Attributes:
        change: how far the value moved, relative or absolute as the threshold is; None of a rating.
        threshold: the greatest change that is only noted; None of a rating, of which any change counts.
        rerun: whether what depends on it is to be computed again.
    """

    change: float | None
    threshold: float | None
    rerun: bool


def impact(metric: str, before: float | str, after: float | str) -> Impact:
    """Return what the change of *metric* from *before* to *after* means; a text, such as a rating, counts as one."""
    if metric == RATING or isinstance(before, str) or isinstance(after, str):
        return Impact(None, None, before != after)
    absolute = ABSOLUTE_THRESHOLDS.get(metric)
    moved = abs(after - before)
    if absolute is None:
        moved = moved / abs(before) if before else (inf if moved else 0.0)
    threshold = DEFAULT_THRESHOLD if absolute is None else absolute
    # A value that is no number is not known to be close.
    return Impact(moved, threshold, not moved <= threshold + TOLERANCE)
