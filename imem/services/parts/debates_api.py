"""Debates beside their reads and writes: precedents; a part of ``Memory``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from imem.journal.arguments import checks_arguments
from imem.recall.brief import Recall
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.debates.precedents.model import Precedents


@checks_arguments
class DebatesApi(ActorApi):
    """Finds precedents; see :class:`imem.memory.Memory`. The class that has this part sets ``_recall``."""

    _recall: Recall

    async def find_precedents(
        self,
        debate_or_topic: str,
        *,
        as_of: datetime | None = None,
        k: int = 5,
        deadline_ms: float | None = None,
    ) -> Precedents:
        """
        Return earlier debates that are comparable with a debate, and what they say about it, within the budget.

        Candidates are found by the words and the meaning of their text; only debates that were closed before the debate
        was opened count. They are ordered by text, same subject, same pair of agents and same domain, by weights that
        settings name; of equal ones the newest comes first. Beside them stand active patterns with their success
        rates, the track records of both sides, and whether these may decide at level 2.

        ::

            found = await memory.find_precedents("debate-17")
            for one in found.items:
                print(one.opened_at, one.topic, one.winner, one.accuracy)

        A debate does not wait for its precedents: what does not answer in time is named in ``reason``, and without a
        search the answer is not ``available`` and says "precedents unavailable".

        Args:
            debate_or_topic: the id of a recorded debate; any other text is a topic, which has no subject and no agents.
            as_of: the moment for which the answer holds, on the known clock; of a debate at the latest the moment
                before it was opened.
            k: most precedents, 1 to 50.

        Raises:
            BadInput: an argument is wrong.
            PermissionDenied: the actor's role may not read the graph.
        """
        from imem.services.precedents import find_precedents  # noqa: PLC0415 - statistics take long to import

        due = await self._due(deadline_ms)
        return await find_precedents(self._stores, self._recall, debate_or_topic, k=k, as_of=as_of, deadline=due)
