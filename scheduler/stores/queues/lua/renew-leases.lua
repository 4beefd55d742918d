-- Lets leases live anew; one that is gone stays gone.
-- KEYS: the leases (strings)
-- ARGV: for each lease the seconds that it lives from now on
for place = 1, #KEYS do redis.call('EXPIRE', KEYS[place], ARGV[place]) end
