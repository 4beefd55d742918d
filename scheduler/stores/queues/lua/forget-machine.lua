-- Forgets a machine that is gone: its counts go, and its containers
-- lose their assignments, unless they have another place by now.
-- KEYS: 1 the machine's free amounts  2 its reservations  3 its leased
-- devices  4 assignments of containers  5 in flight (as in reserve.lua)
-- ARGV: 1 machine
-- Answer: how many reservations it had
local held = redis.call('HGETALL', KEYS[2])
for index = 1, #held, 2 do
  local one = cjson.decode(held[index + 1])
  if redis.call('HGET', KEYS[4], one.container) == held[index] then redis.call('HDEL', KEYS[4], one.container) end
  redis.call('ZREM', KEYS[5], held[index] .. ' ' .. ARGV[1] .. ' ' .. one.container .. ' ' .. string.format('%d', one.epoch))
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return #held / 2
