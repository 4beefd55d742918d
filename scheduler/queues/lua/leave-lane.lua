-- Takes a task out of the lane of its queue, if nobody has a lease of it: it was not sent. Nor may a runner that is not ours take it, which has announced itself so: its replica might send it, not hearing of that.
-- KEYS: 1 lane (hash)  2 lease (string)
-- ARGV: 1 task
-- Answer: 1 when it was taken out
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
