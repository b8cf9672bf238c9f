-- Reading and restoring a whole memory. Keys and refusals: common.lua. KEYS are meta and index in this order; *prefix*
-- is that of the working keys.
--
-- A restore is two scripts. *restore* writes, reads back and compares; it leaves the state RESTORING with the mark of
-- this restore. *settle* opens the memory that has that mark. A crash between them leaves RESTORING, which writes,
-- reads and *open* refuse.

-- read --
#!lua flags=no-writes
-- with: common, leaves
-- Everything at one moment: meta, and each key with its type, its expiry in absolute milliseconds, and its leaves. A
-- missing key of the index has the type none. With an epoch, only for its holder.
--   read(meta, index; prefix, epoch or '', least rev) → {'ok', {field, value, …}, count, {suffix, type, expiry, {leaf, …}, …}}
local meta, index, prefix, epoch = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local held = memory_state(meta)
if not held then
  return {'absent'}
end
local refused = epoch and refusal(held, epoch, tonumber(ARGV[3]))
if refused then
  return refused
end
local suffixes, keys, found, place = redis.call('SMEMBERS', index), {}, {}, 0
for n, suffix in ipairs(suffixes) do
  keys[n] = prefix .. suffix
end
local texts = texts_of(keys)
for n, suffix in ipairs(suffixes) do
  local key, text = keys[n], texts[n]
  local kind = text and 'string' or kind_of(key)
  found[place + 1], found[place + 2] = suffix, kind
  found[place + 3], found[place + 4] = redis.call('PEXPIRETIME', key), text and {text} or leaves_of(key, kind)
  place = place + 4
end
return {'ok', redis.call('HGETALL', meta), #suffixes, found}

-- restore --
#!lua
-- with: common, lasting, leaves, putting, wiping
-- Replaces the content and reads it back by the new index. If it is equal, the state is RESTORING until *settle* opens
-- it; otherwise it is cleared. Everything expires in 24 hours.
--   restore(meta, index, scratch key; prefix, analysis, type, epoch, now, mark, seq, digest, replace, size, clean, proof,
--     {suffix, type, n, leaf × n}…) → {'ok', rev}
-- The memory of another analysis is refused unless *replace* is 1. *clean* is 1 where the content is that of *digest*,
-- and 0 where it holds more: the memory then counts as written to since that checkpoint. *proof* is the SHA-1 of all
-- later arguments, joined by NUL.
-- Refused as well with {'differs'}: the arguments do not have that SHA-1, or the stored content differs from them.
local meta, index = KEYS[1], KEYS[2]
local prefix, analysis, owner_type, epoch, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local held, rev, own = memory_state(meta), 1, false
if held then
  local owner = redis.call('HMGET', meta, 'analysis', 'type')
  if owner[1] == analysis and owner[2] == owner_type then
    if epoch < held.epoch then
      return {'stale', held.epoch}
    end
    rev, own = held.rev + 1, true
  elseif ARGV[9] ~= '1' then
    return {'other', owner[1], owner[2]}
  end
end
local at, i, count, suffixes, places, others = now + DAY_MS, 13, 0, {}, {}, {}
if over(KEYS[3], at) then
  return {'past'}
end
if redis.sha1hex(table.concat(ARGV, '\0', 13)) ~= ARGV[12] then
  return {'differs'}
end
-- Pulled updates and push results stay valid.
wipe(meta, index, prefix, own)
while i <= #ARGV do
  count = count + 1
  suffixes[count], places[ARGV[i]] = ARGV[i], i
  if ARGV[i + 1] ~= 'string' then
    others[#others + 1] = prefix .. ARGV[i]
  end
  i = i + 3 + tonumber(ARGV[i + 2])
end
-- A lost index did not name these keys.
for from = 1, #others, CHUNK do
  redis.call('UNLINK', unpack(others, from, math.min(from + CHUNK - 1, #others)))
end
for _, suffix in ipairs(suffixes) do
  local key, place = prefix .. suffix, places[suffix]
  put_leaves(key, ARGV[place + 1], place + 3, place + 2 + tonumber(ARGV[place + 2]), at)
  if ARGV[place + 1] ~= 'string' then
    redis.call('PEXPIREAT', key, at)
  end
end
for from = 1, count, CHUNK do
  redis.call('SADD', index, unpack(suffixes, from, math.min(from + CHUNK - 1, count)))
end
redis.call('HSET', meta, 'analysis', analysis, 'type', owner_type, 'epoch', epoch, 'rev', rev,
  'state', 'RESTORING', 'restoring', ARGV[6], 'mode', 'active', 'expires_at', at, 'renewed_at', now,
  'size', ARGV[10], 'seq', ARGV[7], 'digest', ARGV[8], 'clean_rev', ARGV[11] == '1' and rev or rev - 1)
redis.call('PEXPIREAT', index, at)
redis.call('PEXPIREAT', meta, at)
for _, key in ipairs(beside(meta)) do
  redis.call('PEXPIREAT', key, at)
end
local found, keys, equal = redis.call('SMEMBERS', index), {}, true
for n, suffix in ipairs(found) do
  keys[n] = prefix .. suffix
end
local texts = texts_of(keys)
for n, suffix in ipairs(found) do
  local place = places[suffix]
  if not place then
    equal = false
  elseif ARGV[place + 1] == 'string' then
    equal = equal and texts[n] == ARGV[place + 3]
  else
    equal = equal and holds(keys[n], ARGV[place + 1], place + 3, place + 2 + tonumber(ARGV[place + 2]))
  end
end
if not equal or #found ~= count then
  wipe(meta, index, prefix)
  return {'differs'}
end
return {'ok', rev}

-- settle --
#!lua flags=allow-oom
-- with: common
-- Ends a restore: opens the memory that has its epoch and mark. Another mark is that of a later restore.
--   settle(meta, index; epoch, mark) → {'ok', {field, value, …}, count of keys}
local meta, index, epoch = KEYS[1], KEYS[2], tonumber(ARGV[1])
local held = memory_state(meta)
if not held then
  return {'absent'}
end
if epoch ~= held.epoch or redis.call('HGET', meta, 'restoring') ~= ARGV[2] then
  return {'stale', held.epoch}
end
redis.call('HSET', meta, 'state', 'OPEN', 'restoring', '')
return {'ok', standing(meta, index)}
