"""A laboratory of the test's own."""

from __future__ import annotations

from typing import Any

import pytest_asyncio

from tests.credibility.conftest import World, world
from tests.patterns.parts import Lab, curators_of

__all__ = ["world"]


@pytest_asyncio.fixture
async def lab(world: World, stack: Any) -> Lab:
    made = Lab(world)
    made.curators = curators_of(stack.settings, world)
    return made
