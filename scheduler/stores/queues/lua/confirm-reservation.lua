-- Confirms a reservation whose assignment the row names now: it is in flight no more.
-- KEYS: 1 the machine's reservations  2 in flight
-- ARGV: 1 assignment  2 member of the in-flight set
-- Answer: 1 it is held, 0 it was released meanwhile
redis.call('ZREM', KEYS[2], ARGV[2])
return redis.call('HEXISTS', KEYS[1], ARGV[1])
