-- Gives a task of a queue its place among the turns of keys (start-time fair queueing). A key's next turn is after its
-- last one, and never before the turn that the queue is at.
-- KEYS: 1 turns of the queue (sorted set: key, the end of its last turn; '' is the queue itself; it expires)
-- ARGV: 1 key, with a letter before it 2 length of a turn of this key
-- Answer: the place, as text
local at = tonumber(redis.call('ZSCORE', KEYS[1], '') or 0)
local turn = math.max(at, tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0))
redis.call('ZADD', KEYS[1], string.format('%.6f', turn + tonumber(ARGV[2])), ARGV[1])
-- Keys whose turns are over begin at the queue's turn again.
local past = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. at, 'LIMIT', 0, 100)
if #past > 0 then redis.call('ZREM', KEYS[1], unpack(past)) end
redis.call('PEXPIRE', KEYS[1], 30 * 86400 * 1000)
return string.format('%.6f', turn)
