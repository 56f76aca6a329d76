-- Appends a batch of entries to the usage ledger, once however often it is sent. Version 1, "lw1".
--
-- Runs on Redis 6.2 and later. Both keys share a hash tag.
--
-- KEYS  1 entries  stream: field "e" holds an entry as JSON
--       2 writer   string: number of the last batch of this writer that was appended
-- ARGV  1 the batch's number, one more than the writer's last   2 the most entries to keep
--       3 seconds to remember the writer   then the entries
--
-- Returns: entries dropped at the old end to keep to the most, and how many there are now.
-- What is dropped was never exported: exporting deletes.

local number = tonumber(ARGV[1])
if number <= tonumber(redis.call('GET', KEYS[2]) or '0') then
  return {0, redis.call('XLEN', KEYS[1])}
end
for argument = 4, #ARGV do
  redis.call('XADD', KEYS[1], '*', 'e', ARGV[argument])
end
redis.call('SET', KEYS[2], number, 'EX', ARGV[3])
local dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2])
return {dropped, redis.call('XLEN', KEYS[1])}
