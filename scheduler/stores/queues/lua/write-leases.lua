-- Writes the leases of attempts that are about to be sent: over any lease, or
-- only where no other attempt's stands. Each is also listed by its machine.
-- KEYS: 1 leases by machine (sorted set of machine:task, all with score 0), then the leases (strings)
-- ARGV: 1 seconds they live (o), 2 the same (n), 3 one letter for each lease (o: over
-- everything, n: only where none stands), 4 text of an external runner's announcement, which
-- does not count, then for each lease key its lease, and after these for each its machine:task
-- Answer: places of the leases that another attempt's lease refused, from 1
local refused = {}
for place = 1, #KEYS - 1 do
  local key, lease = KEYS[place + 1], ARGV[place + 4]
  local written = true
  if string.sub(ARGV[3], place, place) == 'o' then
    redis.call('SET', key, lease, 'EX', ARGV[1])
  elseif not redis.call('SET', key, lease, 'EX', ARGV[2], 'NX') then
    local held = redis.call('GET', key)
    if held == ARGV[4] then
      redis.call('SET', key, lease, 'EX', ARGV[2])
    elseif held ~= lease then
      refused[#refused + 1] = place
      written = false
    end
  end
  if written then redis.call('ZADD', KEYS[1], 0, ARGV[#KEYS + 3 + place]) end
end
return refused
