-- Renews holds, and notes the usage of their requests so far.
-- KEYS: 1 deadlines of holds (sorted set) 2 usage noted (hash)
-- ARGV: 1 milliseconds until a hold lapses, then for each hold: request, usage (JSON) or empty
-- Answer: the requests that have no hold
local time = redis.call('TIME')
local untilMs = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1])
local missing = {}
for at = 2, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[at]) then
    redis.call('ZADD', KEYS[1], untilMs, ARGV[at])
    if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
  else
    missing[#missing + 1] = ARGV[at]
  end
end
return missing
