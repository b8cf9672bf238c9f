"""What every pipeline is made of: leases and leadership, the runtime slot of a Celery process, the journal's upkeep."""
