-- Drops a lease, if it is still that attempt's, and takes it off the list of its machine.
-- KEYS: 1 lease (string, JSON that starts {"lock":"…)  2 leases by machine (as in write-leases.lua)
-- ARGV: 1 lock token; empty: any
-- Answer: 1 when it was dropped
local held = redis.call('GETRANGE', KEYS[1], 0, 511)
local machine = string.match(held, '^{"lock":"[^"]*","attempt":%d+,"containerId":"[^"]*","machineId":"([^"]*)"')
if ARGV[1] ~= '' and string.match(held, '^{"lock":"([^"]*)"') ~= ARGV[1] then return 0 end
if machine then redis.call('ZREM', KEYS[2], machine .. ':' .. string.match(KEYS[1], '[^:]+$')) end
return redis.call('DEL', KEYS[1])
