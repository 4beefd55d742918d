-- Keeps a task's newest record and puts it on the way to the database. The key is not overwritten by an older record that came late;
-- the stream takes every record, because the store's own guard decides there.
-- A final record also drops the lease of its attempt: there is nothing left to adopt.
-- KEYS: 1 task record (string)  2 records (stream)  3 lease (string)
-- ARGV: 1 attempt  2 rank  3 record, JSON that starts {"attempt":A,"rank":R,  4 seconds the key lives  5 most entries of the stream
-- Answer: the stream's length
local attempt = tonumber(ARGV[1])
local rank = tonumber(ARGV[2])
local heldAttempt, heldRank = string.match(redis.call('GETRANGE', KEYS[1], 0, 63), '^{"attempt":(%d+),"rank":(%d+)')
heldAttempt = tonumber(heldAttempt or -1)
heldRank = tonumber(heldRank or -1)
if attempt > heldAttempt or (attempt == heldAttempt and rank >= heldRank) then
  redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
end
if rank >= 3 then
  redis.call('DEL', KEYS[3])
end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'record', ARGV[3])
return redis.call('XLEN', KEYS[2])
