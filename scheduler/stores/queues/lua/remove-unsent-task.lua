-- Takes a task out of the local queue of its queue, unless a lease shows that it was sent. An external runner's
-- announcement blocks this, too: the task's replica might not hear of the removal, and send the task.
-- KEYS: 1 local queue (hash)  2 lease (string)
-- ARGV: 1 task
-- Answer: 1 when it was taken out
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
