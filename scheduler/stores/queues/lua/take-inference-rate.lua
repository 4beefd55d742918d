-- Takes a request and its tokens from the rates of a workspace, or corrects tokens that were taken. A rate fills up
-- evenly: a minute fills it. Tokens may fall below nothing by as much as a minute gives, when more were used.
-- KEYS: 1 rates (hash; it expires)
-- ARGV: 1 requests a minute 2 tokens a minute (0: not bounded, likewise) 3 requests to take 4 tokens to take; negative:
-- to give back
-- Answer: 0 taken, 1 too many requests, 2 too many tokens; then milliseconds until they could be taken, requests left,
-- tokens left, milliseconds until each is full
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limits = { tonumber(ARGV[1]), tonumber(ARGV[2]) }
local kept = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local passed = math.max(0, now - tonumber(kept[3] or now))
local levels = {}
for at = 1, 2 do
  levels[at] = math.min(limits[at], tonumber(kept[at] or limits[at]) + limits[at] * passed / 60000)
end
local takes = { tonumber(ARGV[3]), math.min(limits[2], tonumber(ARGV[4])) }
local refused, waitMs = 0, 0
if takes[1] > 0 then
  for at = 2, 1, -1 do
    if limits[at] > 0 and levels[at] < takes[at] then
      refused = at
      waitMs = math.max(waitMs, math.ceil((takes[at] - levels[at]) * 60000 / limits[at]))
    end
  end
end
if refused == 0 then
  for at = 1, 2 do levels[at] = math.max(-limits[at], math.min(limits[at], levels[at] - takes[at])) end
end
redis.call('HSET', KEYS[1], 'requests', string.format('%.3f', levels[1]), 'tokens', string.format('%.3f', levels[2]), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], 180000)
local function fullMs(at)
  if limits[at] == 0 then return 0 end
  return math.ceil((limits[at] - levels[at]) * 60000 / limits[at])
end
return { refused, waitMs, math.floor(math.max(0, levels[1])), math.floor(math.max(0, levels[2])), fullMs(1), fullMs(2) }
