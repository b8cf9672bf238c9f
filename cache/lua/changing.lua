-- The closed list of changes: how many bytes each adds, and what it does. Their names begin with the type of the key that
-- they work on, but for those of whole values. One function for each type, not for each operation: servers
-- create them anew for every call.
--
-- All take (operation, key, suffix, kind, first, last, at): kind is what the key holds now, ARGV[first..last] are the
-- arguments, at is when the key will end. check returns the bytes that the change adds, or nil and why it is refused; effect applies it and returns
-- its result.

-- whole --
-- Whole values: put, default (where there is none; otherwise the result is what there is), delete, take (the result is
-- what there was).

local function check_whole(operation, key, suffix, kind, first, last)
  if operation == 'put' then
    return put_size(suffix, ARGV[first], first + 1, last) - size_of(key, suffix, kind)
  elseif operation == 'default' then
    return kind == 'none' and put_size(suffix, ARGV[first], first + 1, last) or 0
  elseif operation == 'delete' or operation == 'take' then
    return -size_of(key, suffix, kind)
  end
  return nil, {'operation', suffix, operation}
end

local function effect_whole(operation, key, suffix, kind, first, last, at)
  if operation == 'put' or (operation == 'default' and kind == 'none') then
    if kind ~= 'none' and ARGV[first] ~= 'string' then
      redis.call('UNLINK', key)
    end
    put_leaves(key, ARGV[first], first + 1, last, at)
    return false
  elseif operation == 'delete' then
    return redis.call('UNLINK', key)
  end
  local found = kind ~= 'none' and {kind, leaves_of(key, kind)}
  if operation == 'take' then
    redis.call('UNLINK', key)
  end
  return found
end

-- counting --
-- Whole numbers in texts.
local MOST = 9007199254740992 -- 2^53: a whole number that every client reads alike

local function checked_sum(old, by)
  if old and not string.match(old, '^-?%d+$') then
    return nil
  end
  local a, b = tonumber(old or '0'), tonumber(by)
  -- Not by the sum: past 2^53 it is rounded, and may come out as 2^53.
  if math.abs(a) > MOST or math.abs(b) > MOST or (a >= 0 and b > MOST - a) or (a < 0 and b < -MOST - a) then
    return nil
  end
  return string.format('%.0f', a + b)
end

-- strings --
-- Texts: string_add by.

local function check_string(operation, key, suffix, kind, first)
  local old = redis.call('GET', key)
  local sum = checked_sum(old, ARGV[first])
  if not sum then
    return nil, {'integer', suffix}
  end
  return old and #sum - #old or KEY_BYTES + #suffix + ITEM_BYTES + #sum
end

local function effect_string(operation, key, suffix, kind, first)
  local sum = checked_sum(redis.call('GET', key), ARGV[first])
  redis.call('SET', key, sum)
  return sum
end

-- items --
-- Helpers of all collections.
-- Returns the bytes that removing items frees, and those of their key if all are removed.
local function taken(suffix, removed, all)
  return -removed - (all and KEY_BYTES + #suffix or 0)
end

-- Returns the bytes that a new key adds.
local function begun(suffix, kind)
  return kind == 'none' and KEY_BYTES + #suffix or 0
end

-- Runs *command* with the arguments in pieces; returns the sum of its answers.
local function in_pieces(command, key, first, last)
  local count = 0
  for from = first, last, CHUNK do
    count = count + redis.call(command, key, unpack(ARGV, from, math.min(from + CHUNK - 1, last)))
  end
  return count
end

-- lists --
-- Lists: list_append item…, list_prepend item… (each before the one that was given before it), list_pop, list_pop_first,
-- list_set index item, list_trim first last, list_remove count item.

local function trim_size(key, suffix, kind, from, to)
  local length, removed = redis.call('LLEN', key), 0
  from = math.max(from < 0 and length + from or from, 0)
  to = math.min(to < 0 and length + to or to, length - 1)
  if from > to then
    return -size_of(key, suffix, kind)
  end
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

local function check_list(operation, key, suffix, kind, first, last)
  if operation == 'list_append' or operation == 'list_prepend' then
    local total = begun(suffix, kind)
    for i = first, last do
      total = total + ITEM_BYTES + #ARGV[i]
    end
    return total
  elseif operation == 'list_pop' or operation == 'list_pop_first' then
    local item = kind ~= 'none' and redis.call('LINDEX', key, operation == 'list_pop' and -1 or 0)
    return item and taken(suffix, ITEM_BYTES + #item, redis.call('LLEN', key) == 1) or 0
  elseif operation == 'list_set' then
    local old = kind ~= 'none' and redis.call('LINDEX', key, ARGV[first])
    if not old then
      return nil, {'index', suffix, redis.call('LLEN', key)}
    end
    return #ARGV[first + 1] - #old
  elseif operation == 'list_trim' then
    return trim_size(key, suffix, kind, tonumber(ARGV[first]), tonumber(ARGV[first + 1]))
  end
  local count, item = math.abs(tonumber(ARGV[first])), ARGV[first + 1]
  local matches = kind ~= 'none' and #redis.call('LPOS', key, item, 'COUNT', 0) or 0
  if count ~= 0 then
    matches = math.min(matches, count)
  end
  return taken(suffix, matches * (ITEM_BYTES + #item), matches > 0 and matches == redis.call('LLEN', key))
end

local function effect_list(operation, key, suffix, kind, first, last)
  if operation == 'list_append' then
    push('RPUSH', key, first, last)
  elseif operation == 'list_prepend' then
    push('LPUSH', key, first, last)
  elseif operation == 'list_pop' then
    return redis.call('RPOP', key)
  elseif operation == 'list_pop_first' then
    return redis.call('LPOP', key)
  elseif operation == 'list_set' then
    redis.call('LSET', key, ARGV[first], ARGV[first + 1])
    return false
  elseif operation == 'list_trim' then
    redis.call('LTRIM', key, ARGV[first], ARGV[first + 1])
  else
    return redis.call('LREM', key, ARGV[first], ARGV[first + 1])
  end
  return redis.call('LLEN', key)
end

-- hashes --
-- Hashes: hash_put {field value}…, hash_remove field…, hash_add field by.

local function check_hash(operation, key, suffix, kind, first, last)
  if operation == 'hash_put' then
    local total = begun(suffix, kind)
    for i = first, last, 2 do
      local old = kind ~= 'none' and redis.call('HGET', key, ARGV[i])
      total = total + #ARGV[i + 1] + (old and -#old or ITEM_BYTES + #ARGV[i])
    end
    return total
  elseif operation == 'hash_add' then
    local old = kind ~= 'none' and redis.call('HGET', key, ARGV[first])
    local sum = checked_sum(old, ARGV[first + 1])
    if not sum then
      return nil, {'integer', suffix}
    end
    return old and #sum - #old or begun(suffix, kind) + ITEM_BYTES + #ARGV[first] + #sum
  end
  local removed, count = 0, 0
  for i = first, last do
    local old = kind ~= 'none' and redis.call('HGET', key, ARGV[i])
    if old then
      removed, count = removed + ITEM_BYTES + #ARGV[i] + #old, count + 1
    end
  end
  return taken(suffix, removed, count > 0 and count == redis.call('HLEN', key))
end

local function effect_hash(operation, key, suffix, kind, first, last)
  if operation == 'hash_put' then
    return in_pieces('HSET', key, first, last)
  elseif operation == 'hash_add' then
    local sum = checked_sum(redis.call('HGET', key, ARGV[first]), ARGV[first + 1])
    redis.call('HSET', key, ARGV[first], sum)
    return sum
  end
  return in_pieces('HDEL', key, first, last)
end

-- sets --
-- Sets: set_add member…, set_remove member….

local function check_set(operation, key, suffix, kind, first, last)
  local bytes, count = 0, 0
  local there = operation == 'set_remove' and 1 or 0
  for i = first, last do
    if (kind == 'none' and 0 or redis.call('SISMEMBER', key, ARGV[i])) == there then
      bytes, count = bytes + ITEM_BYTES + #ARGV[i], count + 1
    end
  end
  if operation == 'set_add' then
    return begun(suffix, kind) + bytes
  end
  return taken(suffix, bytes, count > 0 and count == redis.call('SCARD', key))
end

local function effect_set(operation, key, suffix, kind, first, last)
  return in_pieces(operation == 'set_add' and 'SADD' or 'SREM', key, first, last)
end

-- sorted --
-- Sorted sets: zset_add {score member}…, zset_remove member…, zset_increment by member. Scores stand before their
-- members, as the servers take them.

local function check_zset(operation, key, suffix, kind, first, last)
  if operation == 'zset_add' then
    local total = begun(suffix, kind)
    for i = first + 1, last, 2 do
      if kind == 'none' or not redis.call('ZSCORE', key, ARGV[i]) then
        total = total + ITEM_BYTES + SCORE_BYTES + #ARGV[i]
      end
    end
    return total
  elseif operation == 'zset_increment' then
    local by, member = ARGV[first], ARGV[first + 1]
    local old = kind ~= 'none' and redis.call('ZSCORE', key, member)
    if old and ((old == 'inf' and by == '-inf') or (old == '-inf' and by == 'inf')) then
      return nil, {'nan', suffix}
    end
    return old and 0 or begun(suffix, kind) + ITEM_BYTES + SCORE_BYTES + #member
  end
  local removed, count = 0, 0
  for i = first, last do
    if kind ~= 'none' and redis.call('ZSCORE', key, ARGV[i]) then
      removed, count = removed + ITEM_BYTES + SCORE_BYTES + #ARGV[i], count + 1
    end
  end
  return taken(suffix, removed, count > 0 and count == redis.call('ZCARD', key))
end

local function effect_zset(operation, key, suffix, kind, first, last)
  if operation == 'zset_increment' then
    return redis.call('ZINCRBY', key, ARGV[first], ARGV[first + 1])
  end
  return in_pieces(operation == 'zset_add' and 'ZADD' or 'ZREM', key, first, last)
end
