"""
The automatic cause of a decision that was off: what recorded facts speak for, each quoted. Pure.

Causes are tried in this order; the first with evidence is the cause, and the evidence of all is shown:

1. *data_quality*: values that the decision's subject was judged by were contradicted or restated;
2. *regime_change*: the market's regime at the checkpoint is another one than at the decision;
3. *timing*: another checkpoint of the same forecast was met;
4. *model_assumptions*: findings that the decision cites turned out wrong;
5. *missing_factors*: other agents stated, before the checkpoint, important findings that the decision does not cite;
6. *black_swan*: nothing of this is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from imem.kg.kinds.enums import RootCause
from imem.postmortem.cases.package import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """
    What is recorded around a case.

    Attributes:
        contradictions: id → what it says, of those about the subject that became known after the decision.
        regimes: at the decision and at the checkpoint: the reading's id and the regime; None without a reading.
        met: days → what was forecast and what happened, of the checkpoints that were not off.
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
        (RootCause.DATA_QUALITY, _quoted("DataContradiction", record.contradictions)),
        (RootCause.REGIME_CHANGE, _regimes(record)),
        (RootCause.TIMING, [Evidence(record=f"after {days} days", says=says) for days, says in record.met.items()]),
        (RootCause.MODEL_ASSUMPTIONS, _quoted("Finding", record.wrong)),
        (RootCause.MISSING_FACTORS, _quoted("Finding", record.unheard)),
    )
    causes = [(cause, evidence) for cause, evidence in found if evidence]
    shown = tuple(one for _, evidence in causes for one in evidence)
    return (causes[0][0], shown) if causes else (RootCause.BLACK_SWAN, ())


def _quoted(kind: str, records: Mapping[str, str]) -> list[Evidence]:
    return [Evidence(record=f"{kind} {key}", says=says) for key, says in records.items()]


def _regimes(record: CaseRecord) -> list[Evidence]:
    before, after = record.regimes
    if before is None or after is None or before[1] == after[1]:
        return []
    return [
        Evidence(record=f"RegimeReading {key}", says=f"{when}: {regime}")
        for when, (key, regime) in (("at the decision", before), ("at the checkpoint", after))
    ]
