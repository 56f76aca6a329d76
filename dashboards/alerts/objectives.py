"""Alerts on the objectives: failed tasks and late first tokens, over short and long windows.

Over 30 days 99.9 % of tasks end without a fault of ours (refusals for a tenant's own limits,
cancelled and invalid requests do not count), and 95 % of fast tasks show their first token within
250 ms. Pairs of windows follow Google's SRE Workbook, chapter 5: 14.4 times the budget for an hour
spends 2 % of a month's. The one-minute rule catches what is plainly broken sooner.
"""

from dashboards.alerts.record import Alert, Case, Fires, Recording, Series

BAD = 'lanewise_requests_total{outcome=~"error|timeout|shed"}'
ALL = 'lanewise_requests_total{outcome=~"ok|error|timeout|shed"}'
ON_TIME = 'lanewise_ttft_seconds_bucket{route="fast",le="0.25"}'
FAST = 'lanewise_ttft_seconds_count{route="fast"}'
LEAST = 20  # tasks in a minute: of fewer, one failure says little
# What pages counts at least so many failed or late tasks in an hour, which at low traffic a share
# alone does not say. One task may be three of them: clients send it again twice.
LEAST_BAD = 5
ENOUGH_FAILED = f"sum(increase({BAD}[1h])) >= {LEAST_BAD}"
ENOUGH_LATE = f"sum(increase({FAST}[1h])) - sum(increase({ON_TIME}[1h])) >= {LEAST_BAD}"


# What long windows average: a rule over days of every series would read millions of samples.
SUMS = (
    Recording("lanewise:tasks_failed:rate5m", f"sum(rate({BAD}[5m]))"),
    Recording("lanewise:tasks_ended:rate5m", f"sum(rate({ALL}[5m]))"),
    Recording("lanewise:fast_first_tokens_on_time:rate5m", f"sum(rate({ON_TIME}[5m]))"),
    Recording("lanewise:fast_first_tokens:rate5m", f"sum(rate({FAST}[5m]))"),
)


def _share(part: str, whole: str, before: str = "") -> str:
    """Divides; the share of nothing is 0, so that a quiet night draws zeros and not a gap."""
    return f"{before}{part} / ({whole} > 0) or {whole}"


def _errors(window: str) -> Recording:
    ratio = _share(f"sum(rate({BAD}[{window}]))", f"sum(rate({ALL}[{window}]))")
    return Recording(f"lanewise:error_ratio:rate{window}", ratio)


def _misses(window: str) -> Recording:
    ratio = _share(f"sum(rate({ON_TIME}[{window}]))", f"sum(rate({FAST}[{window}]))", "1 - ")
    return Recording(f"lanewise:fast_ttft_miss_ratio:rate{window}", ratio)


def _mean(sums: Recording, window: str) -> str:
    return f"avg_over_time({sums.name}[{window}])"


def _long_errors(window: str) -> Recording:
    ratio = _share(_mean(SUMS[0], window), _mean(SUMS[1], window))
    return Recording(f"lanewise:error_ratio:rate{window}", ratio)


def _long_misses(window: str) -> Recording:
    ratio = _share(_mean(SUMS[2], window), _mean(SUMS[3], window), "1 - ")
    return Recording(f"lanewise:fast_ttft_miss_ratio:rate{window}", ratio)


RECORDINGS = (
    *SUMS,
    *map(_errors, ("1m", "5m", "30m", "1h")),
    *map(_misses, ("5m", "30m", "1h")),
)
LONG_RECORDINGS = (
    *map(_long_errors, ("6h", "3d", "30d")),
    *map(_long_misses, ("6h", "3d")),
)


# A long window -> the step in which its history is looked at, and how many steps it has.
STEPS = {"1h": ("1m", 60), "6h": ("5m", 72), "3d": ("1h", 72)}


def _known(all_tasks: Recording, window: str) -> str:
    """Returns the share of a window that Prometheus has a history of."""
    step, num_steps = STEPS[window]
    return f"count_over_time({all_tasks.name}[{window}:{step}]) / {num_steps}"


def _pair(
    ratio: str, all_tasks: Recording, long: str, short: str, times: float, budget: float
) -> str:
    """Compares with what a budget allows: over a long window, and whether it still goes on.

    Where the history is shorter than the long window, the rest of it counts as without fault:
    otherwise seconds of trouble in the first minutes would be a large share of that window.
    """
    threshold = f"{times:g} * {budget:g}"
    return (
        f"lanewise:{ratio}:rate{long} * {_known(all_tasks, long)} > {threshold}"
        f" and lanewise:{ratio}:rate{short} > {threshold}"
    )


def _tasks(num_ok: int, num_failed: int, steps: int) -> Series:
    return {
        'lanewise_requests_total{route="fast",outcome="ok"}': f"0+{num_ok}x{steps}",
        'lanewise_requests_total{route="fast",outcome="error"}': f"0+{num_failed}x{steps}",
    }


def _first_tokens(num_on_time: int, num_all: int, steps: int) -> Series:
    return {ON_TIME: f"0+{num_on_time}x{steps}", FAST: f"0+{num_all}x{steps}"}


def _outage(num_failed: int, steps: int) -> Series:
    """Has 20 tasks a second from the start of a history on; some fail after two minutes of it."""
    return {
        'lanewise_requests_total{route="fast",outcome="ok"}': f"0+600x{steps}",
        'lanewise_requests_total{route="fast",outcome="error"}': f"0x4 {num_failed}x{steps}",
    }


# One task that fails, with what its client sends again, is a large share of few and pages nobody.
ONE_FAILS = {
    'lanewise_requests_total{route="fast",outcome="ok"}': "0+1x120",
    'lanewise_requests_total{route="fast",outcome="error"}': "0x40 3x80",
}
ONE_IS_LATE = {ON_TIME: "0x240", FAST: "0x40 1 2x4 3x200"}

# What is not our fault pages nobody, however much there is.
NOT_OURS = {
    'lanewise_requests_total{route="fast",outcome="ok"}': "0+10x400",
    'lanewise_requests_total{route="fast",outcome="error"}': "0x400",
    'lanewise_requests_total{route="none",outcome="rate_limited"}': "0+500x400",
    'lanewise_requests_total{route="fast",outcome="cancelled"}': "0+500x400",
    'lanewise_requests_total{route="none",outcome="invalid"}': "0+500x400",
}
ERRORS_LOOK = """\
1. Dashboard *objectives*, panel **Tasks**: which `outcome`, on which route? `error`: an engine
   failed; `timeout`: it did not answer in time; `shed`: there was no capacity.
2. Dashboard *engines*, row **Faults**: one backend, or all? Without Grafana, ask Prometheus for
   `sum by (backend, reason) (increase(lanewise_backend_errors_total[5m]))`.
3. Dashboard *gateway*: did processes restart, is the loop late, is Redis away?
4. The log names the tasks that failed and their errors, and says once a minute in an upstream's
   own words why it did ("upstream NAME failed: ..."). Where `recording.path` is set, the decision
   log has the errors, too."""
ERRORS_REMEDY = """\
- One backend fails and others of its group do not: `lanewise backends drain NAME`; what runs there
  ends first. `lanewise backends resume NAME` once it is mended.
- A whole group fails: see [LanewiseGroupDown](LanewiseGroupDown.md).
- It began with a policy (annotation in every dashboard): `lanewise policy rollback`.
- It began with a release: roll the release back.
- `shed`: more is asked than the engines can do. Add engines, or lower the limits of the tenant that
  asks most (dashboard *pools and tenants*). Without Redis a gateway that was just started sheds
  all: see [LanewisePoolsUnreachable](LanewisePoolsUnreachable.md)."""
TTFT_LOOK = """\
1. Dashboard *objectives*, panel **Time to first token**: fast only, or all routes?
2. Dashboard *engines*, **Phases of a request**: a long queue means too many tasks for the engine, a
   long prefill long prompts; **KV cache** near 100 % means both.
3. Dashboard *gateway*, **Event loop lag** and **The gateway's own time**: is it the gateway?
4. Dashboard *pools and tenants*, **Time waited for a pool**: tasks that may wait start late."""
TTFT_REMEDY = """\
- The engine's queue is long: add engines to the fast group, or let its capacity follow demand
  (`[adaptation]`, docs/operations.md), which refuses instead of queueing.
- Long prompts have moved to the fast group: see which rule sends them there (dashboard *routing*),
  and roll the policy back or change it.
- The gateway is late: see [LanewiseEventLoopLag](LanewiseEventLoopLag.md)."""

ALERTS = (
    Alert(
        name="LanewiseErrorsNow",
        expr=(f"lanewise:error_ratio:rate1m > 0.1 and sum(increase({ALL}[1m])) > {LEAST}"),
        severity="page",
        summary="{{ $value | humanizePercentage }} of the last minute's tasks failed.",
        lasts="15s",
        fires=Fires(Case(_tasks(70, 30, 20), at="5m"), "30% of the last minute's tasks failed."),
        silent=Case(_tasks(4, 2, 20), at="5m"),  # too few to say
        meaning="""\
More than a tenth of the tasks of the last minute ended with a fault of ours, and there were enough
of them to say so. At this rate a month's budget of failures is gone within hours.""",
        first_look=ERRORS_LOOK,
        remedy=ERRORS_REMEDY,
    ),
    Alert(
        name="LanewiseErrorBudgetBurnFast",
        expr=_pair("error_ratio", SUMS[1], "1h", "5m", 14.4, 0.001) + f" and {ENOUGH_FAILED}",
        severity="page",
        summary="Tasks fail so often that the month's error budget is gone in two days.",
        lasts="2m",
        fires=Fires(
            Case(_tasks(98, 2, 120), at="55m"),
            "Tasks fail so often that the month's error budget is gone in two days.",
        ),
        silent=Case(NOT_OURS, at="30m"),
        few=Case(ONE_FAILS, at="24m"),
        young=Case(_outage(100, 40), at="6m"),
        meaning="""\
More than 1.44 % of tasks failed, over the last hour and over the last five minutes. One hour of it
spends 2 % of the failures that 30 days may have.""",
        first_look=ERRORS_LOOK,
        remedy=ERRORS_REMEDY,
    ),
    Alert(
        name="LanewiseErrorBudgetBurnSlow",
        expr=_pair("error_ratio", SUMS[1], "6h", "30m", 6, 0.001) + f" and {ENOUGH_FAILED}",
        severity="page",
        summary="Tasks fail so often that the month's error budget is gone in five days.",
        lasts="15m",
        fires=Fires(
            Case(_tasks(990, 10, 600), at="5h"),
            "Tasks fail so often that the month's error budget is gone in five days.",
        ),
        silent=Case(NOT_OURS, at="50m"),
        few=Case(ONE_FAILS, at="50m"),
        young=Case(_outage(600, 100), at="25m"),
        meaning="""\
More than 0.6 % of tasks failed, over the last six hours and over the last half hour: too few to see
at a glance, and enough to spend a month's budget in five days.""",
        first_look=ERRORS_LOOK,
        remedy=ERRORS_REMEDY,
    ),
    Alert(
        name="LanewiseErrorBudgetBurnLong",
        expr=_pair("error_ratio", SUMS[1], "3d", "6h", 1, 0.001),
        severity="ticket",
        summary="Tasks fail more often than the objective allows, and have for days.",
        lasts="1h",
        fires=Fires(
            Case(_tasks(995, 5, 2400), at="40h", interval="1m"),
            "Tasks fail more often than the objective allows, and have for days.",
        ),
        silent=Case(NOT_OURS, at="12h", interval="2m"),
        young=Case(_tasks(995, 5, 800), at="12h", interval="1m"),
        meaning="""\
More than 0.1 % of tasks failed, over three days and over the last six hours. Nothing is on fire;
the objective will be missed if it goes on.""",
        first_look=ERRORS_LOOK,
        remedy=ERRORS_REMEDY,
    ),
    Alert(
        name="LanewiseFastFirstTokenLate",
        expr=_pair("fast_ttft_miss_ratio", SUMS[3], "1h", "5m", 14.4, 0.05) + f" and {ENOUGH_LATE}",
        severity="page",
        summary="Most fast tasks wait longer than 250 ms for their first token.",
        lasts="5m",
        fires=Fires(
            Case(_first_tokens(1, 10, 120), at="58m"),
            "Most fast tasks wait longer than 250 ms for their first token.",
        ),
        silent=Case(_first_tokens(96, 100, 60), at="20m"),
        few=Case(ONE_IS_LATE, at="27m"),
        young=Case(_first_tokens(1, 10, 60), at="20m"),
        meaning="""\
More than 72 % of the fast tasks of the last hour, and of the last five minutes, showed their first
token after more than 250 ms. The fast route is not fast.""",
        first_look=TTFT_LOOK,
        remedy=TTFT_REMEDY,
    ),
    Alert(
        name="LanewiseFastFirstTokenLateForHours",
        expr=_pair("fast_ttft_miss_ratio", SUMS[3], "6h", "30m", 6, 0.05) + f" and {ENOUGH_LATE}",
        severity="page",
        summary="A third or more of the fast tasks have waited over 250 ms for hours.",
        lasts="15m",
        fires=Fires(
            Case(_first_tokens(3, 10, 480), at="4h"),  # 70 % late, which 72 % do not see
            "A third or more of the fast tasks have waited over 250 ms for hours.",
        ),
        silent=Case(_first_tokens(9, 10, 240), at="2h"),
        few=Case(ONE_IS_LATE, at="40m"),
        young=Case(_first_tokens(3, 10, 240), at="2h"),
        meaning="""\
More than 30 % of the fast tasks of the last six hours, and of the last half hour, showed their
first token after more than 250 ms.""",
        first_look=TTFT_LOOK,
        remedy=TTFT_REMEDY,
    ),
    Alert(
        name="LanewiseFastFirstTokenLateForDays",
        expr=_pair("fast_ttft_miss_ratio", SUMS[3], "3d", "6h", 1, 0.05),
        severity="ticket",
        summary="More fast tasks wait over 250 ms than the objective allows, and have for days.",
        lasts="1h",
        fires=Fires(
            Case(_first_tokens(90, 100, 2400), at="40h", interval="1m"),
            "More fast tasks wait over 250 ms than the objective allows, and have for days.",
        ),
        silent=Case(_first_tokens(97, 100, 2400), at="40h", interval="1m"),
        meaning="""\
More than 5 % of the fast tasks of three days, and of the last six hours, showed their first token
after more than 250 ms.""",
        first_look=TTFT_LOOK,
        remedy=TTFT_REMEDY,
    ),
)
