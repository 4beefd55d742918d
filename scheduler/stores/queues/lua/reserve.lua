-- Reserves one machine's resources for one assignment, all or nothing, after it has verified
-- everything again. The reservation is in flight until it is confirmed; past its deadline
-- the leader checks the container's row. Repeating it under the same assignment is success.
-- KEYS: 1 the machine's free amounts (hash: schedulable, cpu, memory, gpus)  2 its reservations (hash:
-- assignment -> JSON)  3 its leased devices (hash: uuid -> `assignment epoch`)       4 assignments of containers
-- (hash: container -> assignment)  5 in flight (sorted set: member -> deadline)  6 highest fencing number
-- ARGV: 1 assignment  2 epoch  3 container  4 millicores  5 bytes of memory  6 member of
-- the in-flight set  7 milliseconds it may be in flight  8 fencing number  9... devices
-- Answer: 'reserved', or why not
if tonumber(ARGV[8]) < tonumber(redis.call('GET', KEYS[6]) or 0) then return 'stale_leader' end
local before = redis.call('HGET', KEYS[2], ARGV[1])
if before then
  if cjson.decode(before).epoch == tonumber(ARGV[2]) then return 'reserved' end
  return 'already_assigned'
end
local schedulable, cpu, memory, gpus = unpack(redis.call('HMGET', KEYS[1], 'schedulable', 'cpu', 'memory', 'gpus'))
if not schedulable then return 'unknown_machine' end
if schedulable ~= '1' then return 'not_schedulable' end
if redis.call('HEXISTS', KEYS[4], ARGV[3]) == 1 then return 'already_assigned' end
local devices = {}
for index = 9, #ARGV do devices[#devices + 1] = ARGV[index] end
if tonumber(cpu) < tonumber(ARGV[4]) then return 'cpu' end
if tonumber(memory) < tonumber(ARGV[5]) then return 'memory' end
if tonumber(gpus) < #devices then return 'gpu_count' end
for _, uuid in ipairs(devices) do
  if redis.call('HEXISTS', KEYS[3], uuid) == 1 then return 'gpu_taken' end
end
local owner = ARGV[1] .. ' ' .. ARGV[2]
for _, uuid in ipairs(devices) do redis.call('HSET', KEYS[3], uuid, owner) end
-- The subtraction is 0 - x, because -0 is written '-0', which is no integer to Redis.
redis.call('HINCRBY', KEYS[1], 'cpu', 0 - ARGV[4])
redis.call('HINCRBY', KEYS[1], 'memory', 0 - ARGV[5])
redis.call('HINCRBY', KEYS[1], 'gpus', 0 - #devices)
redis.call('HSET', KEYS[2], ARGV[1], cjson.encode({
  container = ARGV[3], epoch = tonumber(ARGV[2]), cpu = tonumber(ARGV[4]), memory = tonumber(ARGV[5]), devices = table.concat(devices, ','),
}))
redis.call('HSET', KEYS[4], ARGV[3], ARGV[1])
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[5], clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[7], ARGV[6])
return 'reserved'
