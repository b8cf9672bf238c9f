-- One read of one key, for the holder alone. Keys and refusals: common.lua.

-- look --
#!lua flags=no-writes
-- with: common, leaves
-- The value of one key, or a part of it.
--   look(meta, key; epoch, least rev, part, type or '', argument…) → {'ok', type of the key, what was found}
-- Parts, of a closed list; where a type is given, the key must have it or not exist:
--   whole                all leaves                 length             how many there are
--   range start stop     items of a list            fields field…      values of a hash, false where there is none
--   members member…      1 for each that is in a set
--   scores member…       scores in a sorted set, false where there is none
--   ranked first last    members and scores of a sorted set, the lowest first
--   ranked_down first last   the same, the highest first
-- Refused as well with {'kind', type found, type wanted}.
local meta, key = KEYS[1], KEYS[2]
local refused = refusal(memory_state(meta), tonumber(ARGV[1]), tonumber(ARGV[2]))
if refused then
  return refused
end
local part, wanted, kind = ARGV[3], ARGV[4], kind_of(key)
if wanted ~= '' and kind ~= 'none' and kind ~= wanted then
  return {'kind', kind, wanted}
end
local COUNTS = {string = 'STRLEN', list = 'LLEN', hash = 'HLEN', set = 'SCARD', zset = 'ZCARD'}
local found = false
if kind == 'none' then
  return {'ok', kind, false}
elseif part == 'whole' then
  found = leaves_of(key, kind)
elseif part == 'length' then
  found = redis.call(COUNTS[kind], key)
elseif part == 'range' then
  found = redis.call('LRANGE', key, ARGV[5], ARGV[6])
elseif part == 'ranked' then
  found = redis.call('ZRANGE', key, ARGV[5], ARGV[6], 'WITHSCORES')
elseif part == 'ranked_down' then
  found = redis.call('ZRANGE', key, ARGV[5], ARGV[6], 'REV', 'WITHSCORES')
else
  local ONE = {fields = 'HGET', members = 'SISMEMBER', scores = 'ZSCORE'}
  found = {}
  for i = 5, #ARGV do
    found[#found + 1] = redis.call(ONE[part], key, ARGV[i])
  end
end
return {'ok', kind, found}

-- names --
#!lua flags=no-writes
-- with: common
-- The suffixes of all keys.
--   names(meta, index; epoch, least rev) → {'ok', {suffix, …}}
local refused = refusal(memory_state(KEYS[1]), tonumber(ARGV[1]), tonumber(ARGV[2]))
if refused then
  return refused
end
return {'ok', redis.call('SMEMBERS', KEYS[2])}
