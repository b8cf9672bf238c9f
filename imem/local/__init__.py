"""
The local stack: Neo4j, Postgres and three Valkeys under one supervisor, with nothing to install beforehand.

Every server comes out of a wheel or, for Neo4j, out of jars fetched once by a hashed lock; each can be replaced by
the URL of a running one. :class:`imem.local.supervisor.LocalStack` is what tests and commands start.
"""
