"""The earlier conclusions of the asking agent about the subject, and its last change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from imem.journal.texts.prompt_text import quoted
from imem.recall.answers import BriefingSection
from imem.recall.rendering.formatting import share, when
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, rendered_section
from imem.recall.retrievers import RetrievalRequest
from imem.recall.sections.spec import SectionSpec
from imem.recall.signals.evolution import EvolutionEvent, newest_changes
from imem.recall.signals.model import AgentSignal, signal_of, subject_of
from imem.recall.signals.reader import SWITCHED_OFF

WORTH: Final = 0.9
FADING: Final = 0.7
DRIVERS: Final = 5
DRIVER_CHARS: Final = 80
"""Most key drivers of a signal that are shown, and the longest quotation of one, in characters."""


class OwnSignalsSection(BriefingSection):
    """
    Signals of the agent that asks, newest first; without such an agent there are none.

    Attributes:
        changes: what the newest changes against the one before it.
    """

    items: list[AgentSignal] = Field(default_factory=list)
    changes: list[EvolutionEvent] = Field(default_factory=list)


async def load(request: RetrievalRequest) -> OwnSignalsSection:
    """
    Return the agent's newest signals as of the moment.

    Read from the journal: the projected table lags some seconds, and what it lacks would be lacking in a cached result.
    """
    kind, market_id = subject_of(request.subject_id)
    given = {
        "kind": kind.value,
        "market": market_id,
        "subject_id": request.subject_id,
        "agents": [request.for_agent],
        "at": request.at.at,
        "retention": None,
        "limit": request.limits.signals,
        **request.at.limits,
    }
    rows = await request.database.named("signals_as_of", given, deadline=request.deadline)
    items = [signal_of(row, kind, market_id) for row in rows if row["id"] is not None]
    return OwnSignalsSection(items=items, total=len(items), changes=newest_changes(items))


def render(context: RenderContext) -> RenderedSection:
    """Return the agent's signals, newest first, the newest with what it changed."""
    answer = context.briefing.own_signals
    if context.briefing.for_agent is None or answer.reason == SWITCHED_OFF:
        return RenderedSection("")
    return rendered_section(
        "What you concluded before",
        answer,
        faded(_texts(answer), WORTH, FADING),
        nouns=("earlier signal", "earlier signals"),
        nothing="earlier signals of yours",
    )


def _texts(answer: OwnSignalsSection) -> Iterator[str]:
    for place, item in enumerate(answer.items):
        changes = " ".join(one.description for one in answer.changes) if place == 0 else ""
        yield signal_text(item) + (f" Changed since the one before: {changes}" if changes else "")


def signal_text(signal: AgentSignal) -> str:
    """Return a signal as a list item."""
    said = [signal.direction.value]
    if signal.fair_probability is not None:
        said.append(f"probability {share(signal.fair_probability)}")
    said.append(f"confidence {share(signal.confidence)}")
    drivers = [quoted(driver, DRIVER_CHARS) for driver in signal.key_drivers[:DRIVERS]]
    if left_out := len(signal.key_drivers) - len(drivers):
        drivers.append(f"{left_out} more")
    on = f"; on {', '.join(drivers)}" if drivers else ""
    at = f"{when(signal.created_at)} " if signal.created_at is not None else ""
    return f"- {at}{', '.join(said)}{on}."


SECTION: Final = SectionSpec(
    name="own_signals",
    model=OwnSignalsSection,
    load=load,
    limits=("signals",),
    for_agent=True,
    needs_agent=True,
    renderers=(render,),
    item_text=signal_text,
)
