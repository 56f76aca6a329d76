-- Pools of one tenant: reserve, settle, renew, read. Version 1, key prefix "lw1".
--
-- The arithmetic of bucket.py, atomic; a differential test binds the two. Everything a call
-- touches is in KEYS and shares the tenant's hash tag, so that one slot of a Cluster holds it.
-- Runs on Redis 6.2 and later. Work is bounded: 8 leases reaped, 8 ranked demands.
--
-- KEYS  1 lease   sorted set: member "id|fast tokens|deep tokens" (-1: group not used),
--                 score = when it expires, in ms
--       2 fast    hash: r, t    levels of requests and tokens, in 1/60000 units
--       3 deep          at      when they held, ms
--                       n       places taken
--                       rpm, tpm, max   the limits, as the latest call gave them
-- These keys carry no TTL: an eviction policy that spares keys without one never drops them.
--
-- ARGV  1 operation, 2 now in ms (0: the server's clock, the only one used in production), then
--   reserve  lease_ms; rpm, tpm, max of fast and of deep (-1: the tenant has no such group);
--            then for each ranked demand: lease, fast tokens, deep tokens
--   settle   lease, tokens used of fast, of deep
--   renew    lease_ms, lease...
--   read     limits as in reserve
--
-- Returns integers only:
--   reserve  status, place, wait_ms, limited_by, expires_ms, reaped, then the state
--            status 1 granted, 2 held already (a repeated call), 0 refused; place counts from 0;
--            limited_by = 10 * group + unit, both from 1 (fast, deep; requests, tokens, places)
--   settle   1, or 0 if settled or reaped before; then the state
--   renew    how many were still held
--   read     0, then the state
--   state    for fast and deep: r, t, n, rpm, tpm, max; six times -1 where there is no pool
--
-- Numbers go to redis.call as numbers, never through tostring, which would round large ones.

local PER_UNIT = 60000
local MAX_PER_MIN = 1000000000
local MAX_DEBT_MIN = 60
local PLACE_WAIT_MS = 1000
local BLOCKED_WAIT_MS = 3600000
local MAX_REAPED = 8

local operation = ARGV[1]
local now_ms = tonumber(ARGV[2])
if now_ms == 0 then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local pools = {}

local function per_min(limit)
  return math.min(limit, MAX_PER_MIN)
end

local function bounded(level, limit)
  local whole = per_min(limit) * PER_UNIT
  return math.max(-MAX_DEBT_MIN * whole, math.min(whole, level))
end

local function refilled(level, limit, elapsed_ms)
  local rate = per_min(limit)
  return math.min(rate * PER_UNIT, level + elapsed_ms * rate)
end

local function wait_ms(level, limit, amount)
  if amount == 0 then return 0 end
  local rate = per_min(limit)
  if rate <= 0 then return BLOCKED_WAIT_MS end
  local missing = math.min(amount, rate) * PER_UNIT - level
  if missing <= 0 then return 0 end
  return math.ceil(missing / rate)
end

local function save(group)
  local pool = pools[group]
  redis.call('HSET', KEYS[group + 1], 'r', pool.r, 't', pool.t, 'at', now_ms, 'n', pool.n,
             'rpm', pool.rpm, 'tpm', pool.tpm, 'max', pool.max)
end

local function refill(pool, elapsed_ms)
  pool.r = refilled(pool.r, pool.rpm, elapsed_ms)
  pool.t = refilled(pool.t, pool.tpm, elapsed_ms)
end

-- Reads a pool and brings it to now, then to new limits if the call gives any: `argument` is
-- where ARGV has them. A refill is exact, so it need not be saved; new limits must be, and so
-- must a clock that stepped back, or the pool would stand still until it catches up.
local function load(group, argument)
  local stored = redis.call('HMGET', KEYS[group + 1], 'r', 't', 'at', 'n', 'rpm', 'tpm', 'max')
  local pool
  if stored[1] then
    pool = {r = tonumber(stored[1]), t = tonumber(stored[2]), n = tonumber(stored[4]),
            rpm = tonumber(stored[5]), tpm = tonumber(stored[6]), max = tonumber(stored[7])}
    pools[group] = pool
    local elapsed_ms = now_ms - tonumber(stored[3])
    refill(pool, math.max(0, elapsed_ms))
    if elapsed_ms < 0 then save(group) end
  end
  local rpm = tonumber(argument and ARGV[argument] or -1)
  if rpm < 0 then return end
  local tpm, max = tonumber(ARGV[argument + 1]), tonumber(ARGV[argument + 2])
  if not pool then
    pools[group] = {r = per_min(rpm) * PER_UNIT, t = per_min(tpm) * PER_UNIT, n = 0,
                    rpm = rpm, tpm = tpm, max = max}
    save(group)
  elseif pool.rpm ~= rpm or pool.tpm ~= tpm or pool.max ~= max then
    pool.rpm, pool.tpm, pool.max = rpm, tpm, max
    refill(pool, 0)
    save(group)
  end
end

local function settle(group, reserved, used)
  local pool = pools[group]
  if pool and reserved >= 0 then
    pool.t = bounded(pool.t + (reserved - used) * PER_UNIT, pool.tpm)
    pool.n = math.max(0, pool.n - 1)
    save(group)
  end
end

local function tokens_of(lease)
  local fast, deep = string.match(lease, '|(-?%d+)|(-?%d+)$')
  return tonumber(fast), tonumber(deep)
end

local function reap()
  local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, MAX_REAPED)
  for _, lease in ipairs(expired) do
    local fast, deep = tokens_of(lease)
    redis.call('ZREM', KEYS[1], lease)
    settle(1, fast, 0)
    settle(2, deep, 0)
  end
  return #expired
end

local function add_state(reply)
  for group = 1, 2 do
    local pool = pools[group] or {r = -1, t = -1, n = -1, rpm = -1, tpm = -1, max = -1}
    for _, field in ipairs({'r', 't', 'n', 'rpm', 'tpm', 'max'}) do
      reply[#reply + 1] = pool[field]
    end
  end
  return reply
end

-- The longest wait of a demand's pools, and which pool that is.
local function tightest(argument)
  local longest_ms, limited_by = 0, 0
  for group = 1, 2 do
    local tokens = tonumber(ARGV[argument + group])
    if tokens >= 0 then
      local pool = pools[group]
      local waits = {
        wait_ms(pool.r, pool.rpm, 1),
        wait_ms(pool.t, pool.tpm, tokens),
        pool.n < pool.max and 0 or PLACE_WAIT_MS,
      }
      for unit = 1, 3 do
        if waits[unit] > longest_ms then
          longest_ms, limited_by = waits[unit], 10 * group + unit
        end
      end
    end
  end
  return longest_ms, limited_by
end

local function take(argument, expires_ms)
  redis.call('ZADD', KEYS[1], expires_ms, ARGV[argument])
  for group = 1, 2 do
    local tokens = tonumber(ARGV[argument + group])
    if tokens >= 0 then
      local pool = pools[group]
      pool.r = bounded(pool.r - PER_UNIT, pool.rpm)
      pool.t = bounded(pool.t - tokens * PER_UNIT, pool.tpm)
      pool.n = pool.n + 1
      save(group)
    end
  end
end

local function reserve()
  load(1, 4)
  load(2, 7)
  local reaped = reap()
  local first, place = 10, 0
  for argument = first, #ARGV, 3 do
    local held = redis.call('ZSCORE', KEYS[1], ARGV[argument])
    if held then
      return add_state({2, (argument - first) / 3, 0, 0, tonumber(held), reaped})
    end
  end
  local soonest_ms, limited_by = nil, 0
  for argument = first, #ARGV, 3 do
    local wait, pool = tightest(argument)
    if wait == 0 then
      local expires_ms = now_ms + tonumber(ARGV[3])
      take(argument, expires_ms)
      return add_state({1, place, 0, 0, expires_ms, reaped})
    end
    if not soonest_ms or wait < soonest_ms then
      soonest_ms, limited_by = wait, pool
    end
    place = place + 1
  end
  return add_state({0, 0, soonest_ms, limited_by, 0, reaped})
end

if operation == 'reserve' then
  return reserve()
end

if operation == 'settle' then
  load(1)
  load(2)
  local known = redis.call('ZREM', KEYS[1], ARGV[3])
  if known == 1 then
    local fast, deep = tokens_of(ARGV[3])
    settle(1, fast, tonumber(ARGV[4]))
    settle(2, deep, tonumber(ARGV[5]))
  end
  return add_state({known})
end

if operation == 'renew' then
  local expires_ms = now_ms + tonumber(ARGV[3])
  local renewed = 0
  for argument = 4, #ARGV do
    -- XX: a lease that was settled or reaped stays gone. CH counts the changed ones.
    renewed = renewed + redis.call('ZADD', KEYS[1], 'XX', 'CH', expires_ms, ARGV[argument])
  end
  return renewed
end

load(1, 3)
load(2, 6)
reap()
return add_state({0})
