-- A whole memory at once: reading it, and putting it back. The keys and the refusals are explained in common.lua; KEYS
-- are meta and index in this order, and *prefix* is that of the working keys.
--
-- A restore is two scripts with a comparison between them: *restore* leaves RESTORING behind, with the mark of this
-- restore; *settle* opens or clears what bears that mark. A crash between them leaves RESTORING, which writes, reads
-- and *open* refuse.

-- read --
#!lua flags=no-writes
-- with: common, leaves
-- Everything at one moment: meta, and each key with its type, its expiry in absolute milliseconds, and its leaves. A
-- key of the index that is gone has the type none. With an epoch, only for its holder.
--   read(meta, index; prefix, epoch or '', least rev) → {'ok', {field, value, …}, count, {suffix, type, expiry, {leaf, …}, …}}
local meta, index, prefix, epoch = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local held = held_by(meta)
if not held then
  return {'absent'}
end
local refused = epoch and refusal(held, epoch, tonumber(ARGV[3]))
if refused then
  return refused
end
local suffixes, found, place = redis.call('SMEMBERS', index), {}, 0
for _, suffix in ipairs(suffixes) do
  local key = prefix .. suffix
  local kind = kind_of(key)
  found[place + 1], found[place + 2] = suffix, kind
  found[place + 3], found[place + 4] = redis.call('PEXPIRETIME', key), leaves_of(key, kind)
  place = place + 4
end
return {'ok', redis.call('HGETALL', meta), #suffixes, found}

-- restore --
#!lua
-- with: common, lasting, leaves, putting, wiping
-- Removes what is there, writes what is given, and leaves it RESTORING; everything expires in 24 hours. What was written
-- is read again, under the names that the index now holds, for the caller to compare.
--   restore(meta, index, scratch key; prefix, analysis, type, epoch, now, mark, seq, digest, replace, size, clean,
--     {suffix, type, n, leaf × n}…) → {'ok', rev, {suffix, type, {leaf, …}, …}}
-- What belongs to another analysis stands in the way unless *replace* is 1. *clean* is 1 where what is given is what
-- *digest* says, and 0 where it holds more: the memory then counts as written to since that checkpoint.
local meta, index = KEYS[1], KEYS[2]
local prefix, analysis, owner_type, epoch, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local held, rev = held_by(meta), 1
if held then
  local owner = redis.call('HMGET', meta, 'analysis', 'type')
  if owner[1] == analysis and owner[2] == owner_type then
    if epoch < held.epoch then
      return {'stale', held.epoch}
    end
    rev = held.rev + 1
  elseif ARGV[9] ~= '1' then
    return {'other', owner[1], owner[2]}
  end
end
local at, i, suffixes, kinds = now + DAY_MS, 12, {}, {}
if over(KEYS[3], at) then
  return {'past'}
end
wipe(meta, index, prefix)
while i <= #ARGV do
  local suffix, kind, last = ARGV[i], ARGV[i + 1], i + 2 + tonumber(ARGV[i + 2])
  local key = prefix .. suffix
  -- An index that was lost did not name it.
  redis.call('UNLINK', key)
  put_leaves(key, kind, i + 3, last, at)
  if kind ~= 'string' then
    redis.call('PEXPIREAT', key, at)
  end
  suffixes[#suffixes + 1], kinds[suffix] = suffix, kind
  i = last + 1
end
for from = 1, #suffixes, CHUNK do
  redis.call('SADD', index, unpack(suffixes, from, math.min(from + CHUNK - 1, #suffixes)))
end
redis.call('HSET', meta, 'analysis', analysis, 'type', owner_type, 'epoch', epoch, 'rev', rev,
  'state', 'RESTORING', 'restoring', ARGV[6], 'mode', 'active', 'expires_at', at, 'renewed_at', now,
  'size', ARGV[10], 'seq', ARGV[7], 'digest', ARGV[8], 'clean_rev', ARGV[11] == '1' and rev or rev - 1)
redis.call('PEXPIREAT', index, at)
redis.call('PEXPIREAT', meta, at)
local found, place = {}, 0
for _, suffix in ipairs(redis.call('SMEMBERS', index)) do
  local kind = kinds[suffix]
  found[place + 1], found[place + 2], found[place + 3] = suffix, kind, leaves_of(prefix .. suffix, kind)
  place = place + 3
end
return {'ok', rev, found}

-- settle --
#!lua flags=allow-oom
-- with: common, wiping
-- Ends a restore: opens what it wrote, or clears it. Only what bears its epoch and its mark; a later restore is another's.
--   settle(meta, index; prefix, epoch, mark, 'open' or 'clear') → {'ok', {field, value, …}, count of keys}
local meta, index, prefix, epoch = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local held = held_by(meta)
if not held then
  return {'absent'}
end
if epoch ~= held.epoch or redis.call('HGET', meta, 'restoring') ~= ARGV[3] then
  return {'stale', held.epoch}
end
if ARGV[4] ~= 'open' then
  return {'ok', {}, wipe(meta, index, prefix)}
end
redis.call('HSET', meta, 'state', 'OPEN', 'restoring', '')
return {'ok', standing(meta, index)}
