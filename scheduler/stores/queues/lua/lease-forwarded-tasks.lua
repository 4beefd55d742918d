-- Writes the leases of attempts of forwarded tasks before they are sent. Each
-- is written only while its forwarding stands and no other attempt has the task.
-- KEYS: 1 leases by machine (as in write-leases.lua), then for each: lease (string), local queue of its queue (hash)
-- ARGV: 1 seconds the leases live, 2 text of an external runner's announcement, which does
-- not count, then for each: its task, beginning of an entry forwarded to this replica, its lease
-- Answer: places of the leases that were refused, from 1
local refused = {}
for place = 1, (#KEYS - 1) / 2 do
  local key, lane = KEYS[2 * place], KEYS[2 * place + 1]
  local task, mark, lease = ARGV[3 * place], ARGV[3 * place + 1], ARGV[3 * place + 2]
  local held = redis.call('GET', key)
  local entry = redis.call('HGET', lane, task)
  if held and held ~= ARGV[2] and held ~= lease or not entry or string.sub(entry, 1, #mark) ~= mark then
    refused[#refused + 1] = place
  else
    redis.call('SET', key, lease, 'EX', ARGV[1])
    local machine = string.match(lease, '^{"lock":"[^"]*","attempt":%d+,"containerId":"[^"]*","machineId":"([^"]*)"')
    if machine then redis.call('ZADD', KEYS[1], 0, machine .. ':' .. task) end
  end
end
return refused
