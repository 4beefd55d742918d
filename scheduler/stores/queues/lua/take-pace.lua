-- Counts a call in the rate of its key, and gives its task a turn under the throttle of its key. A pace is one number
-- (GCRA): of a rate, when all its calls are forgotten; of a throttle, when the next turn is.
-- KEYS: 1 paces of the workspace (sorted set: rate, ask: throttle, or start: throttle (take-flow.lua); it expires)
-- ARGV: 1 now 2 most members 3 rate, empty: none 4 milliseconds of a call 5 milliseconds of all that may come at once
-- 6 throttle, empty: none 7 milliseconds between two starts
-- Answer: 0 taken, then the time of the turn (0: at once), and when the next turn is, as text; 1 too often, then
-- milliseconds until a call may come again; 2 there are too many members
local now = tonumber(ARGV[1])
local past = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[1], 'LIMIT', 0, 100)
if #past > 0 then redis.call('ZREM', KEYS[1], unpack(past)) end
local function at(member)
  return tonumber(redis.call('ZSCORE', KEYS[1], member) or 0)
end
local rate, ask = ARGV[3], 'ask:' .. ARGV[6]
local fresh = 0
if rate ~= '' and at(rate) == 0 then fresh = fresh + 1 end
if ARGV[6] ~= '' and at(ask) == 0 then fresh = fresh + 1 end
if fresh > 0 and redis.call('ZCARD', KEYS[1]) + fresh > tonumber(ARGV[2]) then return { 2, 0 } end
if rate ~= '' then
  local full = math.max(now, at(rate)) + tonumber(ARGV[4])
  local over = full - now - tonumber(ARGV[5])
  -- Sums of fractions are not exact.
  if over > 0.5 then return { 1, math.ceil(over) } end
  redis.call('ZADD', KEYS[1], string.format('%.3f', full), rate)
end
local turn = 0
if ARGV[6] ~= '' then
  turn = math.max(now, at(ask), at('start:' .. ARGV[6]))
  redis.call('ZADD', KEYS[1], string.format('%.3f', turn + tonumber(ARGV[7])), ask)
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIRE', KEYS[1], math.ceil(math.max(0, tonumber(last) - now)) + 60000)
local next = ARGV[6] ~= '' and redis.call('ZSCORE', KEYS[1], ask)
return { 0, turn > now and math.ceil(turn) or 0, next or '' }
