-- Shared parts of the scripts on working memory. A part is no script: each script names the parts that are prepended to
-- it in a line "-- with: …" (cache/scripts.py).
--
-- The keys of one agent's working memory, all on one server, built by cache/keys.py:
--   L1:{agent}:meta              hash, at most 1 KB: owner and state; fields below
--   L1:{agent}:keys              set of suffixes, at most 8 MiB: which working keys there are
--   L1:{agent}:working:{suffix}  string, list, hash, set or zset; together at most 8 MiB, counted as size_of counts
--   L1:{agent}:scratch:{n}       copies on which a batch is tried; deleted before the script ends
--   L1:{agent}:knowledge         hash of updates pulled from other agents (knowledge.lua): in no size, no digest
--   L1:{agent}:pushed            hash of the results of pushes (knowledge.lua): likewise
-- Expiry of all of them: absolute milliseconds, from the caller's clock. Active: 86,400 s, renewed by writes and by the
-- heartbeat. Gated, paused, extended: the moment in meta, exactly, for every key.
--
-- Fields of meta:
--   analysis, type     its owner
--   epoch              of the holder; a lower one is refused
--   rev                number of writes
--   state              OPEN, or RESTORING while a restore has not been compared and opened
--   restoring          the mark of that restore; empty otherwise
--   mode               active, gated, paused or extended
--   expires_at         when meta expires; outside active mode, when everything does
--   renewed_at         when the expiry of the whole was last renewed
--   size               what size_of counts for all keys together
--   seq, digest, clean_rev   the checkpoint, its digest, and the rev whose content it was; empty before the first
--
-- Scripts answer {'ok', …}, or a refusal, in which case nothing was changed:
--   {'absent'}             there is no such memory
--   {'stale', epoch}       it has seen that later epoch
--   {'behind', epoch}      its epoch is that lower one
--   {'restoring'}          a restore was begun and not ended
--   {'lost', rev}          its rev is below the last acknowledged one
--   {'other', analysis, type}   it belongs to that agent of that analysis
--   {'past'}               the moment of expiry is over by the server's clock
-- A script that writes and has no allow-oom is refused by a full server before it begins; those that have it free
-- memory, move expiries, or overwrite a field of meta.

-- common --
-- Reads meta, and checks the caller's epoch. Servers write whole numbers below 10^17 from scripts with all their
-- digits.
local DAY_MS, HOUR_MS = 86400000, 3600000
local CHUNK = 4000 -- arguments of one command: unpack takes fewer than 8,000

-- Returns meta as a table; nil where there is none, or where another program wrote it.
local function memory_state(meta)
  local f = redis.pcall('HMGET', meta, 'epoch', 'rev', 'state', 'mode', 'expires_at', 'renewed_at', 'size')
  local epoch, rev, expires_at = tonumber(f[1]), tonumber(f[2]), tonumber(f[5])
  local renewed_at, size = tonumber(f[6]), tonumber(f[7])
  if not (epoch and rev and expires_at and renewed_at and size) then
    return nil
  end
  return {
    epoch = epoch, rev = rev, state = f[3], mode = f[4], expires_at = expires_at, renewed_at = renewed_at, size = size,
  }
end

-- Returns the refusal for a holder of *epoch*, or nil; *least_rev* is the last rev that was acknowledged to it.
local function refusal(held, epoch, least_rev)
  if not held then
    return {'absent'}
  end
  if epoch < held.epoch then
    return {'stale', held.epoch}
  end
  if held.state ~= 'OPEN' then
    return {'restoring'}
  end
  if epoch > held.epoch then
    return {'behind', held.epoch}
  end
  if held.rev < least_rev then
    return {'lost', held.rev}
  end
  return nil
end

-- Returns the keys that expire with the memory without being part of it.
local function beside(meta)
  local start = string.sub(meta, 1, -5) -- without 'meta'
  return {start .. 'knowledge', start .. 'pushed'}
end

-- Returns meta as the caller reads it, and the number of keys.
local function standing(meta, index)
  return redis.call('HGETALL', meta), redis.call('SCARD', index)
end

-- lasting --
-- Expiry. In active mode it never moves back: a clock that jumped back must not shorten it.
local function expiry(held, now)
  if held.mode == 'active' then
    return math.max(now + DAY_MS, held.expires_at)
  end
  return held.expires_at
end

local function move_expiry(meta, index, prefix, at)
  for _, suffix in ipairs(redis.call('SMEMBERS', index)) do
    redis.call('PEXPIREAT', prefix .. suffix, at)
  end
  redis.call('PEXPIREAT', index, at)
  for _, key in ipairs(beside(meta)) do
    redis.call('PEXPIREAT', key, at)
  end
  redis.call('PEXPIREAT', meta, at)
end

-- Returns whether a moment has passed by the server's own clock: keys that expire at it would be deleted at once.
-- Tested on the scratch key, so that a caller with a wrong clock loses nothing.
local function over(scratch, at)
  redis.call('SET', scratch, '', 'PXAT', at)
  local gone = redis.call('EXISTS', scratch) == 0
  redis.call('UNLINK', scratch)
  return gone
end

-- leaves --
-- The value of a key, and its size (cache/working/document.py counts the same).
local KEY_BYTES, ITEM_BYTES, SCORE_BYTES = 64, 16, 8

local function kind_of(key)
  return redis.call('TYPE', key).ok
end

-- Returns the texts of the keys, false for another type or no key. Most values are texts, and one MGET takes a third
-- less time than two commands for each.
local function texts_of(keys)
  local texts, place = {}, 0
  for from = 1, #keys, CHUNK do
    for _, text in ipairs(redis.call('MGET', unpack(keys, from, math.min(from + CHUNK - 1, #keys)))) do
      place = place + 1
      texts[place] = text
    end
  end
  return texts
end

local function leaves_of(key, kind)
  if kind == 'string' then
    return {redis.call('GET', key)}
  elseif kind == 'list' then
    return redis.call('LRANGE', key, 0, -1)
  elseif kind == 'hash' then
    return redis.call('HGETALL', key)
  elseif kind == 'set' then
    return redis.call('SMEMBERS', key)
  elseif kind == 'zset' then
    return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  end
  return {}
end

local function size_of(key, suffix, kind)
  if kind == 'none' then
    return 0
  end
  local total = KEY_BYTES + #suffix
  if kind == 'string' then
    return total + ITEM_BYTES + redis.call('STRLEN', key)
  end
  local each, leaves = ITEM_BYTES, nil
  if kind == 'zset' then
    each, leaves = ITEM_BYTES + SCORE_BYTES, redis.call('ZRANGE', key, 0, -1)
  else
    each, leaves = (kind == 'hash') and ITEM_BYTES / 2 or ITEM_BYTES, leaves_of(key, kind)
  end
  for _, leaf in ipairs(leaves) do
    total = total + each + #leaf
  end
  return total
end

-- putting --
-- Writes a whole value from ARGV[first] to ARGV[last], and counts its size. A text replaces the old value and sets its
-- expiry; other types need a key that does not exist, and their expiry is set afterwards.
local PUTS = {list = 'RPUSH', hash = 'HSET', set = 'SADD', zset = 'ZADD'}

local function push(command, key, first, last)
  for from = first, last, CHUNK do
    redis.call(command, key, unpack(ARGV, from, math.min(from + CHUNK - 1, last)))
  end
end

local function put_leaves(key, kind, first, last, at)
  if kind == 'string' then
    redis.call('SET', key, ARGV[first], 'PXAT', at)
  else
    push(PUTS[kind], key, first, last)
  end
end

local function put_size(suffix, kind, first, last)
  local total, step, each = KEY_BYTES + #suffix, 1, ITEM_BYTES
  if kind == 'hash' then
    each = ITEM_BYTES / 2
  elseif kind == 'zset' then
    first, step, each = first + 1, 2, ITEM_BYTES + SCORE_BYTES
  end
  for i = first, last, step do
    total = total + each + #ARGV[i]
  end
  return total
end

-- Returns whether the server holds, under a key, the value from ARGV[first] to ARGV[last].
local function holds(key, kind, first, last)
  if kind == 'string' then
    return redis.call('GET', key) == ARGV[first]
  end
  local leaves = leaves_of(key, kind)
  if #leaves ~= last - first + 1 then
    return false
  elseif kind == 'list' then
    for i = 1, #leaves do
      if leaves[i] ~= ARGV[first + i - 1] then
        return false
      end
    end
    return true
  end
  -- Without an order: a table by leaf.
  local given, step = {}, (kind == 'set') and 1 or 2
  for i = first, last, step do
    if kind == 'zset' then
      given[ARGV[i + 1]] = tonumber(ARGV[i])
    else
      given[ARGV[i]] = (kind == 'set') or ARGV[i + 1]
    end
  end
  for i = 1, #leaves, step do
    local leaf = leaves[i]
    local its = (kind == 'set') or (kind == 'zset' and tonumber(leaves[i + 1])) or leaves[i + 1]
    if given[leaf] ~= its then
      return false
    end
  end
  return true
end

-- wiping --
-- Removes every working key; returns how many. An index of another type names none. Knowledge and push results are
-- removed as well unless *keeps* is set: then the memory is being restored.
local function wipe(meta, index, prefix, keeps)
  local gone = redis.pcall('SMEMBERS', index)
  if not keeps then
    redis.call('UNLINK', unpack(beside(meta)))
  end
  local count = #gone
  for i = 1, count do
    gone[i] = prefix .. gone[i]
  end
  gone[count + 1], gone[count + 2] = index, meta
  for from = 1, count + 2, CHUNK do
    redis.call('UNLINK', unpack(gone, from, math.min(from + CHUNK - 1, count + 2)))
  end
  return count
end
