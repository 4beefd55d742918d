-- Removes the first batch of spilled task records, which the database has now. Two leaders may have read the same
-- batch. The id makes sure that the second one does not remove the next batch.
-- KEYS: 1 batches (list)  2 totals (hash: records, bytes)
-- ARGV: 1 id of the batch, 2 the number of its records
-- Answer: records and bytes left in the list
local head = redis.call('LINDEX', KEYS[1], 0)
if head and string.sub(head, 8, 43) == ARGV[1] then
  redis.call('LPOP', KEYS[1])
  redis.call('HINCRBY', KEYS[2], 'records', -ARGV[2])
  redis.call('HINCRBY', KEYS[2], 'bytes', -#head)
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
local left = redis.call('HMGET', KEYS[2], 'records', 'bytes')
return { tonumber(left[1] or 0), tonumber(left[2] or 0) }
