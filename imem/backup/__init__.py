"""
Backup of an installation: the database of the journal and the objects; the graph is replayed.

A backup is a place of its own: ``journal.dump`` (pg_dump's custom format), the objects below ``files/``, and
``manifest.json``, which is stored last. What has no manifest is no backup.
"""
