"""Postgres: connections that keep deadlines, the pool, migrations, and named statements in a transaction."""
