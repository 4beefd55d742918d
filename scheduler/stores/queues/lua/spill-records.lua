-- Appends a batch of task records to the list that keeps them while the database is away.
-- KEYS: 1 batches (list)  2 totals (hash: records, bytes)
-- ARGV: 1 the batch (JSON that starts {"id":"<36 characters>"), 2 the number of its records
-- Answer: records and bytes in the list
redis.call('RPUSH', KEYS[1], ARGV[1])
return {
  redis.call('HINCRBY', KEYS[2], 'records', ARGV[2]),
  redis.call('HINCRBY', KEYS[2], 'bytes', #ARGV[1]),
}
