-- Writes the leases of attempts that are about to be sent, whatever stood there.
-- KEYS: leases (strings)
-- ARGV: 1 seconds they live, then one lease for each key
-- Answer: how many
for place = 1, #KEYS do
  redis.call('SET', KEYS[place], ARGV[place + 1], 'EX', ARGV[1])
end
return #KEYS
