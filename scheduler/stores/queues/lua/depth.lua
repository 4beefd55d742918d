-- Counts the jobs of one queue.
-- Reads only; assumes nothing of BullMQ's keys but their types.
-- KEYS: 1 wait (list)  2 active (list)  3 delayed (sorted set)  4 prioritized (sorted set)
-- ARGV: none
-- Answer: the four counts in that order
return {
  redis.call('LLEN', KEYS[1]),
  redis.call('LLEN', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
}
