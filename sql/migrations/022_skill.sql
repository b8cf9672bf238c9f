-- The skill of stated probabilities is decayed with age, by observation, and has an interval: what both follow from.
--
-- common_sum, reference_sum and base_sum were sums whatever their age; they decay like weight from here on.

ALTER TABLE track_step
    ADD COLUMN common_squares double precision NOT NULL DEFAULT 0,
    ADD COLUMN common_cross double precision NOT NULL DEFAULT 0,
    ADD COLUMN reference_squares double precision NOT NULL DEFAULT 0,
    ADD COLUMN own_sum double precision NOT NULL DEFAULT 0,
    ADD COLUMN own_squares double precision NOT NULL DEFAULT 0,
    ADD COLUMN own_cross double precision NOT NULL DEFAULT 0,
    ADD COLUMN base_squares double precision NOT NULL DEFAULT 0;
COMMENT ON COLUMN track_step.probabilities IS 'Scored claims that gave a probability; brier_sum and log_sum are over them, whatever their age.';
COMMENT ON COLUMN track_step.common IS 'Those of them that baselines answered too; common_sum is the agent''s own decayed Brier sum there, reference_sum the baselines''.';
COMMENT ON COLUMN track_step.common_cross IS 'Over observations, weight squared times the product of the two sums of each; common_squares and reference_squares likewise.';
COMMENT ON COLUMN track_step.base_sum IS 'The decayed Brier sum of the agent''s own earlier base rate, own_sum its own on the same claims; squares and cross as for the baselines.';

-- Steps of before lack them: they are made anew.
INSERT INTO track_due (agent, domain, since) SELECT DISTINCT agent, domain, imem_now() FROM track_step
ON CONFLICT (agent, domain) DO UPDATE SET version = DEFAULT, known_from = DEFAULT, recorded_from = DEFAULT;
