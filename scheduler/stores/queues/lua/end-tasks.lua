-- Removes what Redis keeps of attempts whose task has a final record: the lease, and the entry of a synchronous task in
-- the local queue. Those of a newer attempt stay.
-- KEYS: 1 leases by machine (as in write-leases.lua), then for each task its lease (string) and the local queue of its
-- queue (hash)
-- ARGV: for each task the number of the attempt that ended, and its id where it may be in a local queue, else empty
for at = 1, #ARGV, 2 do
  local lease = KEYS[at + 1]
  local held = redis.call('GETRANGE', lease, 0, 511)
  local attempt, machine = string.match(held, '^{"lock":"[^"]*","attempt":(%d+),"containerId":"[^"]*","machineId":"([^"]*)"')
  if not attempt or tonumber(attempt) <= tonumber(ARGV[at]) then
    if held ~= '' then redis.call('DEL', lease) end
    if machine then redis.call('ZREM', KEYS[1], machine .. ':' .. string.match(lease, '[^:]+$')) end
    if ARGV[at + 1] ~= '' then redis.call('HDEL', KEYS[at + 2], ARGV[at + 1]) end
  end
end
return 0
