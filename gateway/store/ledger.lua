-- Appends a batch of entries to the usage ledger, and adds to the days' counters, once however often
-- it is sent. Version 2, "lw1".
--
-- Runs on Redis 6.2 and later. All keys share a hash tag.
--
-- KEYS  1 entries  stream: field "e" holds an entry as JSON
--       2 writer   string: number of the last batch of this writer that was appended
--       then a hash of counters for each day that the entries are of
-- ARGV  1 the batch's number, one more than the writer's last   2 the most entries to keep
--       3 seconds to remember the writer   4 seconds to keep a day   5 the most fields of a day
--       6 the id of the last entry of the writer's last batch, or empty
--       7 how many entries follow, then the entries
--       then for each counter: the number of its key, its field, what to add
--
-- Returns: entries dropped at the old end to keep to the most, how many there are now, the writer's
-- last batch before this call (an earlier one than it knows of if Redis lost some), and the id of the
-- last entry. What is dropped was never exported: exporting deletes. The writer's number has a time to
-- live, so a full Redis may drop it, and not the stream: where that still has the writer's last entry,
-- nothing was lost.

local number = tonumber(ARGV[1])
local before, id = tonumber(redis.call('GET', KEYS[2]) or '0'), ARGV[6]
if before == 0 and id ~= '' and #redis.call('XRANGE', KEYS[1], id, id) > 0 then
  before = number - 1
end
if number <= before then
  return {0, redis.call('XLEN', KEYS[1]), before, id}
end
local last = 7 + tonumber(ARGV[7])
for argument = 8, last do
  id = redis.call('XADD', KEYS[1], '*', 'e', ARGV[argument])
end
local most = tonumber(ARGV[5])
for argument = last + 1, #ARGV, 3 do
  local day, field = KEYS[tonumber(ARGV[argument])], ARGV[argument + 1]
  if redis.call('HLEN', day) >= most and redis.call('HEXISTS', day, field) == 0 then
    field = 'other' .. string.match(field, '\31[^\31]*$')
  end
  redis.call('HINCRBY', day, field, ARGV[argument + 2])
end
for key = 3, #KEYS do
  redis.call('EXPIRE', KEYS[key], ARGV[4])
end
redis.call('SET', KEYS[2], number, 'EX', ARGV[3])
local dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2])
return {dropped, redis.call('XLEN', KEYS[1]), before, id}
