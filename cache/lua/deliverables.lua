-- Results of subtasks in the shared cache. Keys, built by cache/keys.py:
--   result:{analysis}:{type}:{subtask}   hash: epoch, body (JSON, at most 8 MiB)
-- Expiry, absolute milliseconds from the caller's clock: 2,592,000 s; the server may evict it before.
-- Keys of another form come from the user's program; only their existence is read.

-- keys_there --
#!lua flags=no-writes
-- Which of the keys exist.
--   keys_there(key, …) → {1 or 0 for each}
local there = {}
for number, key in ipairs(KEYS) do
  there[number] = redis.call('EXISTS', key)
end
return there

-- keep_result --
#!lua
-- Stores a result unless one of a later epoch is there.
--   keep_result(result; epoch, at, body) → 1 if it was kept
local its = redis.pcall('HGET', KEYS[1], 'epoch')
-- A value of another program does not prevent the write.
if type(its) == 'string' and tonumber(its) and tonumber(its) > tonumber(ARGV[1]) then
  return 0
end
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'body', ARGV[3])
redis.call('PEXPIREAT', KEYS[1], ARGV[2])
return 1

-- get_result --
#!lua flags=no-writes
-- A result; nil where there is none.
--   get_result(result) → body
local body = redis.pcall('HGET', KEYS[1], 'body')
return type(body) == 'string' and body or false
