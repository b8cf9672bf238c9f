"""The one place from which the stack and ``imem migrate`` bring both stores to the newest schema."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import imem.journal.postgres.migrations
import imem.kg.migrations
from imem.journal.errors import SettingsError
from imem.journal.settings import Settings


def migrate(settings: Settings) -> list[str]:
    """
    Apply what is missing in Postgres, then in Neo4j; return the names of the files applied.

    Raises:
        SettingsError: the owner's URL of Postgres is not known.
        SchemaError: a file was changed after it was applied, or a store is newer than this program.
        StoreUnavailable: a server cannot be reached; retryable, and what was applied stays.
    """
    if settings.postgres_admin_url is None or settings.postgres_url is None:
        raise SettingsError(
            "Migrating needs Postgres' owner.", mend="Set IMEM_POSTGRES_ADMIN_URL beside IMEM_POSTGRES_URL."
        )
    role = unquote(urlsplit(settings.postgres_url.get_secret_value()).username or "")
    owner = unquote(urlsplit(settings.postgres_admin_url.get_secret_value()).username or "")
    done = imem.journal.postgres.migrations.migrate(
        settings.postgres_admin_url.get_secret_value(), application_role=role if role and role != owner else None
    )
    if settings.neo4j_url is not None:
        password = settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else ""
        done += imem.kg.migrations.migrate(settings.neo4j_url, settings.neo4j_user, password)
    return done
