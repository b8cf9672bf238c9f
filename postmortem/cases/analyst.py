"""
The automatic cause of a decision that was off: what recorded facts speak for, each quoted. Pure.

Causes are tried in this order; the first with evidence is the cause, and the evidence of all is shown:

1. *data_quality*: values of the decision's subject were contradicted or restated after it;
2. *regime_change*: the market's regime at the review is another one than at the decision;
3. *timing*: another checkpoint of the same forecast was met;
4. *model_assumptions*: findings that the decision cites turned out wrong;
5. *missing_factors*: other agents had stated, before the decision, important findings that it does not cite;
6. *black_swan*: nothing of this is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from imem.kg.kinds.enums import RootCause
from imem.postmortem.cases.package import Evidence

REMEDIES: Final[Mapping[RootCause, str]] = {
    RootCause.DATA_QUALITY: "Resolve contradictions of the values that a decision rests on before it is made.",
    RootCause.REGIME_CHANGE: "State under which regime of the market a forecast holds, and look again when it ends.",
    RootCause.TIMING: "State the interval of each checkpoint: the thesis was met at another one.",
    RootCause.MODEL_ASSUMPTIONS: "Test the cited findings against earlier outcomes before they carry a forecast.",
    RootCause.MISSING_FACTORS: "Answer the important findings of other agents before the decision is made.",
    RootCause.BLACK_SWAN: "Widen the interval of such forecasts: no record foretold the outcome.",
}
"""The recommendation of the automatic analysis for each cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """
    The records around a case.

    Attributes:
        contradictions: id → what it says, of those about the subject that became known after the decision.
        regimes: at the decision and at the review: the reading's id and the regime; None without a reading.
        met: days → what was forecast and what happened, of the checkpoints that deviated by little.
        wrong: finding → its statement, of the cited ones that turned out wrong.
        unheard: finding → its statement, of important ones by others that the decision does not cite.
    """

    contradictions: Mapping[str, str] = field(default_factory=dict)
    regimes: tuple[tuple[str, str] | None, tuple[str, str] | None] = (None, None)
    met: Mapping[int, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    unheard: Mapping[str, str] = field(default_factory=dict)


def cause_of(record: CaseRecord) -> tuple[RootCause, tuple[Evidence, ...]]:
    """Return the cause and the evidence, that of the cause first."""
    found: Sequence[tuple[RootCause, list[Evidence]]] = (
        (RootCause.DATA_QUALITY, _quoted(RootCause.DATA_QUALITY, "DataContradiction", record.contradictions)),
        (RootCause.REGIME_CHANGE, _regimes(record)),
        (
            RootCause.TIMING,
            [
                Evidence(cause=RootCause.TIMING, record=f"checkpoint {days}", says=says)
                for days, says in record.met.items()
            ],
        ),
        (RootCause.MODEL_ASSUMPTIONS, _quoted(RootCause.MODEL_ASSUMPTIONS, "Finding", record.wrong)),
        (RootCause.MISSING_FACTORS, _quoted(RootCause.MISSING_FACTORS, "Finding", record.unheard)),
    )
    causes = [(cause, evidence) for cause, evidence in found if evidence]
    shown = tuple(one for _, evidence in causes for one in evidence)
    return (causes[0][0], shown) if causes else (RootCause.BLACK_SWAN, ())


def cluster_of(cause: RootCause, evidence: Sequence[Evidence]) -> str | None:
    """Return what cases with the same cause share: the record that the cause is seen in; None if it is of one case."""
    if cause not in {RootCause.DATA_QUALITY, RootCause.REGIME_CHANGE}:
        return None
    return " ".join((cause.value, *sorted(one.record for one in evidence if one.cause is cause)))


def _quoted(cause: RootCause, kind: str, records: Mapping[str, str]) -> list[Evidence]:
    return [Evidence(cause=cause, record=f"{kind} {key}", says=says) for key, says in records.items()]


def _regimes(record: CaseRecord) -> list[Evidence]:
    before, after = record.regimes
    if before is None or after is None or before[1] == after[1]:
        return []
    return [
        Evidence(cause=RootCause.REGIME_CHANGE, record=f"RegimeReading {key}", says=f"{when}: {regime}")
        for when, (key, regime) in (("at the decision", before), ("at the review", after))
    ]
