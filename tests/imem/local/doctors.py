"""What tests of the doctor share."""

from __future__ import annotations

from collections.abc import Mapping

import neo4j

from imem.journal.clock import Clock
from imem.local.doctor import checks
from imem.local.doctor.finding import CheckLevel
from tests.servers import EMPTYING

Trouble = tuple[str, str, str]
"""What it is about, what was found, how to mend it."""

POSTGRES = ("postgres_url", "postgres_curator_url", "postgres_pipeline_url", "postgres_admin_url")
HIDDEN = {*POSTGRES, "valkey_working_url", "valkey_durable_url", "valkey_cache_url"}


def emptied(env: Mapping[str, str]) -> None:
    """Leave nothing in the graph but what migrations made."""
    with graph(env) as driver, driver.session(database="neo4j") as session:
        for text in EMPTYING:
            session.run(text).consume()


def troubles(env: Mapping[str, str], clock: Clock | None = None) -> list[Trouble]:
    """Return what is not fine, as (about, text, mend)."""
    found = [one for one in checks.examine(env, clock) if one.level is not CheckLevel.FINE]
    assert all(one.mend for one in found), "every finding names its mend"
    return [(one.about, one.text, one.mend) for one in found]


def only(found: list[Trouble], about: str) -> tuple[str, str]:
    """Return text and mend of the single finding about *about*."""
    matching = [(text, mend) for subject, text, mend in found if subject == about]
    assert len(matching) == 1, found
    return matching[0]


def graph(env: Mapping[str, str]) -> neo4j.Driver:
    """Return a driver."""
    return neo4j.GraphDatabase.driver(env["IMEM_NEO4J_URL"], auth=("neo4j", env["IMEM_NEO4J_PASSWORD"]))


def data_troubles(env: dict[str, str]) -> list[tuple[str, str]]:
    """Return what is found in what the stores hold."""
    looked_at = {"stubs", "properties", "pipelines", "scores", "nodes", "checkpoints"}
    return [(about, text) for about, text, _ in troubles(env) if about in looked_at]
