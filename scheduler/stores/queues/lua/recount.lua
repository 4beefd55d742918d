-- Sets a machine's amounts and reservations to those that the containers' rows and
-- its agent report. A reservation in flight that they cannot know yet is kept.
-- KEYS: 1 the machine's free amounts  2 its reservations  3 its leased devices  4
-- assignments of containers  5 in flight (as in reserve.lua)  6 highest fencing number
-- ARGV: 1 machine  2 schedulable (1, 0)  3 millicores in all  4 bytes of memory in all  5
-- devices in all  6 fencing number  7... assignment, its JSON (as in reserve.lua), and so on
-- The machine's total amounts are stored beside the free ones. So a
-- changed total since the last count, by any replica, is no difference.
-- Answer: {0 nothing was counted before or the caller leads no more, else 1; then
-- differences found: millicores, bytes, devices, reservations; devices leased twice}
if tonumber(ARGV[6]) < tonumber(redis.call('GET', KEYS[6]) or 0) then return { 0, 0, 0, 0, 0, 0 } end
local wanted, order = {}, {}
for index = 7, #ARGV, 2 do
  if not wanted[ARGV[index]] then order[#order + 1] = ARGV[index] end
  wanted[ARGV[index]] = ARGV[index + 1]
end
local clock = redis.call('TIME')
local nowMs = clock[1] * 1000 + math.floor(clock[2] / 1000)
local flying = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. nowMs, '+inf')) do
  local assignment, machine = string.match(member, '^(%S+) (%S+)')
  if machine == ARGV[1] then flying[assignment] = true end
end
local existed = redis.call('EXISTS', KEYS[1])
local before = redis.call('HGETALL', KEYS[2])
local known, changed = {}, 0
for index = 1, #before, 2 do
  local assignment, text = before[index], before[index + 1]
  known[assignment] = true
  if not wanted[assignment] then
    if flying[assignment] then
      wanted[assignment] = text
      order[#order + 1] = assignment
    else
      changed = changed + 1
      local container = cjson.decode(text).container
      if redis.call('HGET', KEYS[4], container) == assignment then redis.call('HDEL', KEYS[4], container) end
    end
  end
end
local cpu, memory, gpus, twice = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), 0
local leased = {}
local marksBefore = redis.call('HGETALL', KEYS[3])
local freeBefore = redis.call('HMGET', KEYS[1], 'cpu', 'memory', 'of_cpu', 'of_memory')
local offeredCpu = tonumber(ARGV[3]) - tonumber(freeBefore[3] or ARGV[3])
local offeredMemory = tonumber(ARGV[4]) - tonumber(freeBefore[4] or ARGV[4])
redis.call('DEL', KEYS[2], KEYS[3])
for _, assignment in ipairs(order) do
  local held = cjson.decode(wanted[assignment])
  if not known[assignment] then changed = changed + 1 end
  cpu = cpu - held.cpu
  memory = memory - held.memory
  for uuid in string.gmatch(held.devices, '[^,]+') do
    if leased[uuid] then
      twice = twice + 1
    else
      leased[uuid] = assignment .. ' ' .. string.format('%d', held.epoch)
      gpus = gpus - 1
      redis.call('HSET', KEYS[3], uuid, leased[uuid])
    end
  end
  redis.call('HSET', KEYS[2], assignment, wanted[assignment])
  redis.call('HSET', KEYS[4], held.container, assignment)
end
redis.call('HSET', KEYS[1], 'schedulable', ARGV[2], 'cpu', string.format('%.0f', cpu), 'memory', string.format('%.0f', memory), 'gpus', gpus, 'of_cpu', ARGV[3], 'of_memory', ARGV[4])
if existed == 0 then return { 0, 0, 0, 0, 0, twice } end
local marks, devices = {}, 0
for index = 1, #marksBefore, 2 do
  marks[marksBefore[index]] = marksBefore[index + 1]
  if leased[marksBefore[index]] ~= marksBefore[index + 1] then devices = devices + 1 end
end
for uuid in pairs(leased) do
  if not marks[uuid] then devices = devices + 1 end
end
return { 1, math.abs(cpu - offeredCpu - tonumber(freeBefore[1] or 0)), math.abs(memory - offeredMemory - tonumber(freeBefore[2] or 0)), devices, changed, twice }
