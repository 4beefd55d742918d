-- Gives back the resources that one assignment holds. A caller other than the
-- owner (assignment and epoch) changes nothing that is held; may be repeated.
-- KEYS: 1 the machine's free amounts  2 its reservations  3 its leased
-- devices  4 assignments of containers  5 in flight (as in reserve.lua)
-- ARGV: 1 assignment  2 epoch  3 container  4 member of the in-flight set
-- Answer: 1 released, 0 it held nothing
-- The in-flight entry goes in any case: a count may have dropped the reservation before, and left this.
redis.call('ZREM', KEYS[5], ARGV[4])
local text = redis.call('HGET', KEYS[2], ARGV[1])
if not text then return 0 end
local held = cjson.decode(text)
if held.epoch ~= tonumber(ARGV[2]) or held.container ~= ARGV[3] then return 0 end
local owner = ARGV[1] .. ' ' .. ARGV[2]
local devices = 0
for uuid in string.gmatch(held.devices, '[^,]+') do
  if redis.call('HGET', KEYS[3], uuid) == owner then
    redis.call('HDEL', KEYS[3], uuid)
    devices = devices + 1
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], 'cpu', string.format('%.0f', held.cpu))
  redis.call('HINCRBY', KEYS[1], 'memory', string.format('%.0f', held.memory))
  redis.call('HINCRBY', KEYS[1], 'gpus', devices)
end
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('HGET', KEYS[4], ARGV[3]) == ARGV[1] then redis.call('HDEL', KEYS[4], ARGV[3]) end
return 1
