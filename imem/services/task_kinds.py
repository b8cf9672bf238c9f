"""Registry of the kinds of review tasks: what the worker moves, and what people list and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.credibility.disputes.arbitration import CONTRADICTION
from imem.debates.running import DEBATE
from imem.gates.learning.package import LEARNING
from imem.gates.restoring import RESTORATION
from imem.patterns.similarity import SIMILARITY
from imem.postmortem.cases.answers import CASE
from imem.review.kinds import TaskKind

TASK_KINDS: Final[Mapping[str, TaskKind[Any, Any]]] = {
    one.name: one for one in (CONTRADICTION, DEBATE, CASE, SIMILARITY, RESTORATION, LEARNING)
}
