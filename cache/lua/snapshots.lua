-- Snapshots and copies of checkpoints, on the durable server. Keys, built by cache/keys.py:
--   fas:l1_snapshot:{agent}        string, the document as JSON; bounded by the cap of working memory, 8 MiB as counted
--   fas:l1_snapshot_meta:{agent}   hash, at most 1 KB: timestamp, hash, checkpoint_id, key_count, seq, epoch,
--                                  analysis_id, agent_type
--   fas:l1_calls:{agent}           hash: key of a paid call → its encoded answer; removed with each checkpoint
--   checkpoint:{analysis}:{type}   hash: epoch, seq, body (the row as JSON)
-- Expiry, absolute milliseconds from the caller's clock: of a snapshot 1,209,600 s, and never less than the working
-- memory that it protects; of a checkpoint's copy 604,800 s.
-- Answers: {'ok', …}; {'other', analysis, type}; {'past'}: the moment of expiry is over by the server's clock.

-- put_snapshot --
#!lua
-- Stores a snapshot, body and meta together, unless one with a higher (epoch, seq) is there. Its expiry never moves
-- back.
--   put_snapshot(body, meta; analysis, type, epoch, seq, at, body, {field, value}…) → {'ok', 1 if it was kept}
local analysis, kind, epoch, seq = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local at = tonumber(ARGV[5])
local f = redis.pcall('HMGET', KEYS[2], 'epoch', 'seq', 'analysis_id', 'agent_type')
local its_epoch, its_seq = tonumber(f[1]), tonumber(f[2])
-- A value of another program does not prevent the write.
if its_epoch and its_seq and f[3] and f[4] then
  if f[3] ~= analysis or f[4] ~= kind then
    return {'other', f[3], f[4]}
  end
  if its_epoch > epoch or (its_epoch == epoch and its_seq > seq) then
    return {'ok', 0}
  end
  at = math.max(at, redis.call('PEXPIRETIME', KEYS[2]))
end
at = string.format('%.0f', at)
redis.call('SET', KEYS[1], ARGV[6], 'PXAT', at)
redis.call('UNLINK', KEYS[2])
redis.call('HSET', KEYS[2], 'analysis_id', analysis, 'agent_type', kind, 'epoch', ARGV[3], 'seq', ARGV[4],
  unpack(ARGV, 7))
redis.call('PEXPIREAT', KEYS[2], at)
if redis.call('EXISTS', KEYS[2]) == 0 then
  return {'past'}
end
return {'ok', 1}

-- get_snapshot --
#!lua flags=no-writes
-- Both parts of a snapshot at one moment; nil for a missing one.
--   get_snapshot(body, meta) → {'ok', body, {field, value, …}, expiry}
return {'ok', redis.call('GET', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('PEXPIRETIME', KEYS[2])}

-- expire_snapshot --
#!lua flags=allow-oom
-- Extends the expiry of both parts and of the answers of calls; never shortens it.
--   expire_snapshot(body, meta, calls; at) → {'ok', 1 if there is a snapshot}
redis.call('PEXPIREAT', KEYS[1], ARGV[1], 'GT')
redis.call('PEXPIREAT', KEYS[2], ARGV[1], 'GT')
redis.call('PEXPIREAT', KEYS[3], ARGV[1], 'GT')
return {'ok', redis.call('EXISTS', KEYS[2])}

-- put_copy --
#!lua
-- Stores the copy of a checkpoint unless one with a higher (epoch, seq) is there.
--   put_copy(copy; epoch, seq, at, body) → {'ok', 1 if it was kept}
local epoch, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local f = redis.pcall('HMGET', KEYS[1], 'epoch', 'seq')
local its_epoch, its_seq = tonumber(f[1]), tonumber(f[2])
if its_epoch and its_seq then
  if its_epoch > epoch or (its_epoch == epoch and its_seq > seq) then
    return {'ok', 0}
  end
else
  redis.call('UNLINK', KEYS[1])
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', ARGV[2], 'body', ARGV[4])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'past'}
end
return {'ok', 1}

-- get_copy --
#!lua flags=no-writes
-- The copy of a checkpoint.
--   get_copy(copy) → {'ok', {epoch, seq, body}}, each false where there is none
return {'ok', redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'body')}

-- put_call --
#!lua
-- Stores the answer of a call. The expiry of the hash never moves back.
--   put_call(calls; at, name, answer) → {'ok'}
local at = math.max(tonumber(ARGV[1]), redis.call('PEXPIRETIME', KEYS[1]))
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at))
return {'ok'}

-- get_call --
#!lua flags=no-writes
-- The answer of a call.
--   get_call(calls; name) → {'ok', answer or false}
return {'ok', redis.call('HGET', KEYS[1], ARGV[1])}

-- drop --
#!lua flags=allow-oom
-- Removes the given keys.
--   drop(key…) → {'ok', count}
return {'ok', redis.call('UNLINK', unpack(KEYS))}
