-- Holds the largest cost of a request, when the account of its workspace allows that. An account's available amount is
-- its balance less the ledger entries on their way to the database and less the holds. The same request again only
-- renews its hold.
-- KEYS: 1 account (hash) 2 holds (hash: request, hold as JSON) 3 deadlines of holds (sorted set: request, by time)
-- 4 ledger (stream)
-- ARGV: 1 request 2 hold as JSON 3 micro-units to hold 4 milliseconds until the hold lapses 5 month (YYYY-MM)
-- 6 what is checked: all, bound (only the length of the ledger) or nothing 7 most entries of the ledger
-- Answer: 1 held, 0 the account is not known here, -1 the balance does not cover it, -2 it would exceed the spend
-- limit, -3 the ledger has too many entries on their way
local time = redis.call('TIME')
local untilMs = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4])
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  redis.call('ZADD', KEYS[3], untilMs, ARGV[1])
  return 1
end
if ARGV[6] ~= 'nothing' and redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[7]) then return -3 end
if ARGV[6] == 'all' then
  local account = redis.call('HMGET', KEYS[1], 'revision', 'mode', 'balance', 'limit', 'spent', 'month', 'pending', 'held')
  if not account[1] then return 0 end
  local amount = tonumber(ARGV[3])
  local open = tonumber(account[7] or 0) + tonumber(account[8] or 0)
  if account[2] == 'prepaid' then
    local available = tonumber(account[3]) - open
    if available <= 0 or available < amount then return -1 end
  end
  if account[4] ~= '' then
    local spent = 0
    if account[6] >= ARGV[5] then spent = tonumber(account[5]) end
    local left = tonumber(account[4]) - spent - open
    if left <= 0 or left < amount then return -2 end
  end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], untilMs, ARGV[1])
if ARGV[3] ~= '0' then redis.call('HINCRBY', KEYS[1], 'held', ARGV[3]) end
return 1
