"""
The facet ``memory.reflections``, without ``await``.

Written by `make reference` from the operations of ``Memory``; changed there alone.
"""

from __future__ import annotations

from imem.blocking.twin import Twin, blocking
from imem.services.trading.reflections import Reflections


class SyncReflections(Twin[Reflections]):
    """The facet ``memory.reflections``; see :class:`~imem.services.trading.reflections.Reflections`."""

    current = blocking(Reflections.current)
    history = blocking(Reflections.history)
    prompt_section = blocking(Reflections.prompt_section)
    promote = blocking(Reflections.promote)
    configure = blocking(Reflections.configure)
