-- Reads the ids of a stream's first and last entries, without the entries' data.
-- KEYS: 1 stream
-- Answer: {first id, last id}; empty when the stream is
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not first then return {} end
return { first[1], redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][1] }
