-- Removes the leases of attempts whose task has a final record. Those of a newer attempt stay.
-- KEYS: 1 leases by machine (as in write-leases.lua), then for each task its lease (string)
-- ARGV: for each task the number of the attempt that ended
for at = 1, #ARGV do
  local lease = KEYS[at + 1]
  local held = redis.call('GETRANGE', lease, 0, 511)
  local attempt, machine = string.match(held, '^{"lock":"[^"]*","attempt":(%d+),"containerId":"[^"]*","machineId":"([^"]*)"')
  if not attempt or tonumber(attempt) <= tonumber(ARGV[at]) then
    if held ~= '' then redis.call('DEL', lease) end
    if machine then redis.call('ZREM', KEYS[1], machine .. ':' .. string.match(lease, '[^:]+$')) end
  end
end
return 0
