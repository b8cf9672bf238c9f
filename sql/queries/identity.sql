-- token_create --
-- Stores a token of which only the hash is known; see create_token_v1.
SELECT * FROM create_token_v1(
    %(token_id)s, %(hash)s, %(actor_id)s, %(token_role)s, %(may_import)s, %(name)s, %(lasts_s)s, %(actor)s, %(role)s, %(context)s::jsonb)

-- tokens_listed --
-- Tokens that are in force first, then the newest first.
SELECT * FROM token_listing
ORDER BY revoked_at IS NOT NULL OR expires_at <= imem_now(), created_at DESC, token_id LIMIT %(limit)s

-- token_revoke --
-- Revokes a token; no row where there is none of that id.
SELECT * FROM revoke_token_v1(%(token_id)s, %(actor)s, %(role)s, %(context)s::jsonb)

-- token_authenticate --
-- The identity of a token; no row for an unknown one. See authenticate_token_v1.
SELECT token_id, actor_id, role, may_import, state, left_s FROM authenticate_token_v1(%(hash)s)

-- sign_in_link_create --
-- Stores a link of which only the hash is known.
SELECT create_sign_in_link_v1(
    %(hash)s, %(person)s, %(person_role)s, %(lasts_s)s, %(actor)s, %(role)s, %(context)s::jsonb) AS expires_at

-- sign_in_link_use --
-- Begins the one session of a link; see use_sign_in_link_v1.
SELECT person, role, state, created_at, expires_at
FROM use_sign_in_link_v1(%(link_hash)s, %(session_id)s, %(hash)s, %(context)s::jsonb)

-- session_begin --
-- Begins a session of a person for whom a provider of identities vouches.
SELECT person, role, created_at, expires_at
FROM imem_begin_session_v1(%(session_id)s, %(hash)s, %(person)s, %(person_role)s, 'oidc', %(context)s::jsonb)

-- session_authenticate --
-- A session with its state; no row for an unknown one. See authenticate_session_v1.
SELECT session_id, person, role, begun_by, created_at, expires_at, state FROM authenticate_session_v1(%(hash)s)

-- sessions_listed --
-- Sessions that are in force, the last used first.
SELECT session_id, person, role, begun_by, created_at, expires_at, last_used_at FROM session_listing
WHERE revoked_at IS NULL AND expires_at > imem_now() ORDER BY last_used_at DESC, session_id LIMIT %(limit)s

-- session_end --
-- Ends the session with that secret, or all of its person; returns how many.
SELECT end_session_v1(%(hash)s, %(everywhere)s, %(context)s::jsonb) AS ended

-- sessions_revoke --
-- Ends all sessions of a person; returns how many.
SELECT imem_revoke_sessions_v1(%(person)s, %(actor)s, %(role)s, %(context)s::jsonb) AS ended

-- identities_remove --
-- Deletes what ended long ago, in bounded number; see imem_remove_identities_v1.
SELECT imem_remove_identities_v1(%(most)s) AS removed
