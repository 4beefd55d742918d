-- Counts the tasks of one queue: its jobs, and the tasks in its local queues.
-- Reads only; assumes nothing of BullMQ's keys but their types.
-- KEYS: 1 wait (list)  2 active (list)  3 delayed (sorted set)  4 prioritized (sorted set)  5 local queue (hash)
-- ARGV: none
-- Answer: the five counts in that order
return {
  redis.call('LLEN', KEYS[1]),
  redis.call('LLEN', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
  redis.call('HLEN', KEYS[5]),
}
