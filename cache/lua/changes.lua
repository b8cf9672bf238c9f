-- The versions of tags: readers of cached results check validity here. On the *durable* server. Keys:
--   fas:changes         hash: since, n (the newest change), and by the number of a tag (0 to 65,535) the change that last
--                       had it; some 6 MB at most. No expiry.
--   fas:changes:stream  stream: one entry a change, its id the change's number, with the tags in clear; the newest 4,096
--   fas:changes:alive   string: the heartbeat of the process that writes the graph; expires within 2 s.
-- Changes are numbered from the microsecond at which counting began, so that a server that was emptied never reuses a
-- number. Changes before "since" are unknown: entries from before it are invalid.

-- changes_stream --
-- Starts counting where there is no count.
local function begun(changes)
  if redis.call('HEXISTS', changes, 'since') == 0 then
    local now = redis.call('TIME')
    local start = now[1] .. string.format('%06d', now[2])
    redis.call('HSET', changes, 'since', start, 'n', start)
  end
end

-- changes_publish --
#!lua
-- with: changes_stream
-- Publishes one change.
--   changes_publish(changes, stream; stream length, tags in clear, number of a tag, …) → 1
begun(KEYS[1])
local n = redis.call('HINCRBY', KEYS[1], 'n', 1)
for i = 3, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[i], n)
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], string.format('%.0f-0', n), 'tags', ARGV[2])
return 1

-- changes_invalidate_all --
#!lua
-- with: changes_stream
-- Invalidates every cached result: the changed tags are not known.
--   changes_invalidate_all(changes, stream) → 1
begun(KEYS[1])
local n = redis.call('HINCRBY', KEYS[1], 'n', 1)
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'since', n, 'n', n)
return 1

-- changes_heartbeat --
#!lua
-- with: changes_stream
-- Sets the heartbeat until a moment of this server's clock; a moment that has passed has no effect.
--   changes_heartbeat(changes, heartbeat; until in ms, 0 only asks for the time) → the time in ms
begun(KEYS[1])
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
if tonumber(ARGV[1]) > ms then
  redis.call('SET', KEYS[2], 1, 'PXAT', ARGV[1])
end
return ms

-- changes_versions --
#!lua flags=no-writes
-- The run id of this server, since when it counts, the newest change, and the last change of each tag. Nil where the
-- heartbeat has expired. A restarted server has another run id: it may have lost the last second of changes.
--   changes_versions(changes, heartbeat; number of a tag, …) → {server, since, newest, change or false, …} or nil
if redis.call('EXISTS', KEYS[2]) == 0 then
  return false
end
local found = redis.call('HMGET', KEYS[1], 'since', 'n', unpack(ARGV))
if not found[1] then
  return false
end
table.insert(found, 1, string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'))
return found

-- changes_after --
#!lua flags=no-writes
-- The changes after one, oldest first; a gap in their numbers shows that one is missing.
--   changes_after(stream; number, how many) → {{number-0, {'tags', tags}}, …}
return redis.call('XRANGE', KEYS[1], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
