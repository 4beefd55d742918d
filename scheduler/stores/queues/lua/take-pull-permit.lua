-- Takes or renews a permit among the machines that pull one image. The
-- permit is held until it runs out; removing the member gives it back.
-- KEYS: 1 permits of the image (sorted set: machine, by when it runs out)
-- ARGV: machine, most permits, milliseconds a permit is held
-- Answer: 1 when the machine has a permit, else 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
