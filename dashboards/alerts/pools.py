"""Alerts on pools: full ones, slow ones, what is lost of them, and of the ledger."""

from dashboards.alerts.record import Alert, Case, Fires

ASKS = "lanewise_pool_asks_total"


def _asks(num_admitted: int, num_refused: int) -> dict[str, str]:
    return {
        f'{ASKS}{{group="fast",result="admitted"}}': f"0+{num_admitted}x60",
        f'{ASKS}{{group="fast",result="conc"}}': f"0+{num_refused}x60",
        f'{ASKS}{{group="fast",result="rpm"}}': "0+100x60",
    }


# All that was asked of the deep group in minutes was refused, at one moment 25 s ago.
A_BURST = {
    f'{ASKS}{{group="deep",result="admitted"}}': "0x60",
    f'{ASKS}{{group="deep",result="conc"}}': "0x38 8x22",
}
# What one gateway that died held, given back by those that live: each finds a part of it.
REAPED = {f'lanewise_ratelimit_reaped_total{{instance="{name}"}}': "0x20 14x40" for name in "ab"}

# A hundred quick calls in half a minute, and twice fifty slow ones.
TWICE_SLOW = "0+100x9 1050+100x7 1900+100x42"

ALERTS = (
    Alert(
        name="LanewisePoolFull",
        expr=(
            f'sum by (group) (rate({ASKS}{{result="conc"}}[30s]))'
            f' / sum by (group) (rate({ASKS}{{result=~"admitted|conc"}}[30s])) > 0.1'
        ),
        severity="ticket",
        summary=(
            "{{ $value | humanizePercentage }} of the tasks for the {{ $labels.group }} group are"
            " refused: too many at once."
        ),
        lasts="45s",  # beyond the window: one burst, or a single task, is no full pool
        fires=Fires(
            Case(_asks(40, 60), at="5m", interval="5s"),
            "60% of the tasks for the fast group are refused: too many at once.",
            {"group": "fast"},
        ),
        silent=Case(_asks(95, 5) | A_BURST, at="220s", interval="5s"),
        meaning="""\
A tenth or more of the tasks for a group find its pool of tasks at once full (`max_concurrent` of
their tenant, or the group's ceiling) and are refused with 429. Clients that retry make it last.""",
        first_look="""\
1. Dashboard *pools and tenants*, **Fullest pools** and **Refusals by tenant**: which tenant?
   `lanewise pools TENANT` says what is used of each of its limits.
2. Dashboard *engines*, **Sequences**, or `lanewise backends list`: are the engines full, too, or is
   only the limit too low?
3. Dashboard *objectives*, **Duration**: have tasks become longer? Then as many fill a pool
   sooner.""",
        remedy="""\
- The engines have room: raise the tenant's `max_concurrent` (`lanewise tenants set`; a tenant of
  the configuration: change the file and `kill -HUP` the gateway), or the ceiling in `[ceilings]`.
- They have not: add engines. Or let tasks wait for a place (`wait_ms`, docs/operations.md).
- One tenant's client retries without a pause: it should obey `retry-after`.""",
    ),
    Alert(
        name="LanewisePoolsSlow",
        expr=(
            "histogram_quantile(0.99, sum by (le) "
            '(rate(lanewise_ratelimit_redis_seconds_bucket{op="admit"}[2m]))) > 0.025'
        ),
        severity="ticket",
        summary="One admission in a hundred takes longer than 25 ms.",
        lasts="5m",  # beyond the window: two restarts of Redis are no slow one
        fires=Fires(
            Case(
                {
                    'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="0.025"}': "0+90x60",
                    'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="0.05"}': "0+100x60",
                    'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="+Inf"}': "0+100x60",
                },
                at="20m",
            ),
            "One admission in a hundred takes longer than 25 ms.",
        ),
        silent=Case(  # Redis was away for a moment after 5 minutes, and after 9
            {
                'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="0.025"}': "0+100x60",
                'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="0.05"}': TWICE_SLOW,
                'lanewise_ratelimit_redis_seconds_bucket{op="admit",le="+Inf"}': TWICE_SLOW,
            },
            at="11m",
        ),
        meaning="""\
The call that every task makes to Redis before it starts is slow: every first token is as much
later. What misses `redis.budget_ms` (40 by default) twice is an outage: then gateways limit tasks
by themselves.""",
        first_look="""\
1. Dashboard *pools and tenants*, **Calls to the pools**: all calls, or `admit` alone?
2. `redis-cli --latency`, from the gateway's host and from Redis's own: the network, or Redis?
3. `redis-cli slowlog get`; `info stats` for evictions, `info persistence` for a fork under way.""",
        remedy="""\
- Redis is busy: give it a core of its own; use no `save` on a machine with little memory.
- The network: bring them closer to each other, into one zone.
- The gateway's loop is late instead: see [LanewiseEventLoopLag](LanewiseEventLoopLag.md).""",
    ),
    Alert(
        name="LanewiseReservationsReaped",
        expr="sum(increase(lanewise_ratelimit_reaped_total[10m])) > 20",
        severity="ticket",
        summary="Reservations expire unsettled; gateways crash, or do not renew.",
        fires=Fires(
            Case(REAPED, at="20m"),
            "Reservations expire unsettled; gateways crash, or do not renew.",
        ),
        silent=Case({'lanewise_ratelimit_reaped_total{instance="a"}': "0x10 8x60"}, at="20m"),
        meaning="""\
More than twenty reservations in ten minutes ran out because their holder stopped renewing them.
Each is a task whose gateway died, or could not reach Redis for half a minute.""",
        first_look="""\
1. Dashboard *gateway*, **Age** and **Worker crashes**: did processes end?
2. The log of the gateway that restarted, from its end.
3. No crash: was Redis away ([LanewisePoolsUnreachable](LanewisePoolsUnreachable.md))?""",
        remedy="""\
Mend what ends the processes; the pools heal by themselves. Tasks of a killed gateway are charged
nothing.""",
    ),
    # A gateway says what it saw with its last entry, so idle ones do not count: an export may have
    # been since.
    Alert(
        name="LanewiseUsageNotExported",
        expr=(
            "max(lanewise_ledger_entries / lanewise_ledger_max_entries"
            " and increase(lanewise_ledger_appended_total[15m]) > 0) > 0.8"
        ),
        severity="ticket",
        summary=(
            "The usage ledger is {{ $value | humanizePercentage }} full; the oldest entries are"
            " dropped beyond that. Export it."
        ),
        lasts="5m",
        fires=Fires(
            Case(
                {
                    'lanewise_ledger_entries{instance="a"}': "90000x60",
                    'lanewise_ledger_max_entries{instance="a"}': "100000x60",
                    'lanewise_ledger_appended_total{instance="a"}': "0+10x60",
                },
                at="20m",
            ),
            "The usage ledger is 90% full; the oldest entries are dropped beyond that. Export it.",
        ),
        silent=Case(  # idle since the export
            {
                'lanewise_ledger_entries{instance="a"}': "90000x60",
                'lanewise_ledger_max_entries{instance="a"}': "100000x60",
                'lanewise_ledger_appended_total{instance="a"}': "70000x60",
                'lanewise_ledger_entries{instance="b"}': "10x60",
                'lanewise_ledger_max_entries{instance="b"}': "100000x60",
                'lanewise_ledger_appended_total{instance="b"}': "0+10x60",
            },
            at="20m",
        ),
        meaning="""\
The ledger in Redis, of what tenants used, holds more than four fifths of `ledger.max_entries`.
Nothing is lost yet: at the end the oldest entries are, and
[LanewiseUsageLost](LanewiseUsageLost.md) says so.""",
        first_look="""\
1. Dashboard *pools and tenants*, **Usage ledger** and **Ledger entries**: how long until it is
   full?
2. Does the timer of `lanewise usage export` still run, and what does it say?""",
        remedy="""\
- Run `lanewise usage export --out FILE`, and by a timer from now on. An export takes what it wrote
  out of Redis.
- Or raise `ledger.max_entries`, at some 500 bytes of Redis for each.
- Nobody bills by it: silence this alert and LanewiseUsageLost's `stream_full`.""",
    ),
    Alert(
        name="LanewiseUsageLost",
        expr="sum by (reason) (increase(lanewise_ledger_lost_total[10m])) > 0",
        severity="ticket",
        summary="Entries of the usage ledger are lost ({{ $labels.reason }}); export it, or bring"
        " Redis back.",
        fires=Fires(
            Case({'lanewise_ledger_lost_total{reason="stream_full"}': "0x5 0+3x60"}, at="10m"),
            "Entries of the usage ledger are lost (stream_full); export it, or bring Redis back.",
            {"reason": "stream_full"},
        ),
        silent=Case({'lanewise_ledger_lost_total{reason="stream_full"}': "0x60"}, at="10m"),
        meaning="""\
What tenants used is not all kept: `process_full` means that Redis was away for so long that the
process had no room, `stream_full` that nobody exported the ledger in time, `redis_lost` that a
master died with what its replica did not have yet, or Redis with all it had. The alert ends ten
minutes after the last loss.""",
        first_look="Dashboard *pools and tenants*, **Usage ledger** and **Ledger entries**.",
        remedy="""\
- `stream_full`: run `lanewise usage export` now, and by a timer from now on; or raise
  `ledger.max_entries`.
- `process_full`: bring Redis back.
- `redis_lost`: these are gone, and each process counts those of its last second; the task log
  has them. An append-only file keeps what a restart would lose.""",
    ),
)
