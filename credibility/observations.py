"""
Observations: the scored claims of one agent with one ``target_at``, with the sums in which they count. Pure.

What follows from one claim alone is computed once, when the claim comes. So a change costs the claims that change, and
one addition of stored numbers for each other claim of the observation. Sums are exact and rounded once, so the order of
the changes does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import fsum, inf
from statistics import fmean
from typing import Final, NamedTuple

from imem.credibility.scores.cells import CellShare
from imem.credibility.scores.context import ClaimContext
from imem.credibility.settlement import brier

SAME_ANSWER: Final = 0.05
"""Difference of errors, -1 to 1, up to which an agent's next answer to a question repeats the one before."""


class PeerComparison(NamedTuple):
    """
    The claims of an observation in a context on questions that others answered too.

    Attributes:
        rows: how many.
        loss, peer_loss, error, ahead: means over them of the loss, that of the others, the signed error, and the
            seconds from when the agent first gave that answer to ``target_at``; zero without any.
    """

    rows: int = 0
    loss: float = 0.0
    peer_loss: float = 0.0
    error: float = 0.0
    ahead: float = 0.0


class ObservationClaim(NamedTuple):
    """
    A scored claim of an observation.

    Attributes:
        y: 1 right, 0 wrong.
        happened: 1 or 0 for a claim that gave a probability; else None, as are the following.
        brier: Brier score of its probability.
        reference: mean probability of the baselines; None without any.
        context: the context of the claim.
        error, peer_loss: its signed error, and the loss of the others on the question; None without others.
        ahead: seconds from the claim to ``target_at``.
        question: its subject and metric.
    """

    y: int
    happened: int | None
    brier: float | None
    reference: float | None
    context: ClaimContext = ClaimContext()
    error: float | None = None
    peer_loss: float | None = None
    ahead: float = 0.0
    question: tuple[str, str] = ("", "")

    @property
    def stated(self) -> bool:
        """Whether it gave a probability that was scored."""
        return self.brier is not None and self.happened is not None


class Briers(NamedTuple):
    """Brier sums of one observation: the agent's and the reference's."""

    own: float = 0.0
    other: float = 0.0


NONE: Final = Briers()

_Compared = tuple[float, float, float, float]
"""The columns of one claim of :class:`PeerComparison` behind the number of rows."""


class Observation:
    """
    The scored claims with one ``target_at``.

    Attributes:
        anchor: from when it decays: ``target_at``, or when it was first scored if that came earlier.
        members: its claims by finding.
        stands: whether it is part of the sums.
        mean, common, base, shares: the share right, Brier sums and shares of contexts with which it is.
    """

    __slots__ = (
        "_base", "_common", "_compared", "_own", "_questions", "_reference", "_right", "_rows", "_shares", "_touched",
        "_touched_contexts", "anchor", "base", "common", "mean", "members", "shares", "stands",
    )  # fmt: skip

    def __init__(self, anchor: datetime) -> None:
        self.anchor = anchor
        self.members: dict[str, ObservationClaim] = {}
        self.stands = False
        self.mean, self.common, self.base = 0.0, NONE, NONE
        self.shares: Mapping[ClaimContext, CellShare] = {}
        self._right = 0
        # Brier scores by finding: its own, its base rate's; and where baselines answered, its own and theirs.
        self._own: dict[str, float] = {}
        self._base: dict[str, float] = {}
        self._common: dict[str, float] = {}
        self._reference: dict[str, float] = {}
        self._shares: dict[ClaimContext, list[int]] = {}
        self._questions: dict[tuple[str, str], dict[str, ObservationClaim]] = {}
        self._rows: dict[ClaimContext, dict[str, _Compared]] = {}
        self._compared: dict[ClaimContext, PeerComparison] = {}
        self._touched: set[tuple[str, str]] = set()
        self._touched_contexts: set[ClaimContext] = set()

    def add(self, finding: str, claim: ObservationClaim, base_rate: float | None) -> None:
        """
        Add a claim.

        Args:
            base_rate: the agent's own earlier base rate; None for a claim without a probability.
        """
        self.members[finding] = claim
        self._right += claim.y
        share = self._shares.setdefault(claim.context, [0, 0])
        share[0] += 1
        share[1] += claim.y
        self._questions.setdefault(claim.question, {})[finding] = claim
        self._touched.add(claim.question)
        if claim.brier is None or claim.happened is None or base_rate is None:
            return
        self._own[finding] = claim.brier
        self._base[finding] = brier(base_rate, claim.happened)
        if claim.reference is not None:
            self._common[finding] = claim.brier
            self._reference[finding] = brier(claim.reference, claim.happened)

    def remove(self, finding: str) -> None:
        """Remove a claim."""
        claim = self.members.pop(finding)
        self._right -= claim.y
        share = self._shares[claim.context]
        share[0] -= 1
        share[1] -= claim.y
        if not share[0]:
            del self._shares[claim.context]
        del self._questions[claim.question][finding]
        if not self._questions[claim.question]:
            del self._questions[claim.question]
        self._touched.add(claim.question)
        if self._rows.get(claim.context, {}).pop(finding, None) is not None:
            self._touched_contexts.add(claim.context)
        for values in (self._own, self._base, self._common, self._reference):
            values.pop(finding, None)

    def counted(self) -> tuple[float, Briers, Briers]:
        """Return the share right, and the Brier sums beside the baselines' and the base rate's."""
        if not self.members:
            return 0.0, NONE, NONE
        return (
            self._right / len(self.members),
            Briers(fsum(self._common.values()), fsum(self._reference.values())),
            Briers(fsum(self._own.values()), fsum(self._base.values())),
        )

    def current_shares(self) -> dict[ClaimContext, CellShare]:
        """Return the share of each context."""
        of = len(self.members)
        return {context: CellShare(rows, right, of) for context, (rows, right) in self._shares.items()}

    def compare(self) -> dict[ClaimContext, PeerComparison]:
        """Return the comparisons with others that changed since the last call, by context."""
        for question in self._touched:
            claims = self._questions.get(question, {})
            more = len(claims) > 1
            for finding, member in claims.items():
                if member.error is not None and member.peer_loss is not None:
                    ahead = _first_said(member.ahead, member.error, claims.values()) if more else member.ahead
                    rows = self._rows.setdefault(member.context, {})
                    rows[finding] = (member.error * member.error, member.peer_loss, member.error, ahead)
                    self._touched_contexts.add(member.context)
        found = {}
        for context in self._touched_contexts:
            rows = self._rows[context]
            now = PeerComparison(len(rows), *map(fmean, zip(*rows.values(), strict=True))) if rows else PeerComparison()
            if now != self._compared.get(context, PeerComparison()):
                found[context] = now
            self._compared[context] = now
        self._touched.clear()
        self._touched_contexts.clear()
        return found


def _first_said(ahead: float, error: float, claims: Iterable[ObservationClaim]) -> float:
    """Return how many seconds ahead an answer given at *ahead* was given first, and has only been repeated since."""
    earlier = [(one.ahead, inf if one.error is None else abs(one.error - error)) for one in claims if one.ahead > ahead]
    for before, apart in sorted(earlier):
        if apart > SAME_ANSWER:
            break
        ahead = before
    return ahead
