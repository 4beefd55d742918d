-- Ends the hold of a request, and puts its entry on the ledger unless that is empty. Without a hold the entry is put
-- all the same: Redis may have lost the hold, and the database keeps one row of a request.
-- KEYS: 1 account (hash) 2 holds (hash) 3 deadlines of holds (sorted set) 4 usage noted (hash: request, usage)
-- 5 ledger (stream)
-- ARGV: 1 request 2 its micro-units held 3 entry (JSON), or empty 4 its cost 5 `overdue`: only when the hold lapsed
-- Answer: 1; 0 when the hold is gone or has not lapsed
if ARGV[5] == 'overdue' then
  local time = redis.call('TIME')
  local untilMs = redis.call('ZSCORE', KEYS[3], ARGV[1])
  if not untilMs or tonumber(untilMs) > time[1] * 1000 + math.floor(time[2] / 1000) then return 0 end
end
if redis.call('ZREM', KEYS[3], ARGV[1]) == 1 then
  redis.call('HDEL', KEYS[2], ARGV[1])
  if ARGV[2] ~= '0' then redis.call('HINCRBY', KEYS[1], 'held', '-' .. ARGV[2]) end
end
redis.call('HDEL', KEYS[4], ARGV[1])
if ARGV[3] ~= '' then
  redis.call('XADD', KEYS[5], '*', 'entry', ARGV[3])
  if ARGV[4] ~= '0' then redis.call('HINCRBY', KEYS[1], 'pending', ARGV[4]) end
end
return 1
