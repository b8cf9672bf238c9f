"""A Valkey of a test's own, which it may fill, stop, kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from imem.local.process import Command
from imem.local.servers import valkey
from imem.local.servers.server import free_port

TIMEOUT_S = 60.0


class OwnServer:
    """
    One server, like the *working* one: it appends every write to a file and evicts nothing.

    Attributes:
        folder: its configuration and data.
        port: the same after each start.
        settings: lines of its configuration besides.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it on the data that it has, and wait until it answers."""
        lines = (
            "bind 127.0.0.1", f"port {self.port}", f'dir "{self.folder}"', 'save ""', "appendonly yes",
            "appendfsync everysec", "maxmemory-policy noeviction", "daemonize no", f'logfile "{self.folder}/log"',
            *self.settings,
        )  # fmt: skip
        (self.folder / "valkey.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = Command((str(valkey.program()), str(self.folder / "valkey.conf")), self.folder)
        self._process = subprocess.Popen(command.wrapped(), cwd=self.folder, process_group=0)
        end = time.monotonic() + TIMEOUT_S
        with self.bare() as bare:
            while True:
                try:
                    bare.ping()
                except (redis.ConnectionError, redis.TimeoutError):
                    assert self._process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")[-2000:]
                    assert time.monotonic() < end, "the server does not answer"
                    time.sleep(0.005)  # Polling: a server that starts tells nobody.
                else:
                    return

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def flush(self) -> None:
        """Wait until the file holds everything that was acknowledged: within the second, it need not."""
        with self.bare() as bare:
            # Such a write is answered when the file holds it, and so all before it.
            bare.config_set("appendfsync", "always")
            bare.set("flush", "")
            bare.config_set("appendfsync", "everysec")

    def bare(self) -> Any:
        """Return a client of the driver's own."""
        return redis.Redis(port=self.port, socket_timeout=TIMEOUT_S, protocol=2)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for as long as the block lasts; it takes in what is sent, and does it afterwards."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill it, and start it again when the block ends."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    def kill(self) -> None:
        """Kill it as a power failure would, but for what the kernel still writes."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Kill it if it runs, stopped or not."""
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextmanager
def own_server(folder: Path, *settings: str) -> Iterator[OwnServer]:
    """Lend a running server."""
    server = OwnServer(folder, *settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
