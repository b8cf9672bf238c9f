-- Hashes beside the working keys of one agent: updates pulled from other agents, and results of pushing its items. The
-- keys are explained in common.lua. Callers need not hold the memory, so that no epoch is passed.
--   L1:{agent}:knowledge   hash: number of the update, in 19 digits → its JSON; bounded in number and bytes
--   L1:{agent}:pushed      hash: id of the item → its push result as JSON, at most 2 KB; as many as items are published
-- Expiry of both: that of meta, moved with it.

-- published --
#!lua flags=no-writes
-- with: common
-- The published items, and the push results that the holder has not read.
--   published(meta, items, pushed) → {'ok', {id, item, …}, {id, fate, …}}
-- *items* is the working key that holds them. Refused with {'absent'} and {'restoring'}, and with {'kind', type} where
-- the key has another type.
local held = memory_state(KEYS[1])
if not held then
  return {'absent'}
end
if held.state ~= 'OPEN' then
  return {'restoring'}
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return {'kind', kind}
end
return {'ok', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}

-- note_pushed --
#!lua
-- with: common
-- Stores push results of items, for the holder to read.
--   note_pushed(meta, pushed; {id, fate}…) → {'ok'}
local held = memory_state(KEYS[1])
if not held then
  return {'absent'}
end
redis.call('HSET', KEYS[2], unpack(ARGV))
redis.call('PEXPIREAT', KEYS[2], redis.call('PEXPIRETIME', KEYS[1]))
return {'ok'}

-- forget_pushed --
#!lua flags=allow-oom
-- Removes push results of items that are no longer published.
--   forget_pushed(pushed; id…) → count
return redis.call('HDEL', KEYS[1], unpack(ARGV))

-- learn --
#!lua
-- with: common
-- Adds updates; removes the oldest beyond the bounds.
--   learn(meta, knowledge; most updates, most bytes, {number, update}…) → {'ok', count, how many went}
local held = memory_state(KEYS[1])
if not held then
  return {'absent'}
end
local knowledge, most, most_bytes = KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('HSET', knowledge, unpack(ARGV, 3))
local numbers, bytes, gone = redis.call('HKEYS', knowledge), 0, {}
table.sort(numbers, function(a, b) return a > b end)
for place, number in ipairs(numbers) do
  bytes = bytes + redis.call('HSTRLEN', knowledge, number)
  if place > most or bytes > most_bytes then
    gone[#gone + 1] = number
  end
end
for _, number in ipairs(gone) do
  redis.call('HDEL', knowledge, number)
end
redis.call('PEXPIREAT', knowledge, redis.call('PEXPIRETIME', KEYS[1]))
return {'ok', #numbers - #gone, #gone}

-- known --
#!lua flags=no-writes
-- All pulled updates.
--   known(knowledge) → {number, update, …}
return redis.call('HGETALL', KEYS[1])
