"""Reflection notes for programs without an event loop."""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.trading.reflections import Reflections


class SyncReflections(Twin[Reflections]):
    """The reflection notes that the actor may read; see :class:`~imem.services.trading.reflections.Reflections`."""

    current = blocking(Reflections.current)
    history = blocking(Reflections.history)
    prompt_section = blocking(Reflections.prompt_section)
    promote = blocking(Reflections.promote)
    configure = blocking(Reflections.configure)
