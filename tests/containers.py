"""The same servers out of images, for machines where a container engine is at hand."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import psycopg
from pydantic import SecretStr
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from imem.journal.settings import Settings
from imem.local.servers.postgres import APPLICATION, CURATORS, DATABASE, OWNER, PIPELINES, make_role
from imem.local.servers.valkey import ROLES

POSTGRES = "pgvector/pgvector:0.8.1-pg15"
NEO4J = "neo4j:{}-community"
VALKEY = "valkey/valkey:8"


class Containers:
    """Five containers for the length of a ``with`` block."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._password = secrets.token_urlsafe(16)
        self._open = ExitStack()

    def _run(
        self, container: DockerContainer, port: int, message: str, times: int = 1, env: Mapping[str, str] | None = None
    ) -> str:
        for name, value in (env or {}).items():
            container = container.with_env(name, value)
        container = container.with_exposed_ports(port).waiting_for(LogMessageWaitStrategy(message, times=times))
        started = self._open.enter_context(container)
        return f"{started.get_container_host_ip()}:{started.get_exposed_port(port)}"

    def _postgres(self) -> str:
        env = {"POSTGRES_USER": OWNER, "POSTGRES_DB": DATABASE, "POSTGRES_PASSWORD": self._password}
        address = self._run(DockerContainer(POSTGRES), 5432, "ready to accept connections", 2, env)
        with psycopg.connect(
            f"postgresql://{OWNER}:{self._password}@{address}/{DATABASE}", autocommit=True
        ) as connection:
            for role in (APPLICATION, CURATORS, PIPELINES):
                make_role(connection, role, self._password)
        return address

    def _valkey(self) -> SecretStr:
        container = DockerContainer(VALKEY).with_command(["valkey-server", "--requirepass", self._password])
        return SecretStr(f"redis://:{self._password}@{self._run(container, 6379, 'Ready to accept')}/0")

    def __enter__(self) -> Self:
        password, postgres = self._password, self._postgres()
        image = NEO4J.format(self.settings.neo4j_version)
        graph = self._run(DockerContainer(image), 7687, "Started.", env={"NEO4J_AUTH": f"neo4j/{password}"})
        self.settings = self.settings.model_copy(
            update={
                "postgres_url": SecretStr(f"postgresql://{APPLICATION}:{password}@{postgres}/{DATABASE}"),
                "postgres_curator_url": SecretStr(f"postgresql://{CURATORS}:{password}@{postgres}/{DATABASE}"),
                "postgres_pipeline_url": SecretStr(f"postgresql://{PIPELINES}:{password}@{postgres}/{DATABASE}"),
                "postgres_admin_url": SecretStr(f"postgresql://{OWNER}:{password}@{postgres}/{DATABASE}"),
                "neo4j_url": f"bolt://{graph}",
                "neo4j_password": SecretStr(password),
                **{f"valkey_{role.name}_url": self._valkey() for role in ROLES},
            }
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
