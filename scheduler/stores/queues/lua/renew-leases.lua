-- Lets leases live anew; one that is gone stays gone.
-- KEYS: the leases (strings)
-- ARGV: 1 seconds that they live from now on
for place = 1, #KEYS do redis.call('EXPIRE', KEYS[place], ARGV[1]) end
