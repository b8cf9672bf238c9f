-- Trades: one row for each round trip of a deployment, with every version that it had. Schema recall.
--
-- A deployment is a strategy that runs: what records its first tick says who owns it. Ticks come in order, each once; all that one
-- changes is one transaction. The rows are computed by imem.postmortem.trades.materialiser, whose changes stand beside the tick.
--
-- Bounds: of each tick one row; of each trade a version for each tick that changed it, a new extreme included.

CREATE TABLE recall.trade_deployment (
    deployment_id text COLLATE "C" PRIMARY KEY CHECK (length(deployment_id) BETWEEN 1 AND 200),
    owner         text COLLATE "C" NOT NULL CHECK (length(owner) BETWEEN 1 AND 200)
);
COMMENT ON TABLE recall.trade_deployment IS 'Who owns a deployment. Its lock orders those who record ticks of it.';

CREATE TABLE recall.trade_tick (
    deployment_id text COLLATE "C" NOT NULL REFERENCES recall.trade_deployment,
    tick_at       timestamptz NOT NULL,
    recorded_at   timestamptz NOT NULL,
    changes       jsonb NOT NULL CHECK (jsonb_typeof(changes) = 'array'),
    PRIMARY KEY (deployment_id, tick_at)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recall.trade_tick
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
COMMENT ON TABLE recall.trade_tick IS 'The ticks that are in the ledger: the key makes recording one again do nothing.';
COMMENT ON COLUMN recall.trade_tick.changes IS 'What was bought, sold, paid and realized at the tick; prices and amounts are text, exact.';

CREATE TABLE recall.decision_snapshots (
    id              uuid PRIMARY KEY,
    deployment_id   text COLLATE "C" NOT NULL,
    tick_at         timestamptz NOT NULL,
    context         jsonb NOT NULL CHECK (jsonb_typeof(context) = 'object'),
    proposed_action jsonb NOT NULL CHECK (jsonb_typeof(proposed_action) = 'object'),
    verdict         text NOT NULL CHECK (length(verdict) <= 1000),
    tokens          bigint NOT NULL CHECK (tokens >= 0),
    cost_usd        numeric NOT NULL CHECK (cost_usd >= 0),
    UNIQUE (deployment_id, tick_at),
    FOREIGN KEY (deployment_id, tick_at) REFERENCES recall.trade_tick
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recall.decision_snapshots
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
COMMENT ON TABLE recall.decision_snapshots IS 'What a deployment saw and proposed at a tick.';

-- Amounts have no scale: what a mean price or a share of a cost loses by rounding would be missing in the sum.
CREATE TABLE recall.trade_history (
    id                 uuid PRIMARY KEY,
    deployment_id      text COLLATE "C" NOT NULL REFERENCES recall.trade_deployment,
    skill_id           text COLLATE "C" NOT NULL CHECK (length(skill_id) BETWEEN 1 AND 200),
    skill_version      text COLLATE "C" NOT NULL CHECK (length(skill_version) BETWEEN 1 AND 200),
    symbol             text COLLATE "C" NOT NULL CHECK (length(symbol) BETWEEN 1 AND 200),
    side               text NOT NULL CHECK (side IN ('long', 'short')),
    status             text NOT NULL CHECK (status IN ('open', 'closed')),
    quantity           numeric NOT NULL CHECK (quantity >= 0),
    entry_tick_at      timestamptz NOT NULL,
    entry_price        numeric NOT NULL CHECK (entry_price > 0),
    entry_size_usd     numeric NOT NULL CHECK (entry_size_usd > 0),
    entry_leverage     numeric NOT NULL CHECK (entry_leverage > 0),
    entry_reason       text NOT NULL CHECK (length(entry_reason) <= 200),
    entry_snapshot_id  uuid REFERENCES recall.decision_snapshots,
    exit_tick_at       timestamptz CHECK (exit_tick_at > entry_tick_at),
    exit_price         numeric CHECK (exit_price > 0),
    exit_reason        text CHECK (length(exit_reason) <= 200),
    exit_snapshot_id   uuid REFERENCES recall.decision_snapshots,
    holding_minutes    integer CHECK (holding_minutes >= 0),
    realized_pnl_usd   numeric NOT NULL,
    fees_usd           numeric NOT NULL,
    mfe_usd            numeric NOT NULL CHECK (mfe_usd >= 0),
    mae_usd            numeric NOT NULL CHECK (mae_usd <= 0),
    remaining_size_usd numeric NOT NULL CHECK (remaining_size_usd >= 0),
    partial_exits      jsonb NOT NULL CHECK (jsonb_typeof(partial_exits) = 'array'),
    close_kind         text CHECK (close_kind IN ('close', 'flip', 'liquidation')),
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    CHECK ((status = 'open') = (exit_tick_at IS NULL)),
    CHECK (num_nulls(exit_tick_at, exit_price, exit_reason, holding_minutes, close_kind) IN (0, 5)),
    CHECK ((status = 'open') = (quantity > 0))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX trade_open ON recall.trade_history (deployment_id, symbol, side) WHERE status = 'open';
CREATE INDEX trade_of_every_version ON recall.trade_history (skill_id, entry_tick_at DESC);
CREATE INDEX trade_open_skill ON recall.trade_history (skill_id, entry_tick_at DESC) WHERE status = 'open';
CREATE INDEX trade_of_deployment ON recall.trade_history (deployment_id, entry_tick_at DESC);
CREATE INDEX trade_of_skill ON recall.trade_history (skill_id, skill_version, entry_tick_at DESC);
COMMENT ON TABLE recall.trade_history IS 'One row for each round trip; of a closed one nothing changes but fees that are billed late, and its profit by them.';
COMMENT ON COLUMN recall.trade_history.quantity IS 'Units held; 0 once closed.';
COMMENT ON COLUMN recall.trade_history.entry_price IS 'Mean of the entries by quantity: of what was held when it last grew.';
COMMENT ON COLUMN recall.trade_history.entry_size_usd IS 'All that was ever put into it, at the prices paid.';
COMMENT ON COLUMN recall.trade_history.remaining_size_usd IS 'What the quantity held was bought for (a short one: sold for).';
COMMENT ON COLUMN recall.trade_history.realized_pnl_usd IS 'Of all exits so far, partial ones included, less all fees so far.';
COMMENT ON COLUMN recall.trade_history.mfe_usd IS 'Highest profit that the position held ever showed, before fees; mae_usd: the lowest, 0 or less.';

CREATE TABLE recall.situation (
    snapshot_id uuid PRIMARY KEY REFERENCES recall.decision_snapshots,
    model       smallint REFERENCES embedding_model,
    vector      halfvec,
    CHECK (vector IS NULL OR model IS NOT NULL)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recall.situation ALTER vector SET STORAGE MAIN;
CREATE INDEX situation_model ON recall.situation (model);
COMMENT ON TABLE recall.situation IS 'Decisions that entered or left a position, with vectors of their contexts.';
COMMENT ON COLUMN recall.situation.model IS 'Of the vector; set without one where the model refuses the context. NULL until then.';

CREATE TABLE recall.trade_version (LIKE recall.trade_history, superseded_at timestamptz NOT NULL, PRIMARY KEY (id, updated_at));
-- What ended after a moment, of which there is little but of the far past, and nothing for the present.
CREATE INDEX trade_version_deployment ON recall.trade_version (deployment_id, superseded_at);
CREATE INDEX trade_version_skill ON recall.trade_version (skill_id, superseded_at);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recall.trade_version
    FOR EACH STATEMENT EXECUTE FUNCTION imem_append_only();
COMMENT ON TABLE recall.trade_version IS 'What a trade was before its last change: valid from updated_at until superseded_at. Answers as of a day.';

CREATE FUNCTION recall.record_tick_v1(
    p_actor text, p_role text, p_deployment text, p_tick_at timestamptz, p_after timestamptz, p_trades jsonb,
    p_changes jsonb, p_snapshot jsonb
) RETURNS TABLE (status text, last_tick_at timestamptz, recorded_at timestamptz, changes jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = recall, public, pg_temp
AS $$
-- Puts what a tick changed into the ledger. p_after: the tick that the changes were computed from, NULL for none. p_trades: the rows that
-- it changed, whole. status: recorded; identical (the tick is there: with what it changed then); late (a later tick is there); behind
-- (another tick than p_after is the last: to be computed anew); early (more than a day ahead of the clock: it would make every tick until
-- then a late one). Only the first writes.
#variable_conflict use_column
DECLARE
    v_owner text;
    v_now timestamptz;
BEGIN
    IF p_tick_at > imem_now() + interval '1 day' THEN
        status := 'early';
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO trade_deployment (deployment_id, owner) VALUES (p_deployment, p_actor) ON CONFLICT DO NOTHING;
    SELECT d.owner INTO v_owner FROM trade_deployment AS d WHERE d.deployment_id = p_deployment FOR UPDATE;
    IF p_role <> 'knowledge_base_agent' AND NOT (p_role = 'agent' AND v_owner = p_actor) THEN
        RAISE EXCEPTION '% (%) may not record ticks of %', p_actor, p_role, p_deployment USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT t.tick_at, t.recorded_at INTO last_tick_at, recorded_at FROM trade_tick AS t
    WHERE t.deployment_id = p_deployment ORDER BY t.tick_at DESC LIMIT 1;
    -- Never before the tick before it, even where the clock was set back.
    v_now := greatest(imem_now(), recorded_at + interval '1 microsecond');
    SELECT t.recorded_at, t.changes INTO recorded_at, changes FROM trade_tick AS t
    WHERE t.deployment_id = p_deployment AND t.tick_at = p_tick_at;
    IF FOUND OR p_tick_at <= last_tick_at OR last_tick_at IS DISTINCT FROM p_after THEN
        status := CASE WHEN FOUND THEN 'identical' WHEN p_tick_at <= last_tick_at THEN 'late' ELSE 'behind' END;
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO trade_tick (deployment_id, tick_at, recorded_at, changes) VALUES (p_deployment, p_tick_at, v_now, p_changes);
    IF p_snapshot IS NOT NULL THEN
        INSERT INTO decision_snapshots (id, deployment_id, tick_at, context, proposed_action, verdict, tokens, cost_usd)
        SELECT s.id, p_deployment, p_tick_at, s.context, s.proposed_action, s.verdict, s.tokens, s.cost_usd
        FROM jsonb_populate_record(NULL::decision_snapshots, p_snapshot) AS s;
    END IF;
    INSERT INTO situation (snapshot_id)
    SELECT DISTINCT u.id FROM jsonb_populate_recordset(NULL::trade_history, p_trades) AS r
    CROSS JOIN LATERAL (VALUES (r.entry_snapshot_id), (r.exit_snapshot_id)) AS u (id) WHERE u.id IS NOT NULL
    ON CONFLICT DO NOTHING;
    INSERT INTO trade_version
    SELECT h.*, v_now FROM trade_history AS h
    WHERE h.id = ANY (ARRAY(SELECT r.id FROM jsonb_populate_recordset(NULL::trade_history, p_trades) AS r));
    -- Rows that close come first: one that opens may take their place.
    INSERT INTO trade_history AS h
    SELECT (jsonb_populate_record(r, jsonb_build_object('deployment_id', p_deployment, 'created_at', v_now, 'updated_at', v_now))).*
    FROM jsonb_populate_recordset(NULL::trade_history, p_trades) AS r ORDER BY r.status = 'open'
    ON CONFLICT (id) DO UPDATE SET
        status = excluded.status, quantity = excluded.quantity, entry_price = excluded.entry_price,
        entry_size_usd = excluded.entry_size_usd, exit_tick_at = excluded.exit_tick_at, exit_price = excluded.exit_price,
        exit_reason = excluded.exit_reason, exit_snapshot_id = excluded.exit_snapshot_id, holding_minutes = excluded.holding_minutes,
        realized_pnl_usd = excluded.realized_pnl_usd, fees_usd = excluded.fees_usd, mfe_usd = excluded.mfe_usd,
        mae_usd = excluded.mae_usd, remaining_size_usd = excluded.remaining_size_usd, partial_exits = excluded.partial_exits,
        close_kind = excluded.close_kind, updated_at = excluded.updated_at
    WHERE (h.status = 'open' OR excluded.status = 'closed') AND h.deployment_id = p_deployment;
    status := 'recorded';
    last_tick_at := p_tick_at;
    recorded_at := v_now;
    changes := p_changes;
    RETURN NEXT;
END
$$;

CREATE VIEW recall.trade_at AS
SELECT h.*, NULL::timestamptz AS superseded_at FROM recall.trade_history AS h
UNION ALL
SELECT v.* FROM recall.trade_version AS v;
COMMENT ON VIEW recall.trade_at IS 'Trades with every version. As of a moment: updated_at is not after it, and superseded_at is, or is NULL.';
