-- Lets tasks into the local queue of one queue, in the order given, within its bound. None enters while jobs wait in
-- the queue, because they are older. A forwarded task is published to its receiver here, after its entry is written.
-- KEYS: 1 wait (list)  2 active (list)  3 delayed (sorted set)  4
-- prioritized (sorted set)  5 local queue (hash)  6 queues with local queues (set)
-- ARGV: 1 queue, then for each task: its id, most tasks the queue may have,
-- its entry, the channel of the replica that it is forwarded to, else empty
-- Answer: for each task the depth with it; 0 when jobs wait; above the bound, the depth it would
-- have had, negative. Then the number of jobs in the queue, and the number of tasks in its local queues
local answers = {}
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[4])
local jobs = waiting + redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3])
local inLane = redis.call('HLEN', KEYS[5])
local depth = jobs + inLane
local channels, lent = {}, {}
for at = 2, #ARGV, 4 do
  local answer = 0
  if waiting == 0 then
    if depth >= tonumber(ARGV[at + 1]) then
      answer = -depth - 1
    else
      if inLane == 0 then redis.call('SADD', KEYS[6], ARGV[1]) end
      redis.call('HSET', KEYS[5], ARGV[at], ARGV[at + 2])
      inLane = inLane + 1
      depth = depth + 1
      answer = depth
      local channel = ARGV[at + 3]
      if channel ~= '' then
        if not lent[channel] then
          lent[channel] = {}
          channels[#channels + 1] = channel
        end
        table.insert(lent[channel], ARGV[at + 2])
      end
    end
  end
  answers[#answers + 1] = answer
end
for _, channel in ipairs(channels) do
  redis.call('PUBLISH', channel, '[{"queue":' .. cjson.encode(ARGV[1]) .. ',"lent":[' .. table.concat(lent[channel], ',') .. ']}]')
end
answers[#answers + 1] = jobs
answers[#answers + 1] = inLane
return answers
