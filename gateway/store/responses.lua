-- Records of one kind of one tenant, bounded in bytes: its own oldest go first, whoever it is.
--
-- KEYS[1]  a sorted set: record's id by the time of its last use in microseconds
-- KEYS[2]  a hash: record's id to its record's bytes; under "" their sum
-- KEYS[3]  the record (save, delete); KEYS[4..] its ancestors' records (save)
-- ARGV[1]  "save", "delete" or "trim"
-- ARGV[2]  what stands before an id in a record's key
-- ARGV[3]  bytes that the tenant may have after this
-- ARGV[4]  seconds that a record is kept after its last use
-- ARGV[5]  save: the record; ARGV[6] "1": only if there is none
--
-- Returns the tenant's bytes, how many records were dropped, and whether there was such a record.
-- A record that expired, or that Redis dropped, is taken off the sum once its time is over.
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local prefix, max_bytes, ttl_s = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local existed, dropped = 0, 0

local function forget(id)
  local bytes = tonumber(redis.call('HGET', KEYS[2], id) or '0')
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[1], id)
  return redis.call('HINCRBY', KEYS[2], '', 0 - bytes)
end

local id = KEYS[3] and string.sub(KEYS[3], #prefix + 1)
if ARGV[1] == 'save' then
  local record = ARGV[5]
  existed = redis.call('EXISTS', KEYS[3])
  if existed == 0 or ARGV[6] ~= '1' then
    forget(id)
    redis.call('SET', KEYS[3], record, 'EX', ttl_s)
    redis.call('ZADD', KEYS[1], now_us, id)
    redis.call('HSET', KEYS[2], id, #record)
    redis.call('HINCRBY', KEYS[2], '', #record)
  end
  for i = 4, #KEYS do
    redis.call('EXPIRE', KEYS[i], ttl_s)
    redis.call('ZADD', KEYS[1], 'XX', now_us, string.sub(KEYS[i], #prefix + 1))
  end
elseif ARGV[1] == 'delete' then
  existed = redis.call('DEL', KEYS[3])
  forget(id)
end

local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_us - ttl_s * 1000000, 'LIMIT', 0, 64)
for _, each in ipairs(over) do
  forget(each)
end

local total = tonumber(redis.call('HGET', KEYS[2], '') or '0')
while total > max_bytes do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest or (ARGV[1] == 'save' and oldest == id) then break end
  redis.call('UNLINK', prefix .. oldest)
  total = forget(oldest)
  dropped = dropped + 1
end
redis.call('EXPIRE', KEYS[1], ttl_s)
redis.call('EXPIRE', KEYS[2], ttl_s)
return {total, dropped, existed}
