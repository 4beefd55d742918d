-- Takes or renews the leader's lease. A new holder gets a new fencing number, above the highest one the caller
-- knows. The number is not below the server's clock either, so it grows even when Redis came back without its data.
-- KEYS: 1 lease (string)  2 fencing number (string)
-- ARGV: 1 instance  2 milliseconds the lease lasts  3 highest fencing number the caller knows of
-- Answer: {1 when held else 0, fencing number, milliseconds another's lease has left}
local holder = redis.call('GET', KEYS[1])
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if holder and holder ~= ARGV[1] then
  return { 0, last, redis.call('PTTL', KEYS[1]) }
end
if holder == ARGV[1] and last > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { 1, last, 0 }
end
local clock = tonumber(redis.call('TIME')[1]) - 1700000000
local fence = math.max(last + 1, tonumber(ARGV[3]) + 1, clock)
redis.call('SET', KEYS[2], string.format('%d', fence))
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return { 1, fence, 0 }
