-- Pending notices of agents, on the durable server: positions in the journal, never content. Rows in Postgres say which
-- agent is notified; notices that were refused, displaced or lost are queued again from them. Keys, built by
-- cache/keys.py:
--   imem:notices:{agent}:{tier}   sorted set of positions, scored by themselves; the four of an agent hold at most 100
--   imem:notices-run              string: the run id of this server for which all notices were queued
--   imem:snapshot:{id}            hash: sha256, body (JSON) of a debate's snapshot
-- Expiry: 14 days after the last notice of the agent; of a snapshot's copy 3,600 s, renewed while its debate is open.

-- offer --
#!lua
-- Queues notices, in the order in which they are given. A notice of tier t is admitted while fewer than its limit wait;
-- then one of tier 1 displaces the oldest of tier 3, or else 2, and one of tier 0 the oldest of 3, 2, or 1.
--   offer(tier 0, tier 1, tier 2, tier 3; limit × 4, lasts ms, {position, tier}…)
--     → {depth, {1 admitted or there, 0 refused, …}, {displaced position, …}}
local depth, limits, outcomes, displaced = 0, {}, {}, {}
local YIELDS = {{4, 3, 2}, {4, 3}, {}, {}} -- places of KEYS that a notice may displace
for place = 1, 4 do
  depth = depth + redis.call('ZCARD', KEYS[place])
  limits[place] = tonumber(ARGV[place])
end
for i = 6, #ARGV, 2 do
  local position, place = ARGV[i], tonumber(ARGV[i + 1]) + 1
  local taken = redis.call('ZSCORE', KEYS[place], position) and true or false
  if not taken and depth < limits[place] then
    taken, depth = true, depth + 1
  end
  if not taken then
    for _, other in ipairs(YIELDS[place]) do
      local oldest = redis.call('ZPOPMIN', KEYS[other])
      if oldest[1] then
        displaced[#displaced + 1] = oldest[1]
        taken = true
        break
      end
    end
  end
  if taken then
    redis.call('ZADD', KEYS[place], position, position)
  end
  outcomes[#outcomes + 1] = taken and 1 or 0
end
for place = 1, 4 do
  redis.call('PEXPIRE', KEYS[place], ARGV[5])
end
return {depth, outcomes, displaced}

-- waiting --
#!lua flags=no-writes
-- The pending notices of an agent, the most urgent tier first, each oldest first.
--   waiting(tier 0, tier 1, tier 2, tier 3) → {{position, …} × 4}
local found = {}
for place = 1, 4 do
  found[place] = redis.call('ZRANGE', KEYS[place], 0, -1)
end
return found

-- drop_notices --
#!lua flags=allow-oom
-- Removes notices from all tiers; returns how many are pending.
--   drop_notices(tier 0, tier 1, tier 2, tier 3; position…) → depth
local depth = 0
for place = 1, 4 do
  if #ARGV > 0 then
    redis.call('ZREM', KEYS[place], unpack(ARGV))
  end
  depth = depth + redis.call('ZCARD', KEYS[place])
end
return depth

-- server_run --
#!lua flags=no-writes
-- The run id of this server, and the one for which all notices were queued.
--   server_run(server run key) → {run, run or false}
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {run, redis.call('GET', KEYS[1])}

-- set_server_run --
#!lua
-- Stores that all notices were queued in this run of the server.
--   set_server_run(server run key; run) → 1
redis.call('SET', KEYS[1], ARGV[1])
return 1

-- put_memory_snapshot --
#!lua
-- Stores the copy of a snapshot.
--   put_memory_snapshot(snapshot; lasts ms, sha256, body) → 1
redis.call('HSET', KEYS[1], 'sha256', ARGV[2], 'body', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1

-- get_memory_snapshot --
#!lua flags=allow-oom
-- The copy of a snapshot, whose expiry is renewed; both false where there is none.
--   get_memory_snapshot(snapshot; lasts ms) → {sha256, body}
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HMGET', KEYS[1], 'sha256', 'body')
