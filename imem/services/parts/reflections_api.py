"""Reflection notes: a part of ``Memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.services.trading.reflections import Reflections


class ReflectionsApi(ActorApi):
    """Shows what closed trades say; see :class:`imem.memory.Memory`."""

    @property
    def reflections(self) -> Reflections:
        """Notes about closed trades, as in ``await memory.reflections.current("desk-1")``."""
        from imem.services.trading.reflections import Reflections  # noqa: PLC0415 - few programs trade

        return Reflections(self._stores, self._actor)
