-- Cached results shared by processes, on the *cache* server, which evicts. Keys, built by cache/keys.py:
--   answer:{kind}:{schema}:{scope}:{digest}   string: one entry (cache/tiers/cached_result.py), at most 1 MB
--   answer:{kind}:{schema}:{scope}:{digest}:loading   string: the token of the process that loads it
-- Expiry: of an entry, milliseconds from the caller (until it is too old even as a stale one); of a lease, 600 ms.

-- get_entries --
#!lua flags=no-writes
-- Entries; false for each that is not there.
--   get_entries(entry, …) → {entry, …}
return redis.call('MGET', unpack(KEYS))

-- acquire_load_lease --
#!lua
-- Acquires the lease to load an entry unless another process holds it; returns the current entry as well.
--   acquire_load_lease(entry, lease; token, expiry in ms) → {1 if it was taken, entry or false}
return {redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0, redis.call('GET', KEYS[1])}

-- poll_entry --
#!lua flags=no-writes
-- The entry of another process's load, if it is there, and whether the lease is still held.
--   poll_entry(entry, lease) → {entry or false, 1 while the lease is held}
return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[2])}

-- release_load_lease --
#!lua
-- Releases a lease if this process still holds it, and stores what was loaded, whichever process holds the lease now.
--   release_load_lease(entry, lease; token, entry or '', expiry in ms) → 1
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
end
if ARGV[2] ~= '' then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
