"""Shared machinery of pipelines: leases, leadership, the runtime slot of a Celery process, and scheduling."""
