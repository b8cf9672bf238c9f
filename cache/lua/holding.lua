-- Opening, fencing, marking, expiry and removal of one agent's working memory. Keys and refusals: common.lua. KEYS are
-- meta and index in this order; *prefix* is that of the working keys.

-- open --
#!lua
-- with: common, lasting, wiping
-- Opens the memory for a holder: a new one, or its own. Refused where it belongs to another analysis or a restore has
-- not ended, unless *replace* is 1, which starts empty in any case.
--   open(meta, index, scratch key; prefix, analysis, type, epoch, now, replace) → {'ok', {field, value, …}, count of keys}
-- Writes meta; renews the expiry of all keys, or removes them.
local meta, index = KEYS[1], KEYS[2]
local prefix, analysis, kind, epoch, now, replace =
  ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local held = memory_state(meta)
if held then
  local owner = redis.call('HMGET', meta, 'analysis', 'type')
  local own = owner[1] == analysis and owner[2] == kind
  if own and epoch < held.epoch then
    return {'stale', held.epoch}
  end
  if not replace then
    if not own then
      return {'other', owner[1], owner[2]}
    end
    if held.state ~= 'OPEN' then
      return {'restoring'}
    end
    local at = expiry(held, now)
    move_expiry(meta, index, prefix, at)
    redis.call('HSET', meta, 'epoch', epoch, 'expires_at', at, 'renewed_at', now)
    return {'ok', standing(meta, index)}
  end
end
local at = now + DAY_MS
if over(KEYS[3], at) then
  return {'past'}
end
-- Keys without a valid meta have no owner.
wipe(meta, index, prefix)
redis.call('HSET', meta, 'analysis', analysis, 'type', kind, 'epoch', epoch, 'rev', 0, 'state', 'OPEN',
  'restoring', '', 'mode', 'active', 'expires_at', at, 'renewed_at', now, 'size', 0,
  'seq', '', 'digest', '', 'clean_rev', '')
redis.call('PEXPIREAT', meta, at)
return {'ok', standing(meta, index)}

-- stand --
#!lua flags=no-writes
-- with: common
-- Meta and the number of keys; needs no epoch.
--   stand(meta, index) → {'ok', {field, value, …}, count of keys}
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'absent'}
end
return {'ok', standing(KEYS[1], KEYS[2])}

-- fence --
#!lua flags=allow-oom
-- with: common
-- Raises the epoch: holders of an earlier one are refused from then on. Idempotent.
--   fence(meta; epoch) → {'ok'}
-- Overwrites one field of meta; the expiry stays.
local held, epoch = memory_state(KEYS[1]), tonumber(ARGV[1])
if not held then
  return {'absent'}
end
if epoch < held.epoch then
  return {'stale', held.epoch}
end
redis.call('HSET', KEYS[1], 'epoch', epoch)
return {'ok'}

-- mark --
#!lua flags=allow-oom
-- with: common
-- Stores which checkpoint holds the content of *rev*; an older checkpoint than the stored one is ignored.
--   mark(meta; epoch, seq, digest, rev) → {'ok', 1 if it was remembered}
-- Overwrites three fields of meta; the expiry stays.
local held, epoch, seq = memory_state(KEYS[1]), tonumber(ARGV[1]), tonumber(ARGV[2])
local refused = refusal(held, epoch, tonumber(ARGV[4]))
if refused then
  return refused
end
if seq < (tonumber(redis.call('HGET', KEYS[1], 'seq')) or -1) then
  return {'ok', 0}
end
redis.call('HSET', KEYS[1], 'seq', seq, 'digest', ARGV[3], 'clean_rev', ARGV[4])
return {'ok', 1}

-- expire --
#!lua flags=allow-oom
-- with: common, lasting
-- Moves the expiry of all keys together, and sets the mode. The epoch is optional: the memory of a paused agent has no
-- holder.
--   expire(meta, index, scratch key; prefix, epoch or '', mode, at, now) → {'ok'}
local meta, index, scratch = KEYS[1], KEYS[2], KEYS[3]
local prefix, epoch, mode, at, now = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local held = memory_state(meta)
if not held then
  return {'absent'}
end
if epoch and epoch < held.epoch then
  return {'stale', held.epoch}
end
if epoch and epoch > held.epoch then
  return {'behind', held.epoch}
end
if over(scratch, at) then
  return {'past'}
end
move_expiry(meta, index, prefix, at)
redis.call('HSET', meta, 'mode', mode, 'expires_at', at, 'renewed_at', now)
return {'ok'}

-- heartbeat --
#!lua flags=allow-oom
-- with: common, lasting
-- Renews the expiry of all keys: 24 hours in active mode, otherwise the moment that was set.
--   heartbeat(meta, index; prefix, epoch, now) → {'ok', at}
local meta, index = KEYS[1], KEYS[2]
local prefix, epoch, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local held = memory_state(meta)
local refused = refusal(held, epoch, 0)
if refused then
  return refused
end
local at = expiry(held, now)
move_expiry(meta, index, prefix, at)
redis.call('HSET', meta, 'expires_at', at, 'renewed_at', now)
return {'ok', at}

-- clear --
#!lua flags=allow-oom
-- with: common, wiping
-- Removes the memory. A restore that has not ended is removed as well.
--   clear(meta, index; prefix, epoch) → {'ok', count of keys}
local held = memory_state(KEYS[1])
if held and tonumber(ARGV[2]) < held.epoch then
  return {'stale', held.epoch}
end
return {'ok', wipe(KEYS[1], KEYS[2], ARGV[1])}
