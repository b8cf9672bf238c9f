"""
The settings: one frozen object, built at the entry point from the environment (prefix ``IMEM_``).

A variable with the prefix that names no setting is refused by name, so that a misspelt setting is not silently the
default. Secrets are masked in ``repr``, logs and errors, and may be in files: ``IMEM_X_FILE`` names the file that holds
the secret ``IMEM_X``.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from imem.journal.endpoints import urls
from imem.journal.errors import SettingsError

PREFIX = "IMEM_"

FILE_SUFFIX = "_FILE"
"""Suffix of the variable that names a secret's file, as in server images."""

_LARGEST_SECRET_BYTES = 64 * 1024

WEBHOOK_SECRET_PREFIX = "whsec_"  # noqa: S105 - how secrets begin, and none
"""Prefix of a secret whose key is Base64, as in the Standard Webhooks specification."""

_SECRET_BYTES = 16
"""Least length of a secret that signs."""

TEST_VARIABLES = frozenset(
    {
        "IMEM_TEST_STACK",
        "IMEM_TEST_NEO4J",
        "IMEM_TEST_VALKEY",
        "IMEM_CHAOS",
        "IMEM_BENCH_SCALE",
        "IMEM_BENCH_SCORES",
        "IMEM_LOCOMO",
    }
)
"""Variables of the test suite, which share the prefix and are no settings."""


_SECONDS = r"[1-9][0-9]{0,6}"
_BY_PRIORITY = rf"^{_SECONDS}(,(critical_path|valuation|supporting)={_SECONDS})*$"


class Role(StrEnum):
    """Roles of actors: the columns of the authorization table."""

    AGENT = "agent"
    KNOWLEDGE_BASE_AGENT = "knowledge_base_agent"
    DEBATE_FACILITATOR = "debate_facilitator"
    LEARNING_ENGINE = "learning_engine"
    HUMAN_ADMIN = "human_admin"
    REVIEWER = "reviewer"
    READER = "reader"


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "imem"


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "imem"


def _secret_in(variable: str, path: Path) -> str:
    """
    Return the content of the file that *variable* names, without the newline at its end.

    Raises:
        SettingsError: it cannot be read, is empty or too long; its content is not shown.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_SECRET_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"{variable} names a file that cannot be read ({type(error).__name__}).",
            mend="Name a text file that this user may read.",
        ) from None
    if not text or len(data) > _LARGEST_SECRET_BYTES:
        raise SettingsError(f"{variable} names a file that is {'too long' if text else 'empty'}.")
    return text


class Settings(BaseSettings):
    """
    Every setting, with its default.

    A server without a URL is the local stack's, whose addresses are in ``<home>/stack.json``.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    home: Path = Field(default_factory=_data_home, description="Folder of the local stack: data, logs, state.")
    cache_dir: Path = Field(default_factory=_cache_home, description="Folder of fetched jars; may be shared.")

    postgres_url: SecretStr | None = Field(None, description="postgresql:// URL of the application's role.")
    postgres_curator_url: SecretStr | None = Field(
        None,
        description="URL of the curators' role, used by whoever imports, or states facts as a person or for others.",
    )
    postgres_pipeline_url: SecretStr | None = Field(
        None, description="URL of the pipelines' role, used by the workers and by `imem rebuild` only."
    )
    postgres_admin_url: SecretStr | None = Field(None, description="URL of the owner, for migrations and `imem erase`.")
    neo4j_url: str | None = Field(None, description="bolt:// or neo4j:// URL, without credentials.")
    neo4j_user: str = Field("neo4j", description="User of the graph.")
    neo4j_password: SecretStr | None = Field(None, description="Password of that user.")
    valkey_working_url: SecretStr | None = Field(None, description="redis:// URL of the agents' working memory.")
    valkey_durable_url: SecretStr | None = Field(None, description="redis:// URL of streams and the Celery broker.")
    valkey_cache_url: SecretStr | None = Field(None, description="redis:// URL of the shared cache.")
    objects_url: str | None = Field(
        None,
        description="Where archives of evidence are kept: an absolute folder, or s3://BUCKET/PREFIX; by default the "
        "folder `objects` below IMEM_HOME.",
    )

    actor: str = Field(
        "local", description="The caller: an agent, a person or a service.", pattern=r"^[A-Za-z0-9_.:-]{1,90}$"
    )
    role: Role = Field(
        Role.HUMAN_ADMIN,
        description="The actor's role; never taken from a call. Without it `imem mcp` is an agent, and without an actor"
        " its name is mcp.",
    )
    may_import: bool = Field(default=True, description="Whether the actor may state a known_at earlier than now.")

    deadline_ms: int = Field(
        500,
        ge=10,
        le=30_000,
        description="Default budget of one read, in milliseconds; 10,000 in commands, unless it is set.",
    )
    visible_wait_ms: int = Field(2000, ge=0, le=2000, description="Longest wait of a write for its visibility.")
    postgres_pool_size: int = Field(8, ge=1, le=64, description="Most connections to Postgres of one process.")
    neo4j_pool_size: int = Field(12, ge=1, le=64, description="Most connections to the graph of one process.")
    graph_concurrency: int = Field(10, ge=1, le=64, description="Concurrent graph queries of one process.")
    local_cache_mb: int = Field(64, ge=1, le=4096, description="Most that one process keeps of answers, in megabytes.")
    slow_query_ms: int = Field(100, ge=1, description="From when on a query is logged as slow, in milliseconds.")
    apply_batch: int = Field(2000, ge=1, le=5000, description="Most events applied to the graph in one transaction.")
    sync_priority: bool = Field(
        default=True,
        description="Whether tiers count. Without them everything reaches the graph in the order of its recording, "
        "once in five minutes, and nobody waits to see it; nothing is lost.",
    )
    credibility_halflife_years: float = Field(2.0, gt=0, description="Age at which an observation weighs half.")
    panel_seasons: Literal["gap", "year"] = Field(
        "gap",
        description="The end of a season; a panel weighs its agents by earlier seasons: 60 days without an answer of "
        "the agent, or the calendar year.",
    )
    regime_file: Path | None = Field(
        None, description="CSV or JSON file of the indicators from which the regime of the market is detected."
    )
    regime_url: SecretStr | None = Field(None, description="URL that returns them as JSON, if no file is named.")
    regime_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    price_file: Path | None = Field(
        None, description="CSV or JSON file of daily closes, with which forecasts of returns are compared."
    )
    price_url: SecretStr | None = Field(None, description="URL that returns them as JSON, if no file is named.")
    price_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    auto_resolution_basis: Literal["posterior", "as_designed"] = Field(
        "posterior", description="The score that decides between two agents: the posterior, or the product as designed."
    )
    postmortem_priority: Literal["deviation", "weighted"] = Field(
        "deviation", description="The order of the queue of post-mortems: by the deviation, or the impact."
    )
    debate_acknowledge_s: str = Field(
        "900",
        pattern=_BY_PRIORITY,
        description="Seconds in which a challenge is to be acknowledged; then level 2 follows; it and the next 3 "
        "may differ by priority: `900,critical_path=300`.",
    )
    debate_evidence_s: str = Field(
        "3600", pattern=_BY_PRIORITY, description="Seconds from the challenge until level 1 of a debate ends."
    )
    debate_judge_s: str = Field(
        "3600",
        pattern=_BY_PRIORITY,
        description="Seconds in which the judge of a debate decides; then level 3 follows.",
    )
    debate_answer_s: str = Field(
        "21600",
        pattern=_BY_PRIORITY,
        description="Seconds in which a reviewer decides a debate; then the cautious position counts provisionally.",
    )
    precedent_text_weight: float = Field(
        0.5, ge=0, description="Precedents of a debate: the weight of the likeness of texts."
    )
    precedent_subject_weight: float = Field(
        0.25, ge=0, description="Precedents of a debate: the weight of the same subject."
    )
    precedent_agents_weight: float = Field(
        0.15, ge=0, description="Precedents of a debate: the weight of the same two agents."
    )
    precedent_domain_weight: float = Field(
        0.1, ge=0, description="Precedents of a debate: the weight of the same domain."
    )
    contradiction_guard: bool = Field(
        default=True,
        description="Whether contradicting values that look mistyped go to a person, whatever their sources.",
    )
    signals_enabled: bool = Field(
        default=True, description="Whether agents are shown their earlier signals; recording them goes on all the same."
    )
    signals_per_agent: int = Field(3, ge=1, le=5, description="Most signals of one agent that it is shown.")
    signals_timeout_ms: int = Field(
        500, ge=10, le=5_000, description="Default budget of reading signals, in milliseconds; a caller's may be less."
    )
    signals_retries: int = Field(3, ge=0, le=10, description="Most retries of a read of signals, within its budget.")
    signals_rollout_percent: int = Field(
        100, ge=0, le=100, description="Share of the subjects, by a hash of their keys, about which signals are shown."
    )
    signals_retention_days: int = Field(
        180, ge=1, le=36_500, description="Age at which signals are no longer shown; the journal keeps them."
    )
    agents: Path | None = Field(None, description="JSON file that defines agents of your own, beside the shipped ones.")
    agent_programs: str | None = Field(
        None,
        description="Module that registers agents' programs (`imem.checkpoints.orchestration.programs.program`).",
    )
    agent_processes: int = Field(4, ge=1, le=64, description="Agents that one machine runs at a time.")
    archive_checkpoints: bool = Field(
        default=False, description="Whether a copy of every checkpoint that a clean-up removes is kept in the archive."
    )
    metrics_file: Path | None = Field(
        None,
        description="TOML file of metrics of your own, tried before ours: so it sets other tolerances and units, too.",
    )
    metrics: str | None = Field(
        None, description="Python module that registers metrics of your own (`imem.kg.kinds.metrics.register`)."
    )

    summary_url: SecretStr | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint that summarises conversations; none: no summaries.",
    )
    summary_model: str | None = Field(None, description="The model to ask there.")
    summary_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    reflection_url: SecretStr | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint whose models reflect on closed trades, where a skill's"
        " configuration names one; none needs no model.",
    )
    reflection_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    pattern_gate_mode: Literal["both", "as_designed"] = Field(
        "both", description="The gates that a pattern must pass: the sound tests as well, or those of the design alone."
    )
    shadow_runs_enabled: bool = Field(
        default=True, description="Whether candidates are tested blind: without, they wait after their hold-out."
    )
    shadow_runs_per_month: int = Field(
        5_000, ge=0, le=10_000_000, description="Shadow analyses of 30 days at most, of all patterns."
    )
    shadow_runner: str | None = Field(
        None,
        description="`module:name` of what makes forecasts with a pattern (`imem.patterns.shadows.ShadowRunner`); none"
        " shifts the recorded forecasts.",
    )
    postmortem_url: SecretStr | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint whose model remarks on post-mortems; none: no remarks.",
    )
    postmortem_model: str | None = Field(None, description="The model to ask there.")
    postmortem_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    extraction_url: SecretStr | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint that extracts facts, where a caller asks for it.",
    )
    extraction_model: str | None = Field(None, description="The model to ask there.")
    extraction_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    embedding_local: Literal["e5-small-v2", "universal-3"] = Field(
        "e5-small-v2",
        description="Sentence encoder that makes vectors: e5-small-v2 (English; 25 MB, fetched once), or universal-3"
        " (sixteen languages; comes with the program, and finds less).",
    )
    embedding_url: SecretStr | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint that makes vectors instead.",
    )
    embedding_model: str | None = Field(None, description="The model to ask there.", min_length=1, max_length=150)
    embedding_key: SecretStr | None = Field(None, description="The key to ask with, if it takes one.")
    embedding_dimension: int | None = Field(
        None, ge=1, le=2000, description="How many numbers a vector of that model has."
    )
    memory_duplicate_similarity: float = Field(
        0.95, gt=0, le=1, description="Above this similarity, a memory with the same figures and directions is updated."
    )
    memory_namespace_limit: int = Field(
        200_000,
        ge=1,
        le=10_000_000,
        description="Most memories of a namespace; a new one beyond is refused. Items of LangGraph's store are not.",
    )
    memory_merge_similarity: float = Field(
        0.90, gt=0, le=1, description="Memories of a namespace above this similarity to one another become one, daily."
    )
    memory_unused_days: float = Field(
        30, ge=1, le=36_500, description="Days without an access after which the importance of a memory decays."
    )
    memory_daily_decay: float = Field(
        0.99, gt=0, le=1, description="The share that is left a day later; 1 keeps all of it."
    )
    memory_least_importance: float = Field(
        0.1, ge=0, le=1, description="Importance at which decay ends; a memory below may be deleted; 0 keeps all."
    )
    memory_delete_days: float = Field(
        90,
        ge=1,
        le=36_500,
        description="Age beyond which it is deleted, in days, if it is below that importance and rarely found.",
    )
    memory_delete_accesses: int = Field(
        3, ge=0, le=1_000_000, description="How often it must have been found not to be deleted."
    )
    memory_own_similarity: float = Field(
        0.30, ge=0, le=1, description="Least similarity of an agent's own memories that are relevant to a query."
    )
    memory_global_similarity: float = Field(0.35, ge=0, le=1, description="The same of global ones.")
    memory_lesson_loss_pct: float = Field(
        5.0, ge=0, description="Loss of a decision beyond which a lesson is remembered, in percent."
    )
    situations_enabled: bool = Field(
        default=False,
        description="Whether contexts of trading decisions get vectors, by which similar situations are found.",
    )
    webhook_url: SecretStr | None = Field(None, description="Where alerts are sent, beside the log.")
    webhook_secret: SecretStr | None = Field(
        None, description="The key that signs them: whsec_ and Base64, or any text of 16 characters or more."
    )
    prometheus_port: int | None = Field(
        None, ge=1, le=65535, description="Port of 127.0.0.1 on which the applier shows metrics to Prometheus."
    )
    otlp_endpoint: str | None = Field(
        None,
        description="Base URL of an OpenTelemetry collector that takes traces over HTTP, such as http://HOST:4318.",
    )

    neo4j_version: str = Field("5.26.30", description="Version of the local Neo4j; one with a jar lock.")
    neo4j_home: Path | None = Field(None, description="An existing NEO4J_HOME to run instead of fetched jars.")
    neo4j_heap_mb: int = Field(512, ge=256, description="Heap of the local Neo4j, in megabytes; all of it is taken.")
    neo4j_pagecache_mb: int = Field(64, ge=16, description="Page cache of the local Neo4j, in megabytes.")
    maven_repository: SecretStr | None = Field(None, description="A mirror to fetch jars from: a URL or a folder.")
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Least level that is logged.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from :meth:`read` alone, so that a test's environment is the one it passes."""
        return (init_settings,)

    @field_validator("home", "cache_dir", "neo4j_home", "agents", "regime_file", "price_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None

    @field_validator(*urls.CHECKS)
    @classmethod
    def _address(cls, value: SecretStr | str | None, info: ValidationInfo) -> SecretStr | str | None:
        """Refuse an address that nothing can use here, where its text is hidden; a driver's own error would show it."""
        check = urls.CHECKS[str(info.field_name)]
        if isinstance(value, SecretStr):
            return SecretStr(check(value.get_secret_value()))
        return check(value) if value is not None else None

    @field_validator("webhook_secret")
    @classmethod
    def _strong(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse a secret that could be guessed, or that receivers would decode to something else."""
        if value is None:
            return None
        text = value.get_secret_value()
        key = text.encode()
        if text.startswith(WEBHOOK_SECRET_PREFIX):
            try:
                key = base64.b64decode(text.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
            except binascii.Error:
                raise ValueError(f"is no Base64 after {WEBHOOK_SECRET_PREFIX}") from None
        if len(key) < _SECRET_BYTES:
            raise ValueError(f"is shorter than {_SECRET_BYTES} characters, or bytes after {WEBHOOK_SECRET_PREFIX}")
        return value

    @classmethod
    def secrets(cls) -> frozenset[str]:
        """Return the names of the settings whose values are secret."""
        return frozenset(
            name
            for name, field in cls.model_fields.items()
            if field.annotation is SecretStr or SecretStr in get_args(field.annotation)
        )

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Return every variable that is read, those that name files of secrets among them."""
        return frozenset(
            (
                *(PREFIX + name.upper() for name in cls.model_fields),
                *(PREFIX + name.upper() + FILE_SUFFIX for name in cls.secrets()),
            )
        )

    @classmethod
    def _from_files(cls, env: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
        """Return setting → secret for those of *names* whose variable in *env* names a file."""
        found = {}
        for name in sorted(names):
            variable = PREFIX + name.upper()
            if not env.get(variable + FILE_SUFFIX):
                continue
            if env.get(variable):
                raise SettingsError(f"{variable} and {variable + FILE_SUFFIX} are both set.", mend="Unset one of them.")
            found[name] = _secret_in(variable + FILE_SUFFIX, Path(env[variable + FILE_SUFFIX]))
        return found

    @classmethod
    def read(cls, env: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """
        Build the settings from *env* (the process's by default); *overrides* win.

        Raises:
            SettingsError: a variable is unknown or wrong, or the file it names; the message hides every value.
        """
        env = os.environ if env is None else env
        known = {*cls.variables(), *TEST_VARIABLES}
        unknown = sorted(name for name in env if name.startswith(PREFIX) and name.upper() not in known)
        if unknown:
            raise SettingsError(
                f"Unknown setting {', '.join(unknown)}.", mend="`imem doctor --settings` lists the known ones."
            )
        values = {
            name: env[PREFIX + name.upper()]
            for name in cls.model_fields
            if env.get(PREFIX + name.upper()) and name not in overrides
        }
        values |= cls._from_files(env, cls.secrets() - overrides.keys())
        try:
            return cls.model_validate({**values, **overrides})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = PREFIX + str(first["loc"][0]).upper() if first["loc"] else PREFIX
            raise SettingsError(
                f"{name} {first['ctx']['error']}." if "error" in first.get("ctx", {}) else f"{name}: {first['msg']}."
            ) from None
