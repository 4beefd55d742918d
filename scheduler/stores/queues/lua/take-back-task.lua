-- Makes a forwarded task its origin's again, unless a lease shows that it was sent; the receiver can no longer
-- send it. An external runner's announcement is no lease, because such a runner cannot have the task.
-- KEYS: 1 local queue (hash)  2 lease (string, JSON when it is one of ours)
-- ARGV: 1 task  2 its entry from now on  3 how its entry must start, empty: any
-- Answer: 1 when it was taken back, 0 when it was sent, is not as it must be, or nobody has it any more
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry or string.sub(entry, 1, #ARGV[3]) ~= ARGV[3] then return 0 end
if redis.call('GETRANGE', KEYS[2], 0, 0) == '{' then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
