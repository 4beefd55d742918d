-- Keeps an account as the database has it, unless a later state of it is known.
-- KEYS: 1 account (hash)
-- ARGV: revision, mode, balance, spend limit or empty, costs of the month, month
local known = redis.call('HGET', KEYS[1], 'revision')
if known and tonumber(known) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'mode', ARGV[2], 'balance', ARGV[3], 'limit', ARGV[4], 'spent', ARGV[5], 'month', ARGV[6])
return 1
