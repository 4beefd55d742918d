-- Writes the leases of attempts: over any lease, or only where none stands. Each is also listed by its machine.
-- KEYS: 1 leases by machine (sorted set of machine:task, all with score 0), then the leases (strings)
-- ARGV: 1 seconds they live, 2 over or free (only where none stands), then for each lease key its lease, and then
-- for each its machine:task
for place = 1, #KEYS - 1 do
  local key, lease = KEYS[place + 1], ARGV[place + 2]
  local written
  if ARGV[2] == 'over' then
    written = redis.call('SET', key, lease, 'EX', ARGV[1])
  else
    written = redis.call('SET', key, lease, 'EX', ARGV[1], 'NX')
  end
  if written then redis.call('ZADD', KEYS[1], 0, ARGV[#KEYS + 1 + place]) end
end
return 0
