-- Keeps a task's newest record and puts it on the way to the database. A record that came too late changes nothing and goes nowhere: an older attempt's, an earlier moment of the same one,
-- anything after a final status but the late COMPLETE of the last attempt (the rule of mayReplace in tasks/state.ts; the store has it too).
-- How an attempt ended is written in the tick of its fenced call, before its answer is known; so the lease of a newer attempt refuses it here.
-- A final record also drops the lease of its attempt: there is nothing left to adopt.
-- KEYS: 1 task record (string)  2 records (stream)  3 lease (string)
-- ARGV: 1 attempt  2 rank  3 record, JSON that starts {"attempt":A,"rank":R,  4 seconds the key lives  5 most entries of the stream  6 1: it says how an attempt ended
-- Answer: the stream's length; -1 refused by the record that is known; -2 refused by the lease of a newer attempt
local attempt = tonumber(ARGV[1])
local rank = tonumber(ARGV[2])
local heldAttempt, heldRank = string.match(redis.call('GETRANGE', KEYS[1], 0, 63), '^{"attempt":(%d+),"rank":(%d+)')
heldAttempt = tonumber(heldAttempt or -1)
heldRank = tonumber(heldRank or -1)
if heldRank >= 3 then
  -- The same one again is no news, and no mistake.
  if attempt == heldAttempt and rank == heldRank then return redis.call('XLEN', KEYS[2]) end
  if not (heldRank == 3 and rank == 4 and attempt >= heldAttempt) then return -1 end
elseif attempt < heldAttempt or (attempt == heldAttempt and rank < heldRank) then
  return -1
end
if rank >= 3 then
  if ARGV[6] == '1' then
    local leased = string.match(redis.call('GETRANGE', KEYS[3], 0, 511), '^{"lock":"[^"]*","attempt":(%d+)')
    if leased and tonumber(leased) > attempt then return -2 end
  end
  redis.call('DEL', KEYS[3])
end
redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'record', ARGV[3])
return redis.call('XLEN', KEYS[2])
