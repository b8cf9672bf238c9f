"""The servers start together, answer with the settings handed out, and end with whoever started them."""

from __future__ import annotations

import neo4j
import psycopg
import redis


def test_every_server_answers_at_the_address_handed_out(stack):
    """The settings of the fixture are all that a client needs."""
    settings = stack.settings

    with psycopg.connect(settings.postgres_url.get_secret_value()) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("imem_app",)
    with psycopg.connect(settings.postgres_admin_url.get_secret_value()) as connection:
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("imem", "imem")
    auth = (settings.neo4j_user, settings.neo4j_password.get_secret_value())
    with neo4j.GraphDatabase.driver(settings.neo4j_url, auth=auth) as driver:
        assert driver.execute_query("RETURN 1 AS one").records[0]["one"] == 1
    for name in ("working", "durable", "cache"):
        with redis.Redis.from_url(getattr(settings, f"valkey_{name}_url").get_secret_value()) as client:
            assert client.ping()
