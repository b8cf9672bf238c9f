"""
Metrics of the product's processes, for Prometheus.

Each worker keeps its numbers in files under ``<home>/metrics`` (:mod:`prometheus_client.multiprocess`), so that the
children of the Celery worker count as well and a process that died keeps what it counted; a stack that starts begins
anew. A program that uses :class:`imem.Memory` counts in its own memory, in the library's default registry.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from imem.local.folders import PRIVATE_FOLDER

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = structlog.get_logger()

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Where the library looks for the folder, when it is first imported."""

TRY_EVERY_S: Final = 5.0
"""How often a port that is taken is tried again, in seconds."""


def folder_of(home: Path) -> Path:
    """Return where the processes of the stack on *home* keep their numbers."""
    return home / "metrics"


def clear_metrics(home: Path) -> None:
    """Forget what the processes of an earlier stack counted; a file that cannot be removed stays."""
    for file in folder_of(home).glob("*.db"):
        with suppress(OSError):
            file.unlink()


def count_in_files(home: Path) -> None:
    """
    Have this process, and those it forks, count in files; before :mod:`prometheus_client` is imported.

    A folder that the environment names stays.
    """
    if VARIABLE not in os.environ:
        folder_of(home).mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        os.environ[VARIABLE] = str(folder_of(home))


def _registry(home: Path) -> CollectorRegistry:
    """Return the registry that collects from the files of all processes; empty if there is no folder yet."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - after count_in_files
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - as above

    folder = Path(os.environ.get(VARIABLE) or folder_of(home))
    registry = CollectorRegistry()
    if folder.is_dir():
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]  # the library's own gap
    return registry


def text_of(home: Path) -> bytes:
    """Return what all processes of the stack on *home* counted, in the text format of Prometheus."""
    from prometheus_client import generate_latest  # noqa: PLC0415 - after count_in_files

    return generate_latest(_registry(home))


def serve(home: Path, port: int) -> Callable[[], None] | None:
    """Show them on ``http://127.0.0.1:PORT/metrics``; return what ends that, None where the port is taken."""
    from prometheus_client import start_http_server  # noqa: PLC0415 - after count_in_files

    try:
        server, thread = start_http_server(port, "127.0.0.1", _registry(home))
    except OSError:
        return None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


async def keep_serving(home: Path, port: int, *, every_s: float = TRY_EVERY_S) -> None:
    """
    Show them until cancelled; a port that is taken is logged, and used as soon as it is free.

    A worker whose metrics cannot be read still does its work.
    """
    while (end := await asyncio.to_thread(serve, home, port)) is None:
        log.warning("metrics.port_taken", port=port, next_try_s=every_s)
        await asyncio.sleep(every_s)
    log.info("metrics.served", port=port)
    try:
        await asyncio.Event().wait()
    finally:
        end()
