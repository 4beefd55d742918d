-- Gives a turn under a throttle back that no task has after all, unless a later one was given since.
-- KEYS: 1 paces of the workspace (take-pace.lua)
-- ARGV: 1 throttle 2 when the next turn is, as take-pace.lua answered 3 milliseconds between two starts
local ask = 'ask:' .. ARGV[1]
if redis.call('ZSCORE', KEYS[1], ask) ~= ARGV[2] then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.3f', tonumber(ARGV[2]) - tonumber(ARGV[3])), ask)
return 1
