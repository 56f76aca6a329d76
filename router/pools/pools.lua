-- Pools of one tenant: reserve, extend, settle, renew, reap, read. Version 2, key prefix "lw1".
--
-- The arithmetic of bucket.py, atomic; a differential test binds the two. Everything a call
-- touches is in KEYS and shares the tenant's hash tag, so that one slot of a Cluster holds it.
-- Runs on Redis 6.2 and later. Work is bounded: 8 leases reaped on the way, 8 ranked demands.
-- Releases run side by side on the same keys: docs/pools.md says what a new version may change.
--
-- KEYS  1 lease   sorted set: member "2:id|fast tokens|deep tokens" (-1: group not used),
--                 score = when it expires, in ms. Behind the id stands "#<key>" where the key's
--                 own limits count it, and "$<money>;<accounts>" where budgets do. Version 1 wrote
--                 "id|fast tokens|deep tokens" and did not count what is held.
--                 "<lease>!" is no lease: it says that this one was settled before it arrived.
--       2 fast    hash: r, t    levels of requests and tokens, in 1/60000 units
--       3 deep          at      when they held, ms
--                       n       slots taken
--                       d, dt   the day that is counted, and the tokens charged on it
--                       h       tokens reserved by tasks in flight, whose day is when they end
--                       rpm, tpm, max, tpd   the limits, as the latest call gave them
--                       k.<key>:r, ...       the same of a key with limits of its own
--       4 spend   hash: money of accounts, in nano-dollars, by "<account>:<field>"; an account is
--                 "t" (the tenant), "k.<key>" or "r.<run>"
--                       on, h   the day that is counted; reserved by tasks in flight
--                       d, m, a spent on the day, in its month, in all
--                       l       a run's own limit, from an admin
--                       s, x    soft and hard limits that were told: period,limit of each window
--       5 runs    sorted set: runs' accounts by their last reservation, in ms
-- These keys carry no TTL: an eviction policy that spares keys without one never drops them.
--
-- ARGV  1 operation, 2 now in ms (0: the server's clock, the only one used in production), then
--   reserve  lease_ms, LIMITS, id, then for each ranked demand: fast tokens, deep tokens
--            and for a key with limits: "#", its id, LIMITS
--            and with budgets: "$", for each demand what it can cost at most, then for each account
--            its name, hard limits of day, month and all, soft limits of the same; -1: none
--   adopt    as reserve, but the first demand is taken whether it fits or not
--   extend   lease_ms, lease, former, tokens used of fast, of deep: `former` becomes `lease`, which
--            holds more, or a group less: that one is given back, and charged what was used
--   settle   tokens used of fast, of deep; lease, and former where an extension is in doubt;
--            then "!" and for how many ms the settlement is remembered ("<lease>!"), if its
--            reservation may still arrive: until then the same settlement charges nothing again
--            then "$" and the money spent, if the lease holds any
--   renew    lease_ms, lease...
--   reap     how many at most
--   read     LIMITS, then for a key with limits: its id, LIMITS
--   raise    account, its limit: of a run, in nano-dollars; -1: as configured
--   spent    accounts
--   forget   keys that have ended for good: their own pools and accounts
--   LIMITS   rpm, tpm, max, tpd of fast, then of deep; rpm -1: the tenant has no such group;
--            tpd -1: no daily budget. They come into force.
--
-- Returns integers only:
--   reserve  status, index, wait_ms, limited_by, expires_ms, reaped, then the state
--            status 1 granted, 2 held already (a repeated call), 0 refused; index counts from 0;
--            limited_by = 10 * group + unit, both from 1 (fast, deep; requests, tokens, slots,
--            the day's tokens; the same of the key); or 100 + 10 * account + window, both from 1
--            (day, month, all)
--            behind the state: the key's, if it has limits; then of each account h, d, m, a, l, ms
--            left of the day and of the month, and what is to be told: 1, 2, 4 soft limits, 8, 16,
--            32 hard ones that were met first
--   extend   1 extended, 2 extended before, 0 settled, reaped or forgotten before
--   settle   1, or 0 if settled or reaped before
--   renew    how many were held, how many were not and are taken anew; one whose pools are
--            forgotten too is neither
--   reap     how many expired leases were given back, and when the next one expires, 0: none
--   read     the state, then the key's
--   raise    1
--   forget   1
--   spent    of each account as behind the state, with nothing to tell
--   state    for fast and deep: r, t, n, rpm, tpm, max, tpd, dt, h, ms left of the day; ten times
--            -1 where there is no pool
--
-- Numbers go to redis.call as numbers, never through tostring, which would round large ones.

local PER_UNIT = 60000
local MAX_PER_MIN = 1000000000
local MAX_PER_DAY = 1000000000000000
local MAX_DEBT_MIN = 60
local SLOT_WAIT_MS = 1000
local BLOCKED_WAIT_MS = 3600000
local DAY_MS = 86400000
local MAX_REAPED = 8
local MAX_NUSD = 4000000 * 1000000000
local MAX_RUNS = 10000
local RUN_KEPT_MS = 30 * DAY_MS
local POOL_FIELDS = {'r', 't', 'at', 'n', 'rpm', 'tpm', 'max', 'tpd', 'd', 'dt', 'h'}
local ACCOUNT_FIELDS = {':on', ':h', ':d', ':m', ':a', ':l', ':s', ':x'}

local operation = ARGV[1]
local now_ms = tonumber(ARGV[2])
if now_ms == 0 then
  local time = redis.call('TIME')
  now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local today = math.floor(now_ms / DAY_MS)

local pools = {}  -- the tenant's, by group
local key_pools = {}  -- those of keys, by key and group

local function per_min(limit)
  return math.min(limit, MAX_PER_MIN)
end

local function bounded(level, limit)
  local whole = per_min(limit) * PER_UNIT
  return math.max(-MAX_DEBT_MIN * whole, math.min(whole, level))
end

local function day_bounded(tokens)
  return math.max(0, math.min(MAX_PER_DAY, tokens))
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

local function day_left_ms(pool)
  return (pool.d + 1) * DAY_MS - now_ms
end

local function day_wait_ms(pool, tokens)
  if pool.tpd < 0 or tokens == 0 then return 0 end
  local limit = math.min(pool.tpd, MAX_PER_DAY)
  if limit == 0 then return BLOCKED_WAIT_MS end
  if pool.dt + pool.h + math.min(tokens, limit) <= limit then return 0 end
  return day_left_ms(pool)
end

local function month_of(day)
  local shifted = day + 719468  -- days since the first of March of the year 0
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
                           - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153) + 2  -- counted from 0
  return (year + era * 400) * 12 + month
end

local function month_left_ms(day)
  local last = day
  while month_of(last + 1) == month_of(day) do last = last + 1 end
  return (last + 1) * DAY_MS - now_ms
end

local accounts = {}

local function nusd_bounded(nusd)
  return math.max(0, math.min(MAX_NUSD, nusd))
end

-- Reads an account and brings it to today.
local function account_of(name)
  local account = accounts[name]
  if account then return account end
  local fields = {}
  for index, field in ipairs(ACCOUNT_FIELDS) do fields[index] = name .. field end
  local stored = redis.call('HMGET', KEYS[4], unpack(fields))
  account = {on = tonumber(stored[1] or today), h = tonumber(stored[2] or 0),
             d = tonumber(stored[3] or 0), m = tonumber(stored[4] or 0),
             a = tonumber(stored[5] or 0), l = tonumber(stored[6] or -1),
             s = stored[7] or '', x = stored[8] or '', changed = not stored[1]}
  if today > account.on then
    account.d = 0
    if month_of(today) ~= month_of(account.on) then account.m = 0 end
    account.on, account.changed = today, true
  elseif today < account.on - 1 then
    account.on, account.changed = today, true
  end
  accounts[name] = account
  return account
end

-- What a lease holds of which accounts: nothing, if it holds no money.
local function hold_of(lease)
  local nusd, names = string.match(lease, '%$(%d+);([%w_.,-]+)|%-?%d+|%-?%d+$')
  return tonumber(nusd or 0), string.gmatch(names or '', '[^,]+')
end

local function hold(lease)
  local most, names = hold_of(lease)
  for name in names do
    local account = account_of(name)
    account.h = nusd_bounded(account.h + most)
    account.changed = true
  end
end

local function spend(lease, nusd)
  local most, names = hold_of(lease)
  for name in names do
    local account = account_of(name)
    account.h = nusd_bounded(account.h - most)
    account.d = nusd_bounded(account.d + nusd)
    account.m = nusd_bounded(account.m + nusd)
    account.a = nusd_bounded(account.a + nusd)
    account.changed = true
  end
end

-- The longest wait of the accounts from `argument` on for so much money, and which sets it.
local function money_wait(argument, most)
  local longest_ms, limited_by = 0, 0
  if most == 0 then return longest_ms, limited_by end
  for at = argument, #ARGV, 7 do
    local account = account_of(ARGV[at])
    local spent = {account.d, account.m, account.a}
    for window = 1, 3 do
      local limit = tonumber(ARGV[at + window])
      if window == 3 and account.l >= 0 then limit = account.l end
      if limit >= 0 and spent[window] + account.h + most > limit then
        local wait = BLOCKED_WAIT_MS
        if spent[window] + most <= limit then
          wait = SLOT_WAIT_MS
        elseif window == 1 then
          wait = (account.on + 1) * DAY_MS - now_ms
        elseif window == 2 then
          wait = month_left_ms(account.on)
        end
        if wait > longest_ms then
          longest_ms, limited_by = wait, 100 + 10 * ((at - argument) / 7 + 1) + window
        end
      end
    end
  end
  return longest_ms, limited_by
end

-- Whether a limit was not told in its period yet; then it is.
local function tells(account, kind, window, period, limit)
  local told, found = {-1, -1, -1, -1, -1, -1}, 0
  for number in string.gmatch(account[kind], '-?%d+') do
    found = found + 1
    told[found] = tonumber(number)
  end
  local at = 2 * window - 1
  if told[at] == period and told[at + 1] >= limit then return false end
  told[at], told[at + 1] = period, limit
  for index = 1, 6 do told[index] = string.format('%.0f', told[index]) end
  account[kind] = table.concat(told, ',')
  account.changed = true
  return true
end

-- Appends what is behind the state; `refused_by` is what refused for money that is spent. Nobody
-- passes on what an adoption says, so that tells nothing, and the next task that asks does.
local function add_accounts(reply, argument, refused_by)
  for at = argument, #ARGV, 7 do
    local account, tell = account_of(ARGV[at]), 0
    local spent = {account.d, account.m, account.a}
    local periods = {account.on, month_of(account.on), 0}
    for window = 1, 3 do
      local soft = tonumber(ARGV[at + 3 + window])
      if soft >= 0 and spent[window] >= soft and operation ~= 'adopt'
         and tells(account, 's', window, periods[window], soft) then
        tell = tell + 2 ^ (window - 1)
      end
      if refused_by == 100 + 10 * ((at - argument) / 7 + 1) + window then
        local hard = tonumber(ARGV[at + window])
        if window == 3 and account.l >= 0 then hard = account.l end
        if tells(account, 'x', window, periods[window], hard) then
          tell = tell + 2 ^ (window + 2)
        end
      end
    end
    local values = {account.h, account.d, account.m, account.a, account.l,
                    (account.on + 1) * DAY_MS - now_ms, month_left_ms(account.on), tell}
    for _, value in ipairs(values) do reply[#reply + 1] = value end
  end
end

local function forget_accounts(names)
  for _, name in ipairs(names) do
    local fields = {}
    for index, field in ipairs(ACCOUNT_FIELDS) do fields[index] = name .. field end
    redis.call('HDEL', KEYS[4], unpack(fields))
    redis.call('ZREM', KEYS[5], name)
  end
end

-- Notes that a run lives, and forgets a few that have long been silent, or are too many.
local function note_runs(argument)
  for at = argument, #ARGV, 7 do
    if string.sub(ARGV[at], 1, 2) == 'r.' then
      redis.call('ZADD', KEYS[5], now_ms, ARGV[at])
      forget_accounts(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now_ms - RUN_KEPT_MS,
                             'LIMIT', 0, MAX_REAPED))
      if redis.call('ZCARD', KEYS[5]) > MAX_RUNS then
        forget_accounts(redis.call('ZRANGE', KEYS[5], 0, MAX_REAPED - 1))
      end
    end
  end
end

local function refill(pool, elapsed_ms)
  pool.r = refilled(pool.r, pool.rpm, elapsed_ms)
  pool.t = refilled(pool.t, pool.tpm, elapsed_ms)
end

-- The fields of a key's pool, in its tenant's hash of the group.
local function fields_of(key)
  local fields = {}
  for index, field in ipairs(POOL_FIELDS) do fields[index] = 'k.' .. key .. ':' .. field end
  return fields
end

-- Reads a pool and brings it to now; nil if there is none. A refill is exact, so it need not be
-- saved; a clock that stepped back must be, or the pool would stand still until it catches up.
local function stored_pool(group, key)
  local stored = redis.call('HMGET', KEYS[group + 1], unpack(key and fields_of(key) or POOL_FIELDS))
  if not stored[1] then return nil end
  local pool = {r = tonumber(stored[1]), t = tonumber(stored[2]), n = tonumber(stored[4]),
                rpm = tonumber(stored[5]), tpm = tonumber(stored[6]), max = tonumber(stored[7]),
                tpd = tonumber(stored[8] or -1), d = tonumber(stored[9] or today),
                dt = tonumber(stored[10] or 0), h = tonumber(stored[11] or 0),
                group = group, key = key}
  local elapsed_ms = now_ms - tonumber(stored[3])
  refill(pool, math.max(0, elapsed_ms))
  if today > pool.d then
    pool.d, pool.dt = today, 0
  elseif today < pool.d - 1 then
    pool.d = today
  end
  if pool.n == 0 then pool.h = 0 end
  if elapsed_ms < 0 then pool.changed = true end
  return pool
end

-- Gives a pool the limits at `argument`, and makes it if it is new; -1: there is none.
local function limited(pool, group, argument, key)
  local rpm = tonumber(ARGV[argument])
  if rpm < 0 then return pool end
  local tpm, max, tpd = tonumber(ARGV[argument + 1]), tonumber(ARGV[argument + 2]),
                        tonumber(ARGV[argument + 3])
  if not pool then
    return {r = per_min(rpm) * PER_UNIT, t = per_min(tpm) * PER_UNIT, n = 0, rpm = rpm, tpm = tpm,
            max = max, tpd = tpd, d = today, dt = 0, h = 0, group = group, key = key,
            changed = true, limited = true, limits = true}
  end
  pool.limits = true
  if pool.rpm ~= rpm or pool.tpm ~= tpm or pool.max ~= max or pool.tpd ~= tpd then
    pool.rpm, pool.tpm, pool.max, pool.tpd = rpm, tpm, max, tpd
    refill(pool, 0)
    pool.changed, pool.limited = true, true
  end
  return pool
end

-- Loads the tenant's pool; `argument` is where ARGV has the limits, nil if the call has none.
local function load(group, argument)
  local pool = stored_pool(group)
  if argument then pool = limited(pool, group, argument) end
  pools[group] = pool
end

-- A key's pool, read when it is first asked for; nil if the key has no limits of this group.
local function key_pool(key, group)
  local name = group .. key
  if key_pools[name] == nil then key_pools[name] = stored_pool(group, key) or false end
  return key_pools[name] or nil
end

local function save_key_pool(pool)
  local names, written = fields_of(pool.key), {}
  pool.at = now_ms
  for index, field in ipairs(POOL_FIELDS) do
    written[2 * index - 1], written[2 * index] = names[index], pool[field]
  end
  redis.call('HSET', KEYS[pool.group + 1], unpack(written))
end

-- Writes what changed, once per call.
local function save()
  for group = 1, 2 do
    local pool = pools[group]
    if pool and pool.limited then
      redis.call('HSET', KEYS[group + 1], 'r', pool.r, 't', pool.t, 'at', now_ms, 'n', pool.n,
                 'd', pool.d, 'dt', pool.dt, 'h', pool.h, 'rpm', pool.rpm, 'tpm', pool.tpm,
                 'max', pool.max, 'tpd', pool.tpd)
    elseif pool and pool.changed then
      redis.call('HSET', KEYS[group + 1], 'r', pool.r, 't', pool.t, 'at', now_ms, 'n', pool.n,
                 'd', pool.d, 'dt', pool.dt, 'h', pool.h)
    end
  end
  for _, pool in pairs(key_pools) do
    if pool and pool.changed then save_key_pool(pool) end
  end
  for name, account in pairs(accounts) do
    if account.changed then
      redis.call('HSET', KEYS[4], name .. ':on', account.on, name .. ':h', account.h,
                 name .. ':d', account.d, name .. ':m', account.m, name .. ':a', account.a,
                 name .. ':l', account.l, name .. ':s', account.s, name .. ':x', account.x)
    end
  end
end

-- Applies one of the functions below to the tenant's pool, and to the key's where it has one.
local function both(how, group, key, ...)
  if pools[group] then how(pools[group], ...) end
  local pool = key and key_pool(key, group)
  if pool then how(pool, ...) end
end

local function extend(pool, tokens)
  pool.t = bounded(pool.t - tokens * PER_UNIT, pool.tpm)
  pool.h = day_bounded(pool.h + tokens)
  pool.changed = true
end

local function adopt(pool, tokens)
  extend(pool, tokens)
  pool.n = pool.n + 1
end

local function request(pool, tokens)
  pool.r = bounded(pool.r - PER_UNIT, pool.rpm)
  adopt(pool, tokens)
end

local function settle(pool, reserved, used, counted)
  pool.t = bounded(pool.t + (reserved - used) * PER_UNIT, pool.tpm)
  if counted then pool.h = day_bounded(pool.h - reserved) end
  pool.dt = day_bounded(pool.dt + used)
  pool.n = math.max(0, pool.n - 1)
  pool.changed = true
end

-- What a lease held of a group becomes what the one in its place holds of it.
local function change(group, key, before, after, used, counted)
  if before < 0 then return end
  if after < 0 then
    both(settle, group, key, before, used, counted)
  else
    both(extend, group, key, after - before)
  end
end

-- What a lease of any version holds: tokens of fast, of deep, whether `h` counts them, and the key
-- whose own limits do. Nothing if it is no lease.
local function held_by(lease)
  local head, fast, deep = string.match(lease, '^(.*)|(-?%d+)|(-?%d+)$')
  if not head then return nil end
  return tonumber(fast), tonumber(deep), string.sub(lease, 1, 2) == '2:',
         string.match(head, '#([%w_.-]+)$') or string.match(head, '#([%w_.-]+)%$%d+;[%w_.,-]+$')
end

local function give_back(lease, used_fast, used_deep, nusd)
  spend(lease, nusd)
  local fast, deep, counted, key = held_by(lease)
  if fast then
    if fast >= 0 then both(settle, 1, key, fast, used_fast, counted) end
    if deep >= 0 then both(settle, 2, key, deep, used_deep, counted) end
  end
end

-- Holds a lease again that was given back too early; not without the pools it was taken from.
local function take_anew(lease, expires_ms)
  local fast, deep, _, key = held_by(lease)
  if (fast >= 0 and not pools[1]) or (deep >= 0 and not pools[2]) then return 0 end
  if fast >= 0 then both(adopt, 1, key, fast) end
  if deep >= 0 then both(adopt, 2, key, deep) end
  hold(lease)
  return redis.call('ZADD', KEYS[1], expires_ms, lease)
end

-- Gives back expired leases, and forgets old settlements, at most so many; counts the leases.
local function reap(most)
  local reaped = 0
  local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, most)
  for _, lease in ipairs(expired) do
    redis.call('ZREM', KEYS[1], lease)
    if string.sub(lease, -1) ~= '!' then
      give_back(lease, 0, 0, 0)
      reaped = reaped + 1
    end
  end
  return reaped
end

local function add_state(reply, pool)
  if pool then
    for _, field in ipairs({'r', 't', 'n', 'rpm', 'tpm', 'max', 'tpd', 'dt', 'h'}) do
      reply[#reply + 1] = pool[field]
    end
    reply[#reply + 1] = day_left_ms(pool)
  else
    for _ = 1, 10 do reply[#reply + 1] = -1 end
  end
end

-- The pool of a key that limits this call; nil if it limits nothing.
local function limiting(key, group)
  local pool = key and key_pool(key, group)
  return pool and pool.limits and pool or nil
end

local function answer(reply, key, accounts_at, refused_by)
  for group = 1, 2 do add_state(reply, pools[group]) end
  if key then
    for group = 1, 2 do add_state(reply, limiting(key, group)) end
  end
  if accounts_at then add_accounts(reply, accounts_at, refused_by) end
  save()
  return reply
end

-- The longest wait of a demand's pools, and which pool that is.
local function tightest(argument, key)
  local longest_ms, limited_by = 0, 0
  for part = 0, key and 1 or 0 do
    for group = 1, 2 do
      local tokens, pool = tonumber(ARGV[argument + group - 1]), pools[group]
      if part == 1 then pool = limiting(key, group) end
      if tokens >= 0 and (pool or part == 0) then
        local waits = {
          wait_ms(pool.r, pool.rpm, 1),
          wait_ms(pool.t, pool.tpm, tokens),
          pool.n < pool.max and 0 or SLOT_WAIT_MS,
          day_wait_ms(pool, tokens),
        }
        for unit = 1, 4 do
          if waits[unit] > longest_ms then
            longest_ms, limited_by = waits[unit], 10 * group + 4 * part + unit
          end
        end
      end
    end
  end
  return longest_ms, limited_by
end

-- Takes in the limits of the key at `argument`.
local function load_key(argument)
  local key = ARGV[argument]
  for group = 1, 2 do
    local pool = limited(key_pool(key, group), group, argument + 4 * group - 3, key)
    key_pools[group .. key] = pool or false
  end
  return key
end

-- Where the demands of a reservation end, the key whose limits count, and where the money begins,
-- if it has budgets.
local function places()
  local last, key = #ARGV, nil
  for argument = 13, #ARGV do
    if ARGV[argument] == '#' then
      last, key = argument - 1, load_key(argument + 1)
    elseif ARGV[argument] == '$' then
      return math.min(last, argument - 1), key, argument + 1
    end
  end
  return last, key, nil
end

local function lease_at(argument, key, money, accounts_at)
  local held = key and '#' .. key or ''
  if money then
    local names = {}
    for at = accounts_at, #ARGV, 7 do names[#names + 1] = ARGV[at] end
    held = held .. '$' .. ARGV[money + (argument - 13) / 2] .. ';' .. table.concat(names, ',')
  end
  return '2:' .. ARGV[12] .. held .. '|' .. ARGV[argument] .. '|' .. ARGV[argument + 1]
end

local function take(argument, key, expires_ms, lease)
  redis.call('ZADD', KEYS[1], expires_ms, lease)
  hold(lease)
  for group = 1, 2 do
    local tokens = tonumber(ARGV[argument + group - 1])
    if tokens >= 0 then both(request, group, key, tokens) end
  end
end

local function reserve()
  load(1, 4)
  load(2, 8)
  local last, key, money = places()
  local reaped = reap(MAX_REAPED)
  local accounts_at = money and money + (last - 12) / 2
  for argument = 13, last, 2 do
    local held = redis.call('ZSCORE', KEYS[1], lease_at(argument, key, money, accounts_at))
    if held then
      return answer({2, (argument - 13) / 2, 0, 0, tonumber(held), reaped}, key, accounts_at)
    end
  end
  if money then note_runs(accounts_at) end
  local expires_ms = now_ms + tonumber(ARGV[3])
  local soonest_ms, limited_by
  for argument = 13, last, 2 do
    local wait, pool = tightest(argument, key)
    if money then
      local longer, account = money_wait(accounts_at,
                                         tonumber(ARGV[money + (argument - 13) / 2]))
      if longer > wait then wait, pool = longer, account end
    end
    if wait == 0 or operation == 'adopt' then
      take(argument, key, expires_ms, lease_at(argument, key, money, accounts_at))
      return answer({1, (argument - 13) / 2, 0, 0, expires_ms, reaped}, key, accounts_at)
    end
    if not soonest_ms or wait < soonest_ms then
      soonest_ms, limited_by = wait, pool
    end
  end
  local refused_by = soonest_ms > SLOT_WAIT_MS and limited_by or 0
  return answer({0, 0, soonest_ms, limited_by, 0, reaped}, key, accounts_at, refused_by)
end

if operation == 'reserve' or operation == 'adopt' then
  return reserve()
end

if operation == 'read' then
  load(1, 3)
  load(2, 7)
  local key = ARGV[11] and load_key(11) or nil
  reap(MAX_REAPED)
  return answer({}, key)
end

if operation == 'raise' then
  local account = account_of(ARGV[3])
  account.l, account.changed = tonumber(ARGV[4]), true
  redis.call('ZADD', KEYS[5], now_ms, ARGV[3])
  save()
  return 1
end

if operation == 'forget' then
  for argument = 3, #ARGV do
    local fields = fields_of(ARGV[argument])
    redis.call('HDEL', KEYS[2], unpack(fields))
    redis.call('HDEL', KEYS[3], unpack(fields))
    forget_accounts({'k.' .. ARGV[argument]})
  end
  return 1
end

if operation == 'spent' then
  local reply = {}
  for argument = 3, #ARGV do
    local account = account_of(ARGV[argument])
    local values = {account.h, account.d, account.m, account.a, account.l,
                    (account.on + 1) * DAY_MS - now_ms, month_left_ms(account.on), 0}
    for _, value in ipairs(values) do reply[#reply + 1] = value end
  end
  return reply
end

load(1)
load(2)

if operation == 'settle' then
  local last, nusd = #ARGV, 0
  if ARGV[last - 1] == '$' then
    last, nusd = last - 2, tonumber(ARGV[last])
  end
  local settled, kept_ms
  if ARGV[last - 1] == '!' then
    kept_ms = tonumber(ARGV[last])
    last, settled = last - 2, ARGV[5] .. '!'
    if redis.call('ZSCORE', KEYS[1], settled) then
      if redis.call('ZREM', KEYS[1], ARGV[5]) == 1 then give_back(ARGV[5], 0, 0, 0) end
      save()
      return 0
    end
  end
  for argument = 5, last do
    if redis.call('ZREM', KEYS[1], ARGV[argument]) == 1 then
      give_back(ARGV[argument], tonumber(ARGV[3]), tonumber(ARGV[4]), nusd)
      if settled then redis.call('ZADD', KEYS[1], now_ms + kept_ms, settled) end
      save()
      return 1
    end
  end
  save()
  return 0
end

if operation == 'extend' then
  local lease, former, status = ARGV[4], ARGV[5], 0
  local had_former = redis.call('ZREM', KEYS[1], former) == 1
  if redis.call('ZSCORE', KEYS[1], lease) then
    status = 2
    if had_former then give_back(former, 0, 0, 0) end  -- a late renewal took it anew
  elseif had_former then
    status = 1
    local fast, deep, counted, key = held_by(former)
    local more_fast, more_deep = held_by(lease)
    change(1, key, fast, more_fast, tonumber(ARGV[6]), counted)
    change(2, key, deep, more_deep, tonumber(ARGV[7]), counted)
  end
  if status > 0 then redis.call('ZADD', KEYS[1], now_ms + tonumber(ARGV[3]), lease) end
  save()
  return status
end

if operation == 'renew' then
  local expires_ms = now_ms + tonumber(ARGV[3])
  local held, anew = 0, 0
  for argument = 4, #ARGV do
    local lease = ARGV[argument]
    if redis.call('ZSCORE', KEYS[1], lease) then
      redis.call('ZADD', KEYS[1], expires_ms, lease)
      held = held + 1
    else
      anew = anew + take_anew(lease, expires_ms)
    end
  end
  save()
  return {held, anew}
end

if operation == 'reap' then
  local reaped = reap(tonumber(ARGV[3]))
  save()
  local next_lease = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {reaped, tonumber(next_lease[2] or 0)}
end
