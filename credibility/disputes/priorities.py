"""Priorities of contradictions, by the metric and by how far the difference moves the valuation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from imem.credibility.disputes.cells import EPSILON
from imem.kg.kinds.enums import ContradictionPriority

CRITICAL: Final = frozenset(
    {
        "revenue",
        "net_income",
        "operating_margin",
        "gross_margin",
        "debt",
        "cash_flow_from_operations",
        "free_cash_flow",
        "shares_outstanding",
    }
)

HIGH: Final = frozenset({"capex", "depreciation", "tax_rate", "working_capital", "ebitda", "operating_income"})

HIGH_IMPACT: Final = 0.05
"""Share of the valuation above which a contradiction is of high priority."""

LOW_IMPACT: Final = 0.01
"""Share of it below which one is of low priority."""

TAGS: Final[Mapping[str, str]] = {
    "Revenues": "revenue",
    "SalesRevenueNet": "revenue",
    "RevenueFromContractWithCustomerExcludingAssessedTax": "revenue",
    "NetIncomeLoss": "net_income",
    "ProfitLoss": "net_income",
    "LongTermDebt": "debt",
    "LongTermDebtCurrent": "debt",
    "LongTermDebtNoncurrent": "debt",
    "NetCashProvidedByUsedInOperatingActivities": "cash_flow_from_operations",
    "CommonStockSharesOutstanding": "shares_outstanding",
    "EntityCommonStockSharesOutstanding": "shares_outstanding",
    "PaymentsToAcquirePropertyPlantAndEquipment": "capex",
    "Depreciation": "depreciation",
    "DepreciationDepletionAndAmortization": "depreciation",
    "EffectiveIncomeTaxRateContinuingOperations": "tax_rate",
    "OperatingIncomeLoss": "operating_income",
}
"""Tags of US-GAAP filings → the metric that they are."""


def priority_of(metric: str, impact: float | None = None) -> ContradictionPriority:
    """
    Return the priority of a contradiction.

    Args:
        metric: what the values are values of: a metric's name or the tag of a filing.
        impact: how far the difference moves the valuation, as a fraction of it; None if unknown.
    """
    name = TAGS.get(metric, metric)
    if name in CRITICAL:
        return ContradictionPriority.CRITICAL
    size = None if impact is None else abs(impact)
    if name in HIGH or (size is not None and size > HIGH_IMPACT + EPSILON):
        return ContradictionPriority.HIGH
    if size is not None and size < LOW_IMPACT - EPSILON:
        return ContradictionPriority.LOW
    return ContradictionPriority.MEDIUM
