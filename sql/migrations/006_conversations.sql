-- Conversations and alerts.
SELECT 1;
