-- One write: a batch of changes, all or none. Keys and refusals: common.lua. The changes are defined in changing.lua.
--
--   write(meta, index; prefix, scratch prefix, epoch, least rev, now, cap, {operation, suffix, n, argument × n}…)
--     → {'ok', rev, size, {result of each change}}
-- *free* is the same for batches that only remove, which a full server has to accept. A single change has a script for
-- its type, *one_whole(…)* and so on, and *free_whole(…)* where it only removes: servers create all functions of a
-- script anew for each call, so that a short one is faster.
--
-- Everything is checked before the first change is applied: epoch, state, types, bounds. A key with one change is
-- checked in place. A key with several, or any after *clear*, is changed on a copy, whose name begins with *scratch
-- prefix*; the copy then replaces the key, or all copies are removed.
--
-- In addition to the refusals of common.lua, each with the suffix of its key:
--   {'kind', suffix, found, wanted}   it holds another type
--   {'large', suffix, size}           everything together would pass the cap, with that size
--   {'index', suffix, length}         the list has no such item
--   {'integer', suffix}               it holds no integer, or the sum passes 2^53
--   {'nan', suffix}                   infinity and minus infinity have no sum
-- Writes: keys of changes, index, meta (rev, size, expiry). Expiry: 24 hours for what was touched, and for everything
-- when that is an hour ago; outside active mode the moment in meta, exactly.

-- keeping --
-- What every write updates: index, expiry, meta.
local HOLDS = {none = true, string = true, list = true, hash = true, set = true, zset = true}

-- Returns whether a change of the type *works_on* (nil: any) may be applied to a key of type *kind*.
local function fits(kind, works_on)
  return HOLDS[kind] and (not works_on or kind == 'none' or kind == works_on)
end

-- *lasts*: the key exists and has its expiry already.
local function keep_key(index, prefix, suffix, at, was_there, lasts)
  if not lasts and redis.call('PEXPIREAT', prefix .. suffix, at) == 0 then
    redis.call('SREM', index, suffix)
  elseif not was_there then
    redis.call('SADD', index, suffix)
  end
end

-- Returns the new rev.
local function keep_meta(meta, index, prefix, held, now, at, size)
  local rev = held.rev + 1
  if held.mode == 'active' and now - held.renewed_at > HOUR_MS then
    move_expiry(meta, index, prefix, at)
    redis.call('HSET', meta, 'rev', rev, 'size', size, 'expires_at', at, 'renewed_at', now)
  else
    redis.call('HSET', meta, 'rev', rev, 'size', size, 'expires_at', at)
    redis.call('PEXPIREAT', index, at)
    redis.call('PEXPIREAT', meta, at)
  end
  return rev
end

-- one --
-- A write of a single change, by the functions of its type; *works_on* is nil for whole values.
local function one(works_on, check, effect)
  local meta, index, prefix, now = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5])
  local held = memory_state(meta)
  local refused = refusal(held, tonumber(ARGV[3]), tonumber(ARGV[4]))
  if refused then
    return refused
  end
  local operation, suffix, first, last = ARGV[7], ARGV[8], 10, #ARGV
  local key = prefix .. suffix
  local kind = kind_of(key)
  if not fits(kind, works_on) then
    return {'kind', suffix, kind, works_on or ''}
  end
  local growth, why = check(operation, key, suffix, kind, first, last)
  if not growth then
    return why
  end
  local size = held.size + growth
  if growth > 0 and size > tonumber(ARGV[6]) then
    return {'large', suffix, size}
  end
  local at = expiry(held, now)
  local result = effect(operation, key, suffix, kind, first, last, at)
  keep_key(index, prefix, suffix, at, kind ~= 'none', operation == 'put' and ARGV[first] == 'string')
  return {'ok', keep_meta(meta, index, prefix, held, now, at, size), size, {result}}
end

-- batch --
-- A write of any number of changes.
local CHECKS = {string = check_string, list = check_list, hash = check_hash, set = check_set, zset = check_zset}
local EFFECTS = {string = effect_string, list = effect_list, hash = effect_hash, set = effect_set, zset = effect_zset}

-- Returns the changes as {operation, suffix, first, last, type worked on}, how often each suffix is touched, and
-- whether all keys are cleared first.
local function batch_from(i)
  local plan, touches, cleared = {}, {}, false
  while i <= #ARGV do
    local operation, suffix, last = ARGV[i], ARGV[i + 1], i + 2 + tonumber(ARGV[i + 2])
    if operation == 'clear' then
      cleared = true
    else
      plan[#plan + 1] = {operation, suffix, i + 3, last, string.match(operation, '^(%a+)_')}
      touches[suffix] = (touches[suffix] or 0) + 1
    end
    i = last + 1
  end
  return plan, touches, cleared
end

local function write()
  local meta, index = KEYS[1], KEYS[2]
  local prefix, scratch, epoch, least_rev = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local now, cap = tonumber(ARGV[5]), tonumber(ARGV[6])
  local held = memory_state(meta)
  local refused = refusal(held, epoch, least_rev)
  if refused then
    return refused
  end
  local plan, touches, cleared = batch_from(7)
  local size, results = cleared and 0 or held.size, {}
  local copies, copied = {}, 0 -- suffix → its copy
  local kinds = {} -- suffix → type of a key that is changed in place
  local at = expiry(held, now)
  -- Check everything; changes of copies are applied to them at once.
  for number, change in ipairs(plan) do
    local operation, suffix, first, last, works_on = unpack(change)
    local key, growth, why = prefix .. suffix, nil, nil
    if cleared or touches[suffix] > 1 then
      if not copies[suffix] then
        copied = copied + 1
        copies[suffix] = scratch .. copied
        if not cleared then
          redis.call('COPY', key, copies[suffix])
        end
      end
      key = copies[suffix]
    end
    local kind = kind_of(key)
    if not fits(kind, works_on) then
      why = {'kind', suffix, kind, works_on or ''}
    else
      growth, why = (CHECKS[works_on] or check_whole)(operation, key, suffix, kind, first, last)
    end
    if growth then
      size = size + growth
      if growth > 0 and size > cap then
        why = {'large', suffix, size}
      end
    end
    if why then
      for _, copy in pairs(copies) do
        redis.call('UNLINK', copy)
      end
      return why
    end
    if copies[suffix] then
      results[number] = (EFFECTS[works_on] or effect_whole)(operation, key, suffix, kind, first, last, at)
    else
      kinds[suffix] = kind
    end
  end
  -- Apply everything.
  if cleared then
    for _, suffix in ipairs(redis.call('SMEMBERS', index)) do
      redis.call('UNLINK', prefix .. suffix)
    end
    redis.call('UNLINK', index)
  end
  for number, change in ipairs(plan) do
    local operation, suffix, first, last, works_on = unpack(change)
    local kind = kinds[suffix]
    if kind then
      local effect = EFFECTS[works_on] or effect_whole
      results[number] = effect(operation, prefix .. suffix, suffix, kind, first, last, at)
    end
  end
  for suffix, copy in pairs(copies) do
    if redis.call('EXISTS', copy) == 1 then
      redis.call('RENAME', copy, prefix .. suffix)
    else
      redis.call('UNLINK', prefix .. suffix)
    end
  end
  for suffix in pairs(touches) do
    keep_key(index, prefix, suffix, at, kinds[suffix] and kinds[suffix] ~= 'none')
  end
  return {'ok', keep_meta(meta, index, prefix, held, now, at, size), size, results}
end

-- one_whole --
#!lua
-- with: common, lasting, leaves, putting, whole, keeping, one
return one(nil, check_whole, effect_whole)

-- one_string --
#!lua
-- with: common, lasting, leaves, counting, strings, keeping, one
return one('string', check_string, effect_string)

-- one_list --
#!lua
-- with: common, lasting, leaves, putting, items, lists, keeping, one
return one('list', check_list, effect_list)

-- one_hash --
#!lua
-- with: common, lasting, leaves, putting, counting, items, hashes, keeping, one
return one('hash', check_hash, effect_hash)

-- one_set --
#!lua
-- with: common, lasting, leaves, putting, items, sets, keeping, one
return one('set', check_set, effect_set)

-- one_zset --
#!lua
-- with: common, lasting, leaves, putting, items, sorted, keeping, one
return one('zset', check_zset, effect_zset)

-- free_whole --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, whole, keeping, one
return one(nil, check_whole, effect_whole)

-- free_list --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, items, lists, keeping, one
return one('list', check_list, effect_list)

-- free_hash --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, counting, items, hashes, keeping, one
return one('hash', check_hash, effect_hash)

-- free_set --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, items, sets, keeping, one
return one('set', check_set, effect_set)

-- free_zset --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, items, sorted, keeping, one
return one('zset', check_zset, effect_zset)

-- write --
#!lua
-- with: common, lasting, leaves, putting, whole, counting, strings, items, lists, hashes, sets, sorted, keeping, batch
return write()

-- free --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, whole, counting, strings, items, lists, hashes, sets, sorted, keeping, batch
return write()
