-- The line of machines that want to pull one image. Machines are served in the order in which they asked. A permit and
-- a place in the line are leases: the machine, or the replica that holds its question, renews them.
-- KEYS: 1 permits (sorted set: machine, by when its permit runs out)
--       2 begun (sorted set: machine, by when it got its permit)
--       3 line (sorted set: machine, by its number in the line)
--       4 places (sorted set: machine, by when its place runs out)
--       5 served (sorted set: machine that got the image, by when that stops to widen the line)
--       6 numbers (sorted set: machine, its number in the line, while it waits, pulls, or will ask again)
-- ARGV: base width, greatest width, milliseconds of a permit, of a place, after which a pull counts as slow, and for
--       which a machine with the image widens the line; `ask`, `hold`, `keep`, `again`, `done` or `pulled`; machines.
--       For `ask` each machine follows `+`, or `-` where nobody waits for its image yet: it stands behind all `+`.
-- Answer: for `ask` the number of waiting machines, then each machine's place (0: it may pull now); else 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local base, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local permit_ms, place_ms, slow_ms, served_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local permits, begun, line, places, served, numbers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
-- Numbers of machines whose image nobody waits for begin here.
local AHEAD = 2 ^ 50

local function drop_lapsed(leases, beside)
  local lapsed = redis.call('ZRANGEBYSCORE', leases, '-inf', now)
  for _, machine in ipairs(lapsed) do
    redis.call('ZREM', leases, machine)
    redis.call('ZREM', beside, machine)
    redis.call('ZREM', numbers, machine)
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
    local ahead = string.sub(ARGV[i], 1, 1) == '-'
    ARGV[i] = string.sub(ARGV[i], 2)
    local machine = ARGV[i]
    if not redis.call('ZSCORE', permits, machine) then
      local number = tonumber(redis.call('ZSCORE', numbers, machine) or nil)
      if not number or (number >= AHEAD and not ahead) then
        local below = ahead and '+inf' or '(' .. string.format('%.0f', AHEAD)
        local last = redis.call('ZREVRANGEBYSCORE', numbers, below, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
        number = math.max(tonumber(last[2]) or 0, ahead and AHEAD or 0) + 1
        redis.call('ZADD', numbers, number, machine)
      end
      redis.call('ZADD', line, number, machine)
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
elseif ARGV[7] == 'keep' then
  if redis.call('ZSCORE', permits, ARGV[8]) then hold(ARGV[8]) end
else
  for _, key in ipairs({ permits, begun, line, places }) do redis.call('ZREM', key, ARGV[8]) end
  if ARGV[7] ~= 'again' then redis.call('ZREM', numbers, ARGV[8]) end
  if ARGV[7] == 'pulled' then redis.call('ZADD', served, now + served_ms, ARGV[8]) end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, math.max(permit_ms, place_ms, served_ms)) end
return answer
