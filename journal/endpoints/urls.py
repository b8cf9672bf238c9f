"""
Checks of server URLs, with errors that show no part of them.

A URL may hold a password, and a malformed one holds it where no parser looks for a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

POSTGRES_SCHEMES: Final = frozenset({"postgresql", "postgres"})
NEO4J_SCHEMES: Final = frozenset({"bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"})
VALKEY_SCHEMES: Final = frozenset({"redis", "rediss", "unix"})
HTTP_SCHEMES: Final = frozenset({"http", "https"})
OBJECT_SCHEMES: Final = frozenset({"s3"})

_SAME: Final[Mapping[str, str]] = {"valkey": "redis", "valkeys": "rediss"}
"""Other names of schemes → the scheme that the client knows."""

_ENCODE: Final = "special characters in a user or password must be written as %XX, such as %2F for a slash"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LARGEST_PORT: Final = 65_535


def postgres(url: str) -> str:
    """
    Check and return the URL of a Postgres; libpq parses several hosts, and sockets named by ``?host=``.

    Raises:
        ValueError: it cannot be used; the text shows nothing of it.
    """
    _scheme(url, POSTGRES_SCHEMES)
    from psycopg import ProgrammingError  # noqa: PLC0415 - slow to import, and most commands name no server
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above

    try:
        found = conninfo_to_dict(url)
    except ProgrammingError:
        raise ValueError(f"is no URL that Postgres' client understands; {_ENCODE}") from None
    for port in str(found.get("port") or "").split(","):
        _port(port)
    return url


def valkey(url: str) -> str:
    """
    Check the URL of a Valkey and return it with a scheme that its client knows.

    Raises:
        ValueError: it cannot be used; the text shows nothing of it.
    """
    scheme, _, rest = url.partition("://")
    url = f"{_SAME.get(scheme.lower(), scheme)}://{rest}" if rest else url
    if _scheme(url, VALKEY_SCHEMES) == "unix":
        if not urlsplit(url).path.strip("/"):
            raise ValueError("names no socket")
    else:
        _host_and_port(url)
    return url


def broker(url: str) -> str:
    """
    Check and return the URL of Celery's Valkey; Celery supports no sockets.

    Raises:
        ValueError: as of :func:`valkey`.
    """
    _scheme(url, (VALKEY_SCHEMES | _SAME.keys()) - {"unix"})
    return valkey(url)


def neo4j(url: str) -> str:
    """
    Check and return the URL of a Neo4j.

    Raises:
        ValueError: it cannot be used, or holds a user or a password; the text shows nothing of it.
    """
    _scheme(url, NEO4J_SCHEMES)
    if "@" in url:
        raise ValueError("may hold no user and no password; IMEM_NEO4J_USER and IMEM_NEO4J_PASSWORD do")
    _host_and_port(url)
    return url


def maven(place: str) -> str:
    """
    Check and return a folder or the URL of a mirror.

    Raises:
        ValueError: it is a URL that cannot be used; the text shows nothing of it.
    """
    return http(place) if "://" in place else place


def http(url: str) -> str:
    """
    Check and return the URL of an HTTP server.

    Raises:
        ValueError: it cannot be used; the text shows nothing of it.
    """
    _scheme(url, HTTP_SCHEMES)
    _host_and_port(url)
    return url


def objects(url: str) -> str:
    """
    Check and return an absolute folder, or the URL of a store of objects, without credentials.

    Raises:
        ValueError: it cannot be used; the text shows nothing of it.
    """
    if "://" not in url:
        if not url.startswith("/"):
            raise ValueError("is no absolute folder and no URL")
        return url
    _scheme(url, OBJECT_SCHEMES)
    if "@" in url:
        raise ValueError("may hold no user and no password; the service's client reads them from its own variables")
    if not urlsplit(url).netloc:
        raise ValueError("names no bucket")
    if not urlsplit(url).path.strip("/"):
        raise ValueError("names no prefix in the bucket, which may hold the objects of others")
    return url


CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    "postgres_url": postgres,
    "postgres_curator_url": postgres,
    "postgres_pipeline_url": postgres,
    "postgres_admin_url": postgres,
    "neo4j_url": neo4j,
    "valkey_working_url": valkey,
    "valkey_durable_url": broker,
    "valkey_cache_url": valkey,
    "maven_repository": maven,
    "objects_url": objects,
    "summary_url": http,
    "extraction_url": http,
    "embedding_url": http,
    "webhook_url": http,
    "regime_url": http,
    "price_url": http,
    "postmortem_url": http,
}
"""Setting of a URL → its check."""


def without_secrets(url: str) -> str:
    """Return the host and port, or the socket, of a checked URL, and nothing else of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    return parts.netloc.rpartition("@")[2] or parts.path or "its default address"


def _scheme(url: str, known: frozenset[str]) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in known:
        raise ValueError(f"must begin with one of {', '.join(f'{one}://' for one in sorted(known))}")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    # A raw slash in a password ends the authority early: the rest would be shown as a path or taken for a host.
    if "@" in rest[len(authority) :] or authority.count("@") > 1 or _BAD_ESCAPE.search(rest):
        raise ValueError(f"cannot be taken apart; {_ENCODE}")
    if any(not one.isprintable() or one.isspace() for one in url):
        raise ValueError(f"holds a space or a character that cannot be printed; {_ENCODE}")
    return scheme.lower()


def _host_and_port(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, text = parts.hostname, parts.netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    except ValueError:
        raise ValueError(f"cannot be taken apart; {_ENCODE}") from None
    if not host:
        raise ValueError("names no host")
    _port(text)


def _port(text: str) -> None:
    if text and not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= _LARGEST_PORT):
        raise ValueError(f"has a port that is no number from 1 to {_LARGEST_PORT:,}; {_ENCODE}")
