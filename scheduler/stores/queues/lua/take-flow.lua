-- Gives a task the slots of all its controls, or lets it wait for the first control that has none. A control is a text
-- (a key of a queue), with the most tasks that may have a slot of it. A task that has its slots keeps them. A throttle
-- is asked when the slots are there, and a task whose turn comes later takes none.
-- KEYS: 1 tasks (hash: task, JSON of q queue, o place in line, c controls with their most, h the full one)
-- 2 slots (sorted set of one score: control NUL task) 3 held tasks (likewise: control NUL place NUL task)
-- 4 held tasks by queue (hash) 5 paces of the workspace (take-pace.lua)
-- ARGV: 1 task 2 queue 3 place in line, which sorts as text 4 force: the task runs, so it has its slots in any case
-- 5 throttle, empty: none 6 milliseconds between two starts 7 now 8 reserve: a turn that comes later is this task's
-- 9.. control, most, control, most, ...
-- Answer: 1 the task has its slots, 0 it is held, else the time of its turn
local text = redis.call('HGET', KEYS[1], ARGV[1])
local known = text and cjson.decode(text)
local function turn()
  if ARGV[5] == '' then return nil end
  local now = tonumber(ARGV[7])
  local at = math.max(now, tonumber(redis.call('ZSCORE', KEYS[5], 'start:' .. ARGV[5]) or 0))
  -- A turn that is almost there has come: the one behind it does not come earlier for that.
  if at - now <= math.min(100, tonumber(ARGV[6]) / 10) then now = at end
  if at <= now or ARGV[8] == 'reserve' then
    redis.call('ZADD', KEYS[5], at + tonumber(ARGV[6]), 'start:' .. ARGV[5])
    local last = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIRE', KEYS[5], math.ceil(math.max(0, tonumber(last) - now)) + 60000)
  end
  if at > now then return math.ceil(at) end
end
if known and not known.h then return turn() or 1 end
local blocked = nil
local controls = {}
for at = 9, #ARGV, 2 do
  local control = ARGV[at]
  controls[#controls + 1] = { control, tonumber(ARGV[at + 1]) }
  if not blocked and ARGV[4] ~= 'force' then
    local taken = redis.call('ZLEXCOUNT', KEYS[2], '[' .. control .. '\0', '(' .. control .. '\1')
    if taken >= tonumber(ARGV[at + 1]) then blocked = control end
  end
end
if known then
  if known.h == blocked then return 0 end
  redis.call('ZREM', KEYS[3], known.h .. '\0' .. known.o .. '\0' .. ARGV[1])
end
local at = not blocked and turn()
if at then
  if known then
    redis.call('HDEL', KEYS[1], ARGV[1])
    if redis.call('HINCRBY', KEYS[4], ARGV[2], -1) <= 0 then redis.call('HDEL', KEYS[4], ARGV[2]) end
  end
  return at
end
if #controls == 0 then return 1 end
local entry = { q = ARGV[2], o = ARGV[3], c = controls, h = blocked }
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(entry))
if blocked then
  redis.call('ZADD', KEYS[3], 0, blocked .. '\0' .. ARGV[3] .. '\0' .. ARGV[1])
  if not known then redis.call('HINCRBY', KEYS[4], ARGV[2], 1) end
  return 0
end
for _, control in ipairs(controls) do redis.call('ZADD', KEYS[2], 0, control[1] .. '\0' .. ARGV[1]) end
if known and redis.call('HINCRBY', KEYS[4], ARGV[2], -1) <= 0 then redis.call('HDEL', KEYS[4], ARGV[2]) end
return 1
