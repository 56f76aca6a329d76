-- Adds to a tenant's counters of a day, once for each numbered call of a writer.
--
-- KEYS  1 the counters: a hash, which also has of each writer the number of its last call
-- ARGV  1 the writer's field, 2 the call's number, 3 for how many seconds the counters are kept,
--       then fields and what to add to each
-- Returns 1, or 0 if it was added before.

if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
for at = 4, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
