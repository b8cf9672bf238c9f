-- Limits of calls, on the cache server. Keys, built by cache/keys.py:
--   imem:calls:{digest}:{read|write}   list of moments, milliseconds of the server's clock, the oldest first; at most as
--                                      many as the limit allows in a window
-- Expiry: one window after the last call that was admitted. An evicted key begins its window anew.

-- admit_call --
#!lua
-- Admits a call unless as many as the limit were admitted within the window before it: an exact sliding window.
--   admit_call(calls; limit, window ms) → 0 if it is admitted, else the milliseconds until one may be
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
-- More than the limit where the limit was lowered.
local excess = redis.call('LLEN', KEYS[1]) - limit
if excess > 0 then
  redis.call('LPOP', KEYS[1], excess)
end
if excess >= 0 then
  local oldest = tonumber(redis.call('LINDEX', KEYS[1], 0))
  -- A clock that was set back shall not refuse for longer than a window.
  if oldest > now then
    redis.call('DEL', KEYS[1])
  elseif now - oldest < window then
    return window - (now - oldest)
  else
    redis.call('LPOP', KEYS[1])
  end
end
redis.call('RPUSH', KEYS[1], now)
redis.call('PEXPIRE', KEYS[1], window)
return 0
