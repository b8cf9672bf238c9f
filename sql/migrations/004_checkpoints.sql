-- Leases, execution checkpoints, deliverables, workflow checkpoints: schema workflow.
CREATE SCHEMA workflow;
