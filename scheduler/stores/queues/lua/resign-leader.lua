-- Gives the leader's lease back, if the caller still holds it.
-- KEYS: 1 lease (string)
-- ARGV: 1 instance
-- Answer: 1 when it was given back
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
