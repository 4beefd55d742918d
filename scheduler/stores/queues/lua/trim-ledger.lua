-- Takes entries off the ledger that the database has. Each lowers its account's pending costs once, also when two
-- leaders drain at the same time.
-- KEYS: 1 ledger (stream), then for each entry its account (hash)
-- ARGV: for each entry: its id, its cost
-- Answer: the entries left
for place = 2, #KEYS do
  local at = 2 * place - 3
  if redis.call('XDEL', KEYS[1], ARGV[at]) == 1 and ARGV[at + 1] ~= '0' then
    redis.call('HINCRBY', KEYS[place], 'pending', '-' .. ARGV[at + 1])
  end
end
return redis.call('XLEN', KEYS[1])
