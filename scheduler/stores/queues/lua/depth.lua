-- Counts the jobs of one queue.
-- Writes nothing; assumes nothing of BullMQ's keys but their types, and that the scores of delayed jobs grow with their
-- due times.
-- KEYS: 1 wait (list)  2 active (list)  3 delayed (sorted set)  4 prioritized (sorted set)
-- 5 held tasks by queue (hash, take-flow.lua)
-- ARGV: 1 queue 2 score of delayed jobs up to which they count as due soon
-- Answer: the four counts in that order, where those delayed are without the held ones; then the held ones, and those
-- delayed that are due soon
local delayed = redis.call('ZCARD', KEYS[3])
local held = math.min(delayed, tonumber(redis.call('HGET', KEYS[5], ARGV[1]) or 0))
return {
  redis.call('LLEN', KEYS[1]),
  redis.call('LLEN', KEYS[2]),
  delayed - held,
  redis.call('ZCARD', KEYS[4]),
  held,
  math.min(delayed - held, delayed > held and redis.call('ZCOUNT', KEYS[3], '-inf', ARGV[2]) or 0),
}
