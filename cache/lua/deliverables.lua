-- What subtasks left in the shared cache, under keys of their own choice, type and expiry; nothing is written here.

-- keys_there --
#!lua flags=no-writes
-- Which of the keys there are.
--   keys_there(key, …) → {1 or 0 for each}
local there = {}
for number, key in ipairs(KEYS) do
  there[number] = redis.call('EXISTS', key)
end
return there
