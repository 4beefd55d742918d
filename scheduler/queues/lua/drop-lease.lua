-- Drops a lease, if it is still that attempt's.
-- KEYS: 1 lease (string, JSON that starts {"lock":"…")
-- ARGV: 1 lock token
-- Answer: 1 when it was dropped
if string.match(redis.call('GETRANGE', KEYS[1], 0, 255), '^{"lock":"([^"]*)"') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
