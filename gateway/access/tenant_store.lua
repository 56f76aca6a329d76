-- Writes records of keys, tenants and tiers: all of them, or none. Version 1, key prefix "lw1".
--
-- Runs on Redis 6.2 and later. All keys share a hash tag, so that one slot of a Cluster holds them.
--
-- KEYS  1 records  hash: name -> JSON; name = "key:<id>", "tenant:<id>" or "tier:<name>"
--       2 changed  sorted set: name -> the version that changed or removed it, since the epoch
--       3 head     hash: epoch, v (version); who follows asks for what changed after its version,
--                  and reads everything again when the epoch is another
--       4 audit    stream: one entry for each call that wrote
--       5 used     hash: key id -> Unix seconds of its last use; goes with the key's record
--
-- ARGV  1 an epoch to begin if there is none, or if too many removed names are remembered
--       2 the most records there may be   3 the channel that hears of the new version
--       4 the most audit entries          5 the audit entry
--       then for each record: name, what it must be now, what it is to be; '' means absent
--
-- Returns the new version, or the one in force where all records are what they are to be already:
-- then an earlier call did it, whose reply was lost. 0: a record is not what it must be; -1: too many
-- records.

local MAX_REMOVED = 10000

local num_new = 0
local is_stale, is_done = false, true
for argument = 6, #ARGV, 3 do
  local now = redis.call('HGET', KEYS[1], ARGV[argument]) or ''
  if now ~= ARGV[argument + 1] then is_stale = true end
  if now ~= ARGV[argument + 2] then is_done = false end
  if now == '' and ARGV[argument + 2] ~= '' then num_new = num_new + 1 end
end
if is_stale then
  return is_done and tonumber(redis.call('HGET', KEYS[3], 'v') or '0') or 0
end
local size = redis.call('HLEN', KEYS[1])
if num_new > 0 and size + num_new > tonumber(ARGV[2]) then return -1 end

if redis.call('ZCARD', KEYS[2]) > size + MAX_REMOVED then
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[3], 'epoch', ARGV[1])
end
redis.call('HSETNX', KEYS[3], 'epoch', ARGV[1])
local version = redis.call('HINCRBY', KEYS[3], 'v', 1)
for argument = 6, #ARGV, 3 do
  if ARGV[argument + 2] == '' then
    redis.call('HDEL', KEYS[1], ARGV[argument])
    local key_id = string.match(ARGV[argument], '^key:(.+)$')
    if key_id then redis.call('HDEL', KEYS[5], key_id) end
  else
    redis.call('HSET', KEYS[1], ARGV[argument], ARGV[argument + 2])
  end
  redis.call('ZADD', KEYS[2], version, ARGV[argument])
end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[4], '*', 'entry', ARGV[5])
redis.call('PUBLISH', ARGV[3], version)
return version
