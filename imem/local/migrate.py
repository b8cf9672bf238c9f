"""Schema migrations of Postgres and then Neo4j, as the stack and ``imem migrate`` run them."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import imem.journal.postgres.migrations
import imem.kg.migrations
from imem.journal.errors import SettingsError
from imem.journal.settings import Settings
from imem.kg.load_format.ownership import curated_facts
from imem.services.stores import CREATE_CURATOR_ROLE, CREATE_PIPELINE_ROLE, no_pipeline_role
from imem.workers.pipelines import DUE_RULES


def migrate(settings: Settings) -> list[str]:
    """
    Apply what is missing in Postgres, then in Neo4j; return the names of what was applied.

    Raises:
        SettingsError: the URL of Postgres' owner or of the pipelines' role is not known, or two of them name one role.
        SchemaError: a store is newer than this program, or of a version from before the first release, or a file was
            changed after it was applied.
        StoreUnavailable: a server cannot be reached; retryable, and what was applied stays.
    """
    if settings.postgres_admin_url is None or settings.postgres_url is None:
        raise SettingsError(
            "Migrating needs Postgres' owner.", mend="Set IMEM_POSTGRES_ADMIN_URL beside IMEM_POSTGRES_URL."
        )
    if settings.postgres_pipeline_url is None:
        raise no_pipeline_role()
    owner, application, pipelines, curators = (
        unquote(urlsplit(url.get_secret_value()).username or "") if url is not None else None
        for url in (
            settings.postgres_admin_url,
            settings.postgres_url,
            settings.postgres_pipeline_url,
            settings.postgres_curator_url,
        )
    )
    for name, role, could, mend in (
        ("PIPELINE", pipelines, "write their own scores", CREATE_PIPELINE_ROLE),
        ("CURATOR", curators, "settle their own claims", CREATE_CURATOR_ROLE),
    ):
        if application == role != owner:
            raise SettingsError(
                f"IMEM_POSTGRES_{name}_URL and IMEM_POSTGRES_URL name the same role: agents could {could}.", mend=mend
            )
    done = imem.journal.postgres.migrations.migrate(
        settings.postgres_admin_url.get_secret_value(),
        application_role=application if application not in {"", owner} else None,
        curator_role=curators if curators not in {"", owner, pipelines} else None,
        pipeline_role=pipelines if pipelines not in {"", owner} else None,
        due_rules=DUE_RULES,
        curated_facts=curated_facts(),
    )
    if settings.neo4j_url is not None:
        password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
        done += imem.kg.migrations.migrate(settings.neo4j_url, settings.neo4j_user, password)
    return done
