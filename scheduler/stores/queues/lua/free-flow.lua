-- Takes a task off its controls, and gives the slots that are free then to the tasks that wait longest. Without a task,
-- only the second.
-- KEYS: as take-flow.lua
-- ARGV: 1 task; empty: none 2 most tasks that get their slots in this step 3.. controls to look at, where no task is
-- named
-- Answer: the tasks that got their slots, each with its queue: queue, task, queue, task, ...
local controls = {}
if ARGV[1] == '' then
  for at = 3, #ARGV do controls[#controls + 1] = ARGV[at] end
else
  local text = redis.call('HGET', KEYS[1], ARGV[1])
  if not text then return {} end
  local entry = cjson.decode(text)
  redis.call('HDEL', KEYS[1], ARGV[1])
  if entry.h then
    redis.call('ZREM', KEYS[3], entry.h .. '\0' .. entry.o .. '\0' .. ARGV[1])
    if redis.call('HINCRBY', KEYS[4], entry.q, -1) <= 0 then redis.call('HDEL', KEYS[4], entry.q) end
    return {}
  end
  for _, control in ipairs(entry.c) do
    redis.call('ZREM', KEYS[2], control[1] .. '\0' .. ARGV[1])
    controls[#controls + 1] = control[1]
  end
end
local function full(control)
  return redis.call('ZLEXCOUNT', KEYS[2], '[' .. control[1] .. '\0', '(' .. control[1] .. '\1') >= control[2]
end
local promoted = {}
local left = tonumber(ARGV[2])
for _, control in ipairs(controls) do
  while left > 0 do
    left = left - 1
    local member = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. control .. '\0', '(' .. control .. '\1', 'LIMIT', 0, 1)[1]
    if not member then break end
    local task = string.match(member, '%z([^%z]*)$')
    local text = redis.call('HGET', KEYS[1], task)
    local entry = text and cjson.decode(text)
    if not entry or entry.h ~= control then
      redis.call('ZREM', KEYS[3], member)
    else
      local blocked = nil
      for _, one in ipairs(entry.c) do
        if not blocked and full(one) then blocked = one[1] end
      end
      if blocked == control then break end
      redis.call('ZREM', KEYS[3], member)
      entry.h = blocked
      redis.call('HSET', KEYS[1], task, cjson.encode(entry))
      if blocked then
        redis.call('ZADD', KEYS[3], 0, blocked .. '\0' .. entry.o .. '\0' .. task)
      else
        for _, one in ipairs(entry.c) do redis.call('ZADD', KEYS[2], 0, one[1] .. '\0' .. task) end
        if redis.call('HINCRBY', KEYS[4], entry.q, -1) <= 0 then redis.call('HDEL', KEYS[4], entry.q) end
        promoted[#promoted + 1] = entry.q
        promoted[#promoted + 1] = task
      end
    end
  end
end
return promoted
