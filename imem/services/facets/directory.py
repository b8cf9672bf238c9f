"""The facets of ``Memory``, each a property."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imem.services.facets.agents import AgentsFacet
from imem.services.facets.analyses import AnalysesFacet, GatesFacet, PausesFacet
from imem.services.facets.audit import AuditFacet
from imem.services.facets.contradictions import ContradictionsFacet
from imem.services.facets.debates import DebatesFacet
from imem.services.facets.facet import Facet
from imem.services.facets.forecasts import ForecastsFacet
from imem.services.facets.lessons import LessonsFacet
from imem.services.facets.patterns import PatternsFacet
from imem.services.facets.scores import ScoresFacet
from imem.services.facets.signals import SignalsFacet
from imem.services.facets.tasks import TasksFacet

if TYPE_CHECKING:
    from imem.services.memories import Memories
    from imem.services.trading.reflections import Reflections
    from imem.services.trading.trades import Trades


class FacetDirectory(Facet):
    """Gives the facets; see :class:`imem.memory.Memory`."""

    @property
    def debates(self) -> DebatesFacet:
        """Debates and their precedents, as in ``await memory.debates.challenge("mu-margin", "…")``."""
        return self._facet(DebatesFacet)

    @property
    def contradictions(self) -> ContradictionsFacet:
        """What sources state differently, as in ``await memory.contradictions.about("MU")``."""
        return self._facet(ContradictionsFacet)

    @property
    def patterns(self) -> PatternsFacet:
        """Patterns, as in ``await memory.patterns.about("MU")``."""
        return self._facet(PatternsFacet)

    @property
    def lessons(self) -> LessonsFacet:
        """Lessons, as in ``await memory.lessons.about("MU")``."""
        return self._facet(LessonsFacet)

    @property
    def scores(self) -> ScoresFacet:
        """Whom to trust, as in ``await memory.scores.track_record("macro")``."""
        return self._facet(ScoresFacet)

    @property
    def forecasts(self) -> ForecastsFacet:
        """Forecasts of decisions, as in ``await memory.forecasts.of("desk:MU-1/pm")``."""
        return self._facet(ForecastsFacet)

    @property
    def signals(self) -> SignalsFacet:
        """What agents concluded about a subject, as in ``await memory.signals.about("MU")``."""
        return self._facet(SignalsFacet)

    @property
    def tasks(self) -> TasksFacet:
        """Questions to people, as in ``await memory.tasks.list()``."""
        return self._facet(TasksFacet)

    @property
    def analyses(self) -> AnalysesFacet:
        """Analyses that run, as in ``await memory.analyses.state("a-7")``."""
        return self._facet(AnalysesFacet)

    @property
    def pauses(self) -> PausesFacet:
        """Pauses of analyses, as in ``await memory.pauses.pause("a-7", "Data is missing.")``."""
        return self._facet(PausesFacet)

    @property
    def gates(self) -> GatesFacet:
        """Gates, at which an analysis waits for a person, as in ``await memory.gates.list()``."""
        return self._facet(GatesFacet)

    @property
    def agents(self) -> AgentsFacet:
        """Synchronisation of agents, as in ``await memory.agents.push("mu-valuation")``."""
        return self._facet(AgentsFacet)

    @property
    def audit(self) -> AuditFacet:
        """Who did what, as in ``await memory.audit.list(actor="dana")``."""
        return self._facet(AuditFacet)

    @property
    def memories(self) -> Memories:
        """
        The memories that the actor may read, as in ``await memory.memories.search("…")``.

        Raises:
            SettingsError: the settings name an endpoint for vectors, and no model.
        """
        from imem.services.memories import Memories  # noqa: PLC0415 - what makes vectors takes long to import

        return self._facet(Memories)

    @property
    def trades(self) -> Trades:
        """The ledger of trades, as in ``await memory.trades.recent(deployment="desk-1")``."""
        from imem.services.trading.trades import Trades  # noqa: PLC0415 - few programs trade

        return self._facet(Trades)

    @property
    def reflections(self) -> Reflections:
        """Notes about closed trades, as in ``await memory.reflections.current("desk-1")``."""
        from imem.services.trading.reflections import Reflections  # noqa: PLC0415 - as above

        return self._facet(Reflections)
