-- The line of machines that want to pull one image. Machines are served in the order in which they asked. A permit and
-- a place in the line are leases: the machine, or the replica that holds its question, renews them.
-- KEYS: 1 permits (sorted set: machine, by when its permit runs out)
--       2 begun (sorted set: machine, by when it got its permit)
--       3 line (sorted set: machine, by its number in the line)
--       4 places (sorted set: machine, by when its place runs out)
--       5 served (sorted set: machine that got the image, by when that stops to widen the line)
-- ARGV: base width, greatest width, milliseconds of a permit, of a place, after which a pull counts as slow, and for
--       which a machine with the image widens the line; `ask`, `hold`, `done` or `pulled`; machines
-- Answer: for `ask` the number of waiting machines, then each machine's place (0: it may pull now); else 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local base, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local permit_ms, place_ms, slow_ms, served_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local permits, begun, line, places, served = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function drop_lapsed(leases, beside)
  local lapsed = redis.call('ZRANGEBYSCORE', leases, '-inf', now)
  for _, machine in ipairs(lapsed) do
    redis.call('ZREM', leases, machine)
    redis.call('ZREM', beside, machine)
  end
end
drop_lapsed(permits, begun)
drop_lapsed(places, line)
redis.call('ZREMRANGEBYSCORE', served, '-inf', now)

local function hold(machine)
  redis.call('ZREM', line, machine)
  redis.call('ZREM', places, machine)
  redis.call('ZADD', permits, now + permit_ms, machine)
  redis.call('ZADD', begun, 'NX', now, machine)
end

local answer = 0
if ARGV[7] == 'ask' then
  for i = 8, #ARGV do
    local machine = ARGV[i]
    if not redis.call('ZSCORE', permits, machine) then
      if not redis.call('ZSCORE', line, machine) then
        local last = redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')
        redis.call('ZADD', line, (tonumber(last[2]) or 0) + 1, machine)
      end
      redis.call('ZADD', places, now + place_ms, machine)
    end
  end
  -- A pull that is slow lends its width to the next machine, so that it does not hold up the line.
  local slow = redis.call('ZCOUNT', begun, '-inf', now - slow_ms)
  local width = math.min(most, base + redis.call('ZCARD', served) + slow)
  local free = width - redis.call('ZCARD', permits)
  local asked = {}
  for i = 8, #ARGV do asked[i] = redis.call('ZRANK', line, ARGV[i]) end
  for i = 8, #ARGV do
    if not asked[i] or asked[i] < free then
      hold(ARGV[i])
    end
  end
  answer = { redis.call('ZCARD', line) }
  for i = 8, #ARGV do
    local rank = redis.call('ZRANK', line, ARGV[i])
    answer[i - 6] = rank and rank + 1 or 0
  end
elseif ARGV[7] == 'hold' then
  hold(ARGV[8])
else
  for _, key in ipairs({ permits, begun, line, places }) do redis.call('ZREM', key, ARGV[8]) end
  if ARGV[7] == 'pulled' then redis.call('ZADD', served, now + served_ms, ARGV[8]) end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, math.max(permit_ms, place_ms, served_ms)) end
return answer
