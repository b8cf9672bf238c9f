"""The product's own processes, started as the supervisor of the local stack starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from imem.journal.settings import Settings
from tests import forking

ENDS_S: Final = 60.0


def variables(settings: Settings) -> dict[str, str]:
    """Return the environment by which a program has *settings*."""
    values = {f"IMEM_{name.upper()}": getattr(settings, name) for name in Settings.model_fields}
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(getattr(value, "value", value))
        for name, value in values.items()
        if value is not None
    }


@asynccontextmanager
async def process(
    role: str, settings: Settings, *, killed: bool = False, path: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """
    Run one role until the block ends, and then stop it; its log, in its home, holds no secret.

    Args:
        killed: the test kills it: it is a program with a process group of its own, and no fork of an imported one.
        path: a folder of further modules.
    """
    command = (sys.executable, "-m", "imem.worker", role) if killed else forking.command("module", "imem.worker", role)
    modules = os.pathsep.join(filter(None, (str(forking.TOP), path)))
    log = settings.home / f"{role}.log"
    with log.open("ab") as out:
        started = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": modules, **variables(settings)},
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        yield started
        if started.returncode is None:
            started.terminate()
            assert await asyncio.wait_for(started.wait(), ENDS_S) == 0, log.read_text()
    finally:
        if started.returncode is None:
            os.killpg(started.pid, signal.SIGKILL)
            await started.wait()
    text = log.read_text()
    for name in Settings.model_fields:
        if isinstance(value := getattr(settings, name), SecretStr):
            text_of = value.get_secret_value()
            secret = urlsplit(text_of).password if "://" in text_of else text_of
            assert secret is None or secret not in text, name
