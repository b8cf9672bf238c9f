"""The servers of the local stack: Neo4j, Postgres, Valkey."""
