-- One write: a batch of changes, all or none. The keys and the refusals are explained in common.lua.
--
--   write(meta, index; prefix, scratch prefix, epoch, least rev, now, cap, {operation, suffix, n, argument × n}…)
--     → {'ok', rev, size, {result of each change}}
-- *free* is the same for batches that only remove, which a full server has to take.
--
-- Everything is checked before the first change is applied: epoch, state, types, bounds. A key that one change alone
-- touches is checked where it is. One that several touch, or any after *clear*, is tried on a copy, whose name begins
-- with *scratch prefix*; in the end the copy becomes the key, or all copies are thrown away.
--
-- Beside the refusals of common.lua, each with the suffix of its key:
--   {'kind', suffix, found, wanted}   it holds another type
--   {'large', suffix, size}           everything together would pass the cap, with that size
--   {'index', suffix, length}         the list has no such item
--   {'integer', suffix}               it holds no integer, or the sum passes 2^53
--   {'nan', suffix}                   infinity and minus infinity have no sum
-- Writes: keys of changes, index, meta (rev, size, expiry). Expiry: 24 hours for what was touched, and for everything
-- when that is an hour ago; outside active mode the moment in meta, exactly.

-- changes --
-- The closed list of operations: what each needs to hold, how many bytes it adds, and what it does.
local MOST = 9007199254740992 -- 2^53: a whole number that every client reads alike
local WORKS_ON = {
  string_add = 'string',
  list_append = 'list', list_prepend = 'list', list_pop = 'list', list_pop_first = 'list', list_set = 'list',
  list_trim = 'list', list_remove = 'list',
  hash_put = 'hash', hash_remove = 'hash', hash_add = 'hash',
  set_add = 'set', set_remove = 'set',
  zset_add = 'zset', zset_remove = 'zset', zset_increment = 'zset',
}
local HOLDS = {none = true, string = true, list = true, hash = true, set = true, zset = true}

-- Each takes (key, suffix, kind, first, last): kind is what the key holds now, ARGV[first..last] are the arguments.
-- check returns the bytes that the change adds, or nil and why it is refused; effect applies it and returns its result.
local check, effect = {}, {}

local function key_bytes(suffix)
  return KEY_BYTES + #suffix
end

-- Returns what an item and, if it was the last, its key counted for.
local function taken(suffix, removed, all)
  return -removed - (all and key_bytes(suffix) or 0)
end

local function summed(old, by)
  if old and not string.match(old, '^-?%d+$') then
    return nil
  end
  local a, b = tonumber(old or '0'), tonumber(by)
  -- Not by the sum: past 2^53 it is rounded, and may come out as 2^53.
  if math.abs(a) > MOST or math.abs(b) > MOST or (a >= 0 and b > MOST - a) or (a < 0 and b < -MOST - a) then
    return nil
  end
  return int(a + b)
end

-- Whole values

function check.put(key, suffix, kind, first, last)
  return put_size(suffix, ARGV[first], first + 1, last) - size_of(key, suffix, kind)
end

function effect.put(key, suffix, kind, first, last)
  if kind ~= 'none' then
    redis.call('UNLINK', key)
  end
  put_leaves(key, ARGV[first], first + 1, last)
  return false
end

-- Puts the value only where there is none, and otherwise returns what there is.
function check.default(key, suffix, kind, first, last)
  return kind == 'none' and put_size(suffix, ARGV[first], first + 1, last) or 0
end

function effect.default(key, suffix, kind, first, last)
  if kind ~= 'none' then
    return {kind, leaves_of(key, kind)}
  end
  put_leaves(key, ARGV[first], first + 1, last)
  return false
end

function check.delete(key, suffix, kind)
  return -size_of(key, suffix, kind)
end

function effect.delete(key)
  return redis.call('UNLINK', key)
end

check.take = check.delete

function effect.take(key, suffix, kind)
  if kind == 'none' then
    return false
  end
  local found = {kind, leaves_of(key, kind)}
  redis.call('UNLINK', key)
  return found
end

function check.string_add(key, suffix, kind, first)
  local old = redis.call('GET', key)
  local sum = summed(old, ARGV[first])
  if not sum then
    return nil, {'integer', suffix}
  end
  return old and #sum - #old or key_bytes(suffix) + ITEM_BYTES + #sum
end

function effect.string_add(key, suffix, kind, first)
  local sum = summed(redis.call('GET', key), ARGV[first])
  redis.call('SET', key, sum)
  return sum
end

-- Lists

function check.list_append(key, suffix, kind, first, last)
  local total = kind == 'none' and key_bytes(suffix) or 0
  for i = first, last do
    total = total + ITEM_BYTES + #ARGV[i]
  end
  return total
end

function effect.list_append(key, suffix, kind, first, last)
  push('RPUSH', key, first, last)
  return redis.call('LLEN', key)
end

check.list_prepend = check.list_append

function effect.list_prepend(key, suffix, kind, first, last)
  push('LPUSH', key, first, last)
  return redis.call('LLEN', key)
end

local function end_taken(key, suffix, kind, place)
  if kind == 'none' then
    return 0
  end
  return taken(suffix, ITEM_BYTES + #redis.call('LINDEX', key, place), redis.call('LLEN', key) == 1)
end

function check.list_pop(key, suffix, kind)
  return end_taken(key, suffix, kind, -1)
end

function effect.list_pop(key)
  return redis.call('RPOP', key)
end

function check.list_pop_first(key, suffix, kind)
  return end_taken(key, suffix, kind, 0)
end

function effect.list_pop_first(key)
  return redis.call('LPOP', key)
end

function check.list_set(key, suffix, kind, first)
  local old = kind ~= 'none' and redis.call('LINDEX', key, ARGV[first])
  if not old then
    return nil, {'index', suffix, redis.call('LLEN', key)}
  end
  return #ARGV[first + 1] - #old
end

function effect.list_set(key, suffix, kind, first)
  redis.call('LSET', key, ARGV[first], ARGV[first + 1])
  return false
end

function check.list_trim(key, suffix, kind, first)
  local length = redis.call('LLEN', key)
  local from, to = tonumber(ARGV[first]), tonumber(ARGV[first + 1])
  from = math.max(from < 0 and length + from or from, 0)
  to = math.min(to < 0 and length + to or to, length - 1)
  if from > to then
    return -size_of(key, suffix, kind)
  end
  local removed = 0
  for _, part in ipairs({
    from > 0 and redis.call('LRANGE', key, 0, from - 1) or {},
    to < length - 1 and redis.call('LRANGE', key, to + 1, -1) or {},
  }) do
    for _, leaf in ipairs(part) do
      removed = removed + ITEM_BYTES + #leaf
    end
  end
  return -removed
end

function effect.list_trim(key, suffix, kind, first)
  redis.call('LTRIM', key, ARGV[first], ARGV[first + 1])
  return redis.call('LLEN', key)
end

function check.list_remove(key, suffix, kind, first)
  local count, value = math.abs(tonumber(ARGV[first])), ARGV[first + 1]
  local matches = kind ~= 'none' and #redis.call('LPOS', key, value, 'COUNT', 0) or 0
  if count ~= 0 then
    matches = math.min(matches, count)
  end
  return taken(suffix, matches * (ITEM_BYTES + #value), matches > 0 and matches == redis.call('LLEN', key))
end

function effect.list_remove(key, suffix, kind, first)
  return redis.call('LREM', key, ARGV[first], ARGV[first + 1])
end

-- Hashes

function check.hash_put(key, suffix, kind, first, last)
  local total = kind == 'none' and key_bytes(suffix) or 0
  for i = first, last, 2 do
    local old = kind ~= 'none' and redis.call('HGET', key, ARGV[i])
    total = total + #ARGV[i + 1] + (old and -#old or ITEM_BYTES + #ARGV[i])
  end
  return total
end

function effect.hash_put(key, suffix, kind, first, last)
  local before = redis.call('HLEN', key)
  push('HSET', key, first, last)
  return redis.call('HLEN', key) - before
end

function check.hash_remove(key, suffix, kind, first, last)
  local removed, count = 0, 0
  for i = first, last do
    local old = kind ~= 'none' and redis.call('HGET', key, ARGV[i])
    if old then
      removed, count = removed + ITEM_BYTES + #ARGV[i] + #old, count + 1
    end
  end
  return taken(suffix, removed, count > 0 and count == redis.call('HLEN', key))
end

local function remove(command, key, first, last)
  local count = 0
  for from = first, last, CHUNK do
    count = count + redis.call(command, key, unpack(ARGV, from, math.min(from + CHUNK - 1, last)))
  end
  return count
end

function effect.hash_remove(key, suffix, kind, first, last)
  return remove('HDEL', key, first, last)
end

function check.hash_add(key, suffix, kind, first)
  local old = kind ~= 'none' and redis.call('HGET', key, ARGV[first])
  local sum = summed(old, ARGV[first + 1])
  if not sum then
    return nil, {'integer', suffix}
  end
  if old then
    return #sum - #old
  end
  return (kind == 'none' and key_bytes(suffix) or 0) + ITEM_BYTES + #ARGV[first] + #sum
end

function effect.hash_add(key, suffix, kind, first)
  local sum = summed(redis.call('HGET', key, ARGV[first]), ARGV[first + 1])
  redis.call('HSET', key, ARGV[first], sum)
  return sum
end

-- Sets

function check.set_add(key, suffix, kind, first, last)
  local total = kind == 'none' and key_bytes(suffix) or 0
  for i = first, last do
    if kind == 'none' or redis.call('SISMEMBER', key, ARGV[i]) == 0 then
      total = total + ITEM_BYTES + #ARGV[i]
    end
  end
  return total
end

function effect.set_add(key, suffix, kind, first, last)
  return remove('SADD', key, first, last) -- counts likewise
end

function check.set_remove(key, suffix, kind, first, last)
  local removed, count = 0, 0
  for i = first, last do
    if kind ~= 'none' and redis.call('SISMEMBER', key, ARGV[i]) == 1 then
      removed, count = removed + ITEM_BYTES + #ARGV[i], count + 1
    end
  end
  return taken(suffix, removed, count > 0 and count == redis.call('SCARD', key))
end

function effect.set_remove(key, suffix, kind, first, last)
  return remove('SREM', key, first, last)
end

-- Sorted sets: scores stand before their members, as the servers take them.

function check.zset_add(key, suffix, kind, first, last)
  local total = kind == 'none' and key_bytes(suffix) or 0
  for i = first + 1, last, 2 do
    if kind == 'none' or not redis.call('ZSCORE', key, ARGV[i]) then
      total = total + ITEM_BYTES + SCORE_BYTES + #ARGV[i]
    end
  end
  return total
end

function effect.zset_add(key, suffix, kind, first, last)
  return remove('ZADD', key, first, last)
end

function check.zset_remove(key, suffix, kind, first, last)
  local removed, count = 0, 0
  for i = first, last do
    if kind ~= 'none' and redis.call('ZSCORE', key, ARGV[i]) then
      removed, count = removed + ITEM_BYTES + SCORE_BYTES + #ARGV[i], count + 1
    end
  end
  return taken(suffix, removed, count > 0 and count == redis.call('ZCARD', key))
end

function effect.zset_remove(key, suffix, kind, first, last)
  return remove('ZREM', key, first, last)
end

function check.zset_increment(key, suffix, kind, first)
  local by, member = ARGV[first], ARGV[first + 1]
  local old = kind ~= 'none' and redis.call('ZSCORE', key, member)
  if old and ((old == 'inf' and by == '-inf') or (old == '-inf' and by == 'inf')) then
    return nil, {'nan', suffix}
  end
  if old then
    return 0
  end
  return (kind == 'none' and key_bytes(suffix) or 0) + ITEM_BYTES + SCORE_BYTES + #member
end

function effect.zset_increment(key, suffix, kind, first)
  return redis.call('ZINCRBY', key, ARGV[first], ARGV[first + 1])
end

-- The batch

-- Returns the changes as {operation, suffix, first, last}, how often each suffix is touched, and whether all keys are
-- cleared first.
local function batch_from(i)
  local plan, touches, cleared = {}, {}, false
  while i <= #ARGV do
    local operation, suffix, last = ARGV[i], ARGV[i + 1], i + 2 + tonumber(ARGV[i + 2])
    if operation == 'clear' then
      cleared = true
    else
      plan[#plan + 1] = {operation, suffix, i + 3, last}
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
  local held = held_by(meta)
  local refused = refusal(held, epoch, least_rev)
  if refused then
    return refused
  end
  local plan, touches, cleared = batch_from(7)
  local size, results = cleared and 0 or held.size, {}
  local copies, copied = {}, 0 -- suffix → its copy
  local function unchanged(why)
    for _, copy in pairs(copies) do
      redis.call('UNLINK', copy)
    end
    return why
  end
  -- Check everything; what is tried on copies has its effect there.
  for number, change in ipairs(plan) do
    local operation, suffix, first, last = unpack(change)
    local key = prefix .. suffix
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
    if not HOLDS[kind] or (WORKS_ON[operation] and kind ~= 'none' and kind ~= WORKS_ON[operation]) then
      return unchanged({'kind', suffix, kind, WORKS_ON[operation] or ''})
    end
    local growth, why = check[operation](key, suffix, kind, first, last)
    if not growth then
      return unchanged(why)
    end
    size = size + growth
    if growth > 0 and size > cap then
      return unchanged({'large', suffix, size})
    end
    change[5] = kind
    if copies[suffix] then
      results[number] = effect[operation](key, suffix, kind, first, last)
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
    local operation, suffix, first, last, kind = unpack(change)
    if not copies[suffix] then
      results[number] = effect[operation](prefix .. suffix, suffix, kind, first, last)
    end
  end
  for suffix, copy in pairs(copies) do
    if redis.call('EXISTS', copy) == 1 then
      redis.call('RENAME', copy, prefix .. suffix)
    else
      redis.call('UNLINK', prefix .. suffix)
    end
  end
  -- Index, expiry, meta.
  local moment = expiry(held, now)
  local at, rev = int(moment), held.rev + 1
  for suffix in pairs(touches) do
    if redis.call('PEXPIREAT', prefix .. suffix, at) == 1 then
      redis.call('SADD', index, suffix)
    else
      redis.call('SREM', index, suffix)
    end
  end
  if held.mode == 'active' and now - held.renewed_at > HOUR_MS then
    move_expiry(meta, index, prefix, at)
    redis.call('HSET', meta, 'renewed_at', int(now))
  else
    redis.call('PEXPIREAT', index, at)
    redis.call('PEXPIREAT', meta, at)
  end
  redis.call('HSET', meta, 'rev', int(rev), 'size', int(size), 'expires_at', at)
  return {'ok', rev, size, results}
end

-- write --
#!lua
-- with: common, lasting, leaves, putting, changes
return write()

-- free --
#!lua flags=allow-oom
-- with: common, lasting, leaves, putting, changes
return write()
