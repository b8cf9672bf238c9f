-- Identity of callers over the network: tokens of programs, sessions of people, and links with which people sign in. Secrets are 256 bits
-- of chance and stored as SHA-256 alone. No role reads the tables: functions look a secret up by its hash, curators list the views.

CREATE TABLE access_token (
    token_id     text PRIMARY KEY CHECK (length(token_id) BETWEEN 8 AND 32),
    hash         bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    actor_id     text NOT NULL CHECK (length(actor_id) BETWEEN 1 AND 200),
    role         text NOT NULL CHECK (role IN (
        'agent', 'knowledge_base_agent', 'debate_facilitator', 'learning_engine', 'human_admin', 'reviewer', 'reader')),
    may_import   boolean NOT NULL CHECK (NOT may_import OR role NOT IN ('agent', 'reviewer', 'reader')),
    name         text NOT NULL CHECK (length(name) <= 200),
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL CHECK (expires_at > created_at AND expires_at <= created_at + interval '17520 hours'),
    revoked_by   text,
    revoked_at   timestamptz,
    last_used_at timestamptz
);
COMMENT ON TABLE access_token IS 'Tokens of programs: each is bound to one actor and one role, and expires.';
COMMENT ON COLUMN access_token.token_id IS 'Names the token to people; it is no secret.';
COMMENT ON COLUMN access_token.name IS 'What the token is for.';
COMMENT ON COLUMN access_token.last_used_at IS 'Of the last minute that it was used in; kept by processes for up to 30 s, and lost by a crash.';

CREATE TABLE sign_in_link (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    person     text NOT NULL CHECK (length(person) BETWEEN 1 AND 200),
    role       text NOT NULL CHECK (role IN ('human_admin', 'reviewer', 'reader')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL CHECK (expires_at > created_at AND expires_at <= created_at + interval '24 hours'),
    ended_at   timestamptz
);
COMMENT ON TABLE sign_in_link IS 'Links with which a person begins one session.';
COMMENT ON COLUMN sign_in_link.ended_at IS 'When it was used, or withdrawn.';

CREATE TABLE person_session (
    session_id   text PRIMARY KEY CHECK (length(session_id) BETWEEN 8 AND 32),
    hash         bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    person       text NOT NULL CHECK (length(person) BETWEEN 1 AND 200),
    role         text NOT NULL CHECK (role IN ('human_admin', 'reviewer', 'reader')),
    begun_by     text NOT NULL CHECK (begun_by IN ('link', 'oidc')),
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL CHECK (expires_at > created_at AND expires_at <= created_at + interval '168 hours'),
    revoked_at   timestamptz,
    last_used_at timestamptz NOT NULL
);
CREATE INDEX person_session_of_person ON person_session (person) WHERE revoked_at IS NULL;
COMMENT ON TABLE person_session IS 'Sessions of people in a browser: 12 hours from the last use, 7 days at most.';
COMMENT ON COLUMN person_session.revoked_at IS 'When the person, or an admin, ended it.';

CREATE VIEW token_listing AS
SELECT token_id, actor_id, role, may_import, name, created_by, created_at, expires_at, revoked_by, revoked_at, last_used_at
FROM access_token;
COMMENT ON VIEW token_listing IS 'Tokens without their hashes.';

CREATE VIEW session_listing AS
SELECT session_id, person, role, begun_by, created_at, expires_at, revoked_at, last_used_at FROM person_session;
COMMENT ON VIEW session_listing IS 'Sessions without their hashes.';

-- Tokens

CREATE FUNCTION create_token_v1(
    p_token_id text, p_hash bytea, p_actor_id text, p_token_role text, p_may_import boolean, p_name text, p_lasts_s double precision,
    p_actor text, p_role text, p_context jsonb
) RETURNS SETOF token_listing
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Stores a token, with the audit row. Curators call it: with the application's login an agent could give itself another role.
DECLARE
    v_now timestamptz := imem_now();
    v_expires_at timestamptz := v_now + make_interval(secs => p_lasts_s);
BEGIN
    INSERT INTO access_token (token_id, hash, actor_id, role, may_import, name, created_by, created_at, expires_at)
    VALUES (p_token_id, p_hash, p_actor_id, p_token_role, p_may_import, p_name, p_actor, v_now, v_expires_at);
    PERFORM imem_audit_v1(p_actor, p_role, 'identity', p_token_id, 'create_token', true, NULL,
        p_context || jsonb_build_object('actor', p_actor_id, 'role', p_token_role, 'may_import', p_may_import, 'name', p_name,
            'expires_at', v_expires_at), 'done');
    RETURN QUERY SELECT * FROM token_listing AS t WHERE t.token_id = p_token_id;
END
$$;

CREATE FUNCTION revoke_token_v1(p_token_id text, p_actor text, p_role text, p_context jsonb) RETURNS SETOF token_listing
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Revokes a token, with the audit row; one that is revoked stays as it is. No row where there is none of that id.
BEGIN
    UPDATE access_token AS t SET revoked_at = greatest(imem_now(), t.created_at), revoked_by = p_actor
    WHERE t.token_id = p_token_id AND t.revoked_at IS NULL;
    IF FOUND THEN
        PERFORM imem_audit_v1(p_actor, p_role, 'identity', p_token_id, 'revoke_token', true, NULL, p_context, 'done');
    END IF;
    RETURN QUERY SELECT * FROM token_listing AS t WHERE t.token_id = p_token_id;
END
$$;

CREATE FUNCTION authenticate_token_v1(p_hash bytea)
RETURNS TABLE (token_id text, actor_id text, role text, may_import boolean, state text, left_s double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- The identity that a token is bound to, its state (valid, expired or revoked) and the seconds until it expires; no row for an unknown
-- one. Whoever calls it knows the secret. Its use is noted once a minute, and nobody waits for the disk or for another process.
DECLARE
    v_token access_token;
    v_now timestamptz := imem_now();
BEGIN
    SELECT * INTO v_token FROM access_token AS t WHERE t.hash = p_hash;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    state := CASE WHEN v_token.revoked_at IS NOT NULL THEN 'revoked' WHEN v_token.expires_at <= v_now THEN 'expired' ELSE 'valid' END;
    IF state = 'valid' AND (v_token.last_used_at IS NULL OR v_token.last_used_at < v_now - interval '1 minute') THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE access_token AS t SET last_used_at = v_now
        WHERE t.token_id = (SELECT o.token_id FROM access_token AS o WHERE o.hash = p_hash FOR UPDATE SKIP LOCKED);
    END IF;
    token_id := v_token.token_id;
    actor_id := v_token.actor_id;
    role := v_token.role;
    may_import := v_token.may_import;
    left_s := extract(epoch FROM v_token.expires_at - v_now);
    RETURN NEXT;
END
$$;

-- People

CREATE FUNCTION create_sign_in_link_v1(
    p_hash bytea, p_person text, p_person_role text, p_lasts_s double precision, p_actor text, p_role text, p_context jsonb
) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Stores a link, with the audit row; returns when it expires. Curators call it, for the reason of create_token_v1.
DECLARE
    v_now timestamptz := imem_now();
    v_expires_at timestamptz := v_now + make_interval(secs => p_lasts_s);
BEGIN
    INSERT INTO sign_in_link (hash, person, role, created_by, created_at, expires_at)
    VALUES (p_hash, p_person, p_person_role, p_actor, v_now, v_expires_at);
    PERFORM imem_audit_v1(p_actor, p_role, 'identity', p_person, 'create_sign_in_link', true, NULL,
        p_context || jsonb_build_object('role', p_person_role, 'expires_at', v_expires_at), 'done');
    RETURN v_expires_at;
END
$$;

CREATE FUNCTION imem_begin_session_v1(
    p_session_id text, p_hash bytea, p_person text, p_role text, p_begun_by text, p_context jsonb
) RETURNS SETOF session_listing
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Begins a session of a person who was identified, with the audit row. Curators call it where a provider of identities vouches.
DECLARE
    v_now timestamptz := imem_now();
BEGIN
    INSERT INTO person_session (session_id, hash, person, role, begun_by, created_at, expires_at, last_used_at)
    VALUES (p_session_id, p_hash, p_person, p_role, p_begun_by, v_now, v_now + interval '12 hours', v_now);
    PERFORM imem_audit_v1(p_person, p_role, 'identity', p_session_id, 'begin_session', true, NULL,
        p_context || jsonb_build_object('begun_by', p_begun_by), 'done');
    RETURN QUERY SELECT * FROM session_listing AS s WHERE s.session_id = p_session_id;
END
$$;

CREATE FUNCTION use_sign_in_link_v1(p_link_hash bytea, p_session_id text, p_hash bytea, p_context jsonb)
RETURNS TABLE (person text, role text, state text, created_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Begins the one session of a link (state valid), or says that it was used, withdrawn or is too old (ended, expired); no row for an
-- unknown one. Of two calls at once the second waits for the first, and finds the link ended.
DECLARE
    v_link sign_in_link;
BEGIN
    UPDATE sign_in_link AS l SET ended_at = imem_now()
    WHERE l.hash = p_link_hash AND l.ended_at IS NULL AND l.expires_at > imem_now() RETURNING * INTO v_link;
    IF FOUND THEN
        state := 'valid';
        SELECT s.created_at, s.expires_at INTO created_at, expires_at
        FROM imem_begin_session_v1(p_session_id, p_hash, v_link.person, v_link.role, 'link', p_context) AS s;
    ELSE
        SELECT * INTO v_link FROM sign_in_link AS l WHERE l.hash = p_link_hash;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        state := CASE WHEN v_link.ended_at IS NOT NULL THEN 'ended' ELSE 'expired' END;
    END IF;
    person := v_link.person;
    role := v_link.role;
    RETURN NEXT;
END
$$;

CREATE FUNCTION authenticate_session_v1(p_hash bytea)
RETURNS TABLE (session_id text, person text, role text, begun_by text, created_at timestamptz, expires_at timestamptz, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- A session and its state (valid, expired or revoked); no row for an unknown one. Its end moves with its use, once a minute, and nobody
-- waits for the disk.
DECLARE
    v_session person_session;
    v_now timestamptz := imem_now();
BEGIN
    SELECT * INTO v_session FROM person_session AS s WHERE s.hash = p_hash;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    state := CASE WHEN v_session.revoked_at IS NOT NULL THEN 'revoked' WHEN v_session.expires_at <= v_now THEN 'expired' ELSE 'valid' END;
    expires_at := v_session.expires_at;
    IF state = 'valid' AND v_session.last_used_at < v_now - interval '1 minute' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        expires_at := greatest(expires_at, least(v_session.created_at + interval '168 hours', v_now + interval '12 hours'));
        UPDATE person_session AS s SET last_used_at = v_now, expires_at = authenticate_session_v1.expires_at
        WHERE s.session_id = (SELECT o.session_id FROM person_session AS o WHERE o.hash = p_hash FOR UPDATE SKIP LOCKED);
    END IF;
    session_id := v_session.session_id;
    person := v_session.person;
    role := v_session.role;
    begun_by := v_session.begun_by;
    created_at := v_session.created_at;
    RETURN NEXT;
END
$$;

CREATE FUNCTION imem_revoke_sessions_v1(p_person text, p_actor text, p_role text, p_context jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Ends all sessions of a person and withdraws the links that were not used, with one audit row; returns how many sessions. Curators call
-- it; people end their own by end_session_v1.
DECLARE
    v_sessions integer;
BEGIN
    UPDATE sign_in_link AS l SET ended_at = imem_now() WHERE l.person = p_person AND l.ended_at IS NULL AND l.expires_at > imem_now();
    UPDATE person_session AS s SET revoked_at = imem_now()
    WHERE s.person = p_person AND s.revoked_at IS NULL AND s.expires_at > imem_now();
    GET DIAGNOSTICS v_sessions = ROW_COUNT;
    PERFORM imem_audit_v1(p_actor, p_role, 'identity', p_person, 'revoke_sessions', true, NULL,
        p_context || jsonb_build_object('sessions', v_sessions), 'done');
    RETURN v_sessions;
END
$$;

CREATE FUNCTION end_session_v1(p_hash bytea, p_everywhere boolean, p_context jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Ends the session with that secret, or all of its person, with the audit row; returns how many: none where it is over.
DECLARE
    v_session person_session;
BEGIN
    UPDATE person_session AS s SET revoked_at = imem_now()
    WHERE s.hash = p_hash AND s.revoked_at IS NULL AND s.expires_at > imem_now() RETURNING * INTO v_session;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF p_everywhere THEN
        RETURN 1 + imem_revoke_sessions_v1(v_session.person, v_session.person, v_session.role, p_context);
    END IF;
    PERFORM imem_audit_v1(v_session.person, v_session.role, 'identity', v_session.session_id, 'end_session', true, NULL, p_context, 'done');
    RETURN 1;
END
$$;

CREATE FUNCTION imem_remove_identities_v1(p_most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
-- Deletes tokens, links and sessions that ended more than 90 days ago, at most p_most of each; returns how many. The audit keeps that
-- they were there.
DECLARE
    v_before timestamptz := imem_now() - interval '90 days';
    v_count integer;
    v_removed integer := 0;
BEGIN
    DELETE FROM access_token WHERE token_id IN (
        SELECT t.token_id FROM access_token AS t WHERE t.expires_at < v_before LIMIT p_most);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_removed := v_count;
    DELETE FROM sign_in_link WHERE hash IN (SELECT l.hash FROM sign_in_link AS l WHERE l.expires_at < v_before LIMIT p_most);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_removed := v_removed + v_count;
    DELETE FROM person_session WHERE session_id IN (
        SELECT s.session_id FROM person_session AS s WHERE s.expires_at < v_before LIMIT p_most);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_removed + v_count;
END
$$;
