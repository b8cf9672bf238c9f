-- Answers that processes share, on the *cache* server, which evicts and forgets. Keys, built by cache/keys.py:
--   answer:{kind}:{schema}:{scope}:{digest}   string: one entry (cache/tiers/cached_result.py), at most 1 MB
--   answer:{kind}:{schema}:{scope}:{digest}:loading   string: the token of the process that loads it
-- Expiry: of an entry, milliseconds from the caller (until it is too old even as a stale one); of a lease, 600 ms.

-- take_answers --
#!lua flags=no-writes
-- Entries; false for each that is not there.
--   take_answers(entry, …) → {entry, …}
return redis.call('MGET', unpack(KEYS))

-- begin_loading --
#!lua
-- Takes the lease to load an entry, where nobody holds it; and what is there, which may have been loaded meanwhile.
--   begin_loading(entry, lease; token, expiry in ms) → {1 if it was taken, entry or false}
return {redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0, redis.call('GET', KEYS[1])}

-- look_for_loaded --
#!lua flags=no-writes
-- What whoever loads an entry has left so far, and whether he still loads.
--   look_for_loaded(entry, lease) → {entry or false, 1 while the lease is held}
return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[2])}

-- end_loading --
#!lua
-- Gives a lease back if it is still ours, and keeps what was loaded, if that is worth it, whoever loads now.
--   end_loading(entry, lease; token, entry or '', expiry in ms) → 1
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
end
if ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1

-- drop_answers --
#!lua
-- Drops entries.
--   drop_answers(entry, …) → how many there were
return redis.call('UNLINK', unpack(KEYS))
