-- Pauses, resume plans, batches, failures and their correlation.
SELECT 1;
