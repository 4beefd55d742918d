-- Takes or renews the leader's lease. A new holder gets a new fencing number; it also follows the server's clock, so that it grows
-- even when Redis came back without its data.
-- KEYS: 1 lease (string)  2 fencing number (string)
-- ARGV: 1 instance  2 milliseconds the lease lasts
-- Answer: {fencing number, 0} when held, else {0, milliseconds the other's lease has left}
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { tonumber(redis.call('GET', KEYS[2])), 0 }
end
if holder and holder ~= ARGV[1] then
  return { 0, redis.call('PTTL', KEYS[1]) }
end
local fence = redis.call('INCR', KEYS[2])
local floor = tonumber(redis.call('TIME')[1]) - 1700000000
if fence < floor then
  fence = floor
  redis.call('SET', KEYS[2], fence)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return { fence, 0 }
