-- Policy versions: store one, let one rule or shadow. Version 1, key prefix "lw1:{policy}".
--
-- What a change needs happens together: no pointer moves without its audit line and its
-- announcement. Runs on Redis 6.2 and later; all keys share a hash tag, so one slot of a Cluster
-- holds them, and carry no TTL, so an eviction policy that spares keys without one keeps them.
--
-- KEYS  1 state   hash: last      the highest version
--                       active    the version in force; 0: each gateway's configured policy
--                       shadow    the version that shadows it; 0: none
--                       revision  grows with every change of the two
--       2 past    list: the versions that were active before, the latest first
--       3 audit   stream, trimmed
--       4 version the hash of the version that the call is about
--       5 gone    the hash of a version that the call may push out of the store
-- ARGV  1 operation, 2 author, 3 comment, 4 the author's key, 5 the request's id, then
--   put       version expected to be next; the one to drop; content, sha256, label
--   activate  version, version expected to be active; "activate" or "rollback"; how many are kept
--   shadow    version or 0
--
-- Returns {1} when done, else {0, what was found instead}:
--   put       the highest version, where that is not the one before the expected next
--   activate  the active version, where that is not the expected one; -1: no such version
--   shadow    -1: no such version
local PAST, AUDIT, MOST_PAST, MOST_AUDIT = KEYS[2], KEYS[3], 100, 1000
local operation, author, comment, key, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')

local function number(field)
  return tonumber(redis.call('HGET', KEYS[1], field) or '0')
end

local function note(action, from, to)
  redis.call('XADD', AUDIT, 'MAXLEN', '~', MOST_AUDIT, '*', 'action', action, 'author', author,
    'from', from, 'to', to, 'comment', comment, 'key', key, 'request_id', request)
end

local function announce()
  local revision = redis.call('HINCRBY', KEYS[1], 'revision', 1)
  redis.call('PUBLISH', 'lw1:{policy}:changes', revision)
end

if operation == 'put' then
  local next, drop = tonumber(ARGV[6]), tonumber(ARGV[7])
  local last = number('last')
  if last >= next then
    return {0, last}
  end
  redis.call('HSET', KEYS[4], 'content', ARGV[8], 'sha256', ARGV[9], 'label', ARGV[10],
    'author', author, 'comment', comment, 'at', time[1])
  redis.call('HSET', KEYS[1], 'last', next)
  if drop > 0 and drop ~= number('active') and drop ~= number('shadow') then
    redis.call('DEL', KEYS[5])
  end
  note('store', last, next)
  return {1}
end

if operation == 'activate' then
  local version, expected, action = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
  local active = number('active')
  if active ~= expected then
    return {0, active}
  end
  if version > 0 and redis.call('EXISTS', KEYS[4]) == 0 then
    return {0, -1}
  end
  if action == 'rollback' then
    redis.call('LPOP', PAST)
  elseif version ~= active then  -- else a rollback would come back to the same
    redis.call('LPUSH', PAST, active)
    redis.call('LTRIM', PAST, 0, MOST_PAST - 1)
  end
  redis.call('HSET', KEYS[1], 'active', version)
  local is_old = active > 0 and active <= number('last') - tonumber(ARGV[9])
  if is_old and active ~= version and active ~= number('shadow') then
    redis.call('DEL', KEYS[5])
  end
  note(action, active, version)
  announce()
  return {1}
end

if operation == 'shadow' then
  local version, shadow = tonumber(ARGV[6]), number('shadow')
  if version > 0 and redis.call('EXISTS', KEYS[4]) == 0 then
    return {0, -1}
  end
  redis.call('HSET', KEYS[1], 'shadow', version)
  note('shadow', shadow, version)
  announce()
  return {1}
end

return redis.error_reply('unknown operation ' .. operation)
