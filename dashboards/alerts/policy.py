"""Alerts on the policy: what decides, canaries, what is recorded and learned of decisions."""

from dashboards.alerts.record import Alert, Case, Fires, Recording

LEAST = 20  # tasks of a canary in the window: of fewer, one failure says little


def _ratio(window: str) -> Recording:
    bad, every = (
        f'sum by (arm) (rate(lanewise_canary_tasks_total{{outcome=~"{outcomes}"}}[{window}]))'
        for outcomes in ("error|timeout|shed", "ok|error|timeout|shed")
    )
    return Recording(f"lanewise:canary_error_ratio:rate{window}", f"{bad} / {every}")


RECORDINGS = (_ratio("1m"), _ratio("10m"))


def _worse(window: str, margin: float) -> str:
    """Queries whether the canary fails more than its control, by a fifth and a margin."""
    ratio = f"lanewise:canary_error_ratio:rate{window}"
    enough = f'sum(increase(lanewise_canary_tasks_total{{arm="canary"}}[{window}])) > {LEAST}'
    return (
        f'{ratio}{{arm="canary"}} > on () (1.2 * {ratio}{{arm="control"}} + {margin:g})'
        f" and on () {enough}"
    )


def _arms(canary_failed: int, control_failed: int, of: int = 100) -> dict[str, str]:
    name = "lanewise_canary_tasks_total"
    return {
        f'{name}{{arm="{arm}",outcome="{outcome}"}}': f"0+{num}x90"
        for arm, failed in (("canary", canary_failed), ("control", control_failed))
        for outcome, num in (("ok", of - failed), ("error", failed))
    }


CANARY_LOOK = """\
1. Dashboard *routing*, row **Canary and shadow against control**: failures, first tokens and tokens
   of both arms. Without Grafana, ask Prometheus for `lanewise:canary_error_ratio:rate1m`.
2. Which rule is the canary? The one with `percent`: `lanewise policy list` says which version
   is in force, `lanewise policy show VERSION` prints it.
3. Dashboard *engines*: does the engine that the canary sends tasks to fail for others as well?
   Then it is the engine, not the rule."""
CANARY_REMEDY = """\
- `lanewise policy rollback` puts the version before back in force, within 2 s on all gateways.
- Or set the rule's `percent = 0` and apply that, to keep the rest of the change."""

BACKTEST = ("lanewise_backtest_error_ratio", "lanewise_backtest_interval_ratio")


def _backtest(error: float, allowed: float) -> dict[str, str]:
    """Returns the series of two gateways, one of which keeps no log and so has nothing to say."""
    return {
        f'{name}{{figure="latency_ms_p95",instance="{instance}"}}': f"{value}+0x180"
        for instance, values in (("a", (error, allowed)), ("b", (0.0, 0.0)))
        for name, value in zip(BACKTEST, values, strict=True)
    }


ALERTS = (
    Alert(
        name="LanewiseBacktestOff",
        expr="max by (figure) "
        "(abs(lanewise_backtest_error_ratio) > lanewise_backtest_interval_ratio)",
        severity="ticket",
        summary="{{ $labels.figure }} is {{ $value | humanizePercentage }} off what the policy's "
        "back-test said.",
        lasts="30m",
        fires=Fires(
            Case(_backtest(-0.4, 0.1), at="45m"),  # fewer than was said
            "latency_ms_p95 is 40% off what the policy's back-test said.",
            {"figure": "latency_ms_p95"},
        ),
        silent=Case(_backtest(-0.08, 0.1), at="45m"),  # within the interval
        meaning="""\
The policy in force was applied with a prediction (`--require-backtest`), and what came since is
beyond its 90 % interval: the policy was judged by figures that do not hold.""",
        first_look="""\
1. `lanewise backtest check` prints each figure, its interval and what came, and names what was not
   as taken for granted: traffic, lengths of prompts and answers, step times, the gateway's time.
2. Traffic that grew is no fault of the policy; step times that grew are the engines': dashboard
   *engines*, time per output token.
3. Does `lanewise backtest --last 1h` now say in its first line that a replay is far off? Then the
   engines are not as they are configured.""",
        remedy="""\
- Back-test again on today's log, and decide again: `lanewise policy rollback`, or apply the same
  document with `--require-backtest`, which makes a new prediction.
- Where step times are off for good, put the engines' settings right.""",
    ),
    Alert(
        name="LanewiseCanaryFailsNow",
        expr=_worse("1m", 0.1),
        severity="page",
        summary="{{ $value | humanizePercentage }} of the canary's tasks failed in a minute.",
        lasts="15s",
        fires=Fires(
            Case(_arms(30, 1), at="5m"),
            "30% of the canary's tasks failed in a minute.",
        ),
        silent=Case(_arms(30, 30), at="5m"),  # both fail: it is not the canary
        meaning="""\
The tasks that a rule with `percent` takes fail far more often than those that the same rule leaves
alone, by the last minute.""",
        first_look=CANARY_LOOK,
        remedy=CANARY_REMEDY,
    ),
    Alert(
        name="LanewiseCanaryWorse",
        expr=_worse("10m", 0.01),
        severity="ticket",
        summary="The canary's tasks fail more often than those of its control.",
        lasts="10m",
        fires=Fires(
            Case(_arms(5, 1), at="25m"),
            "The canary's tasks fail more often than those of its control.",
        ),
        silent=Case(_arms(1, 1), at="25m"),
        meaning="""\
Over ten minutes and for as long, a canary's tasks failed more often than its control's: by a fifth
and by one in a hundred at least.""",
        first_look=CANARY_LOOK,
        remedy=CANARY_REMEDY,
    ),
    Alert(
        name="LanewiseCanarySlower",
        expr=(
            "histogram_quantile(0.95, sum by (le, arm) (rate(lanewise_canary_ttft_seconds_bucket"
            '{arm="canary"}[10m]))) > on () 1.2 * histogram_quantile(0.95, sum by (le, arm) '
            '(rate(lanewise_canary_ttft_seconds_bucket{arm="control"}[10m]))) and on () '
            'sum(increase(lanewise_canary_ttft_seconds_count{arm="canary"}[10m])) > 200'
        ),
        severity="ticket",
        summary="The canary's first tokens come later than those of its control.",
        lasts="10m",
        fires=Fires(
            Case(
                {
                    'lanewise_canary_ttft_seconds_bucket{arm="canary",le="0.25"}': "0+10x90",
                    'lanewise_canary_ttft_seconds_bucket{arm="canary",le="1.0"}': "0+100x90",
                    'lanewise_canary_ttft_seconds_bucket{arm="canary",le="+Inf"}': "0+100x90",
                    'lanewise_canary_ttft_seconds_count{arm="canary"}': "0+100x90",
                    'lanewise_canary_ttft_seconds_bucket{arm="control",le="0.25"}': "0+100x90",
                    'lanewise_canary_ttft_seconds_bucket{arm="control",le="1.0"}': "0+100x90",
                    'lanewise_canary_ttft_seconds_bucket{arm="control",le="+Inf"}': "0+100x90",
                },
                at="25m",
            ),
            "The canary's first tokens come later than those of its control.",
        ),
        silent=Case(
            {
                'lanewise_canary_ttft_seconds_bucket{arm="canary",le="0.25"}': "0+100x90",
                'lanewise_canary_ttft_seconds_bucket{arm="canary",le="+Inf"}': "0+100x90",
                'lanewise_canary_ttft_seconds_count{arm="canary"}': "0+100x90",
                'lanewise_canary_ttft_seconds_bucket{arm="control",le="0.25"}': "0+100x90",
                'lanewise_canary_ttft_seconds_bucket{arm="control",le="+Inf"}': "0+100x90",
            },
            at="25m",
        ),
        meaning="""\
Of more than 200 tasks in ten minutes, the slowest twentieth of a canary's first tokens come later
by a fifth or more than its control's. A canary that moves tasks to the deep group is meant to be
slower: silence it then.""",
        first_look=CANARY_LOOK,
        remedy=CANARY_REMEDY,
    ),
    Alert(
        name="LanewisePolicyReloadFailing",
        expr='sum by (instance) (increase(lanewise_policy_reload_total{result!="ok"}[1m])) > 0',
        severity="ticket",
        summary="{{ $labels.instance }} cannot follow the policy store; its last good one rules.",
        lasts="3m",
        fires=Fires(
            Case(
                {'lanewise_policy_reload_total{instance="a",result="unavailable"}': "0x4 0+15x60"}
            ),
            "a cannot follow the policy store; its last good one rules.",
            {"instance": "a"},
        ),
        # A minute without Redis: never raised, neither then nor later.
        silent=Case(
            {'lanewise_policy_reload_total{instance="a",result="unavailable"}': "0x4 15 30 30x60"},
            at="5m",
        ),
        meaning="""\
For three minutes a gateway could not read the policy store (`unavailable`), or could not use what
it found there (`invalid`). The last good policy rules on; changes do not reach this gateway.""",
        first_look="""\
1. Dashboard *routing*, **Policy changes**: `unavailable` or `invalid`?
2. The gateway's log says once what is wrong with it.""",
        remedy="""\
- `unavailable`: bring Redis back ([LanewisePoolsUnreachable](LanewisePoolsUnreachable.md)).
- `invalid`: a newer release's policy on an older gateway. Update the gateway, or
  `lanewise policy rollback`.""",
    ),
    Alert(
        name="LanewisePolicySkew",
        expr=(
            'max by (site) (lanewise_policy_version{mode="live"})'
            ' - min by (site) (lanewise_policy_version{mode="live"}) > 0'
        ),
        severity="ticket",
        summary="Gateways have different policies in force.",
        lasts="5m",
        fires=Fires(
            Case(
                {
                    'lanewise_policy_version{mode="live",instance="a"}': "3x60",
                    'lanewise_policy_version{mode="live",instance="b"}': "4x60",
                }
            ),
            "Gateways have different policies in force.",
        ),
        silent=Case(
            {
                'lanewise_policy_version{mode="live",instance="a"}': "3x4 4x60",
                'lanewise_policy_version{mode="live",instance="b"}': "3x5 4x60",
                'lanewise_policy_version{mode="live",instance="e",site="edge"}': "9x60",  # its own
            }
        ),
        meaning="""\
For five minutes two gateways have decided by different versions. A change normally reaches all
within 2 s. Gateways of other sites have versions of their own: their targets need another label
`site`.""",
        first_look="""\
Dashboard *routing*, **Policy in force**, with each `instance` in turn: which one is behind? Does it
share the others' Redis?""",
        remedy="Restart the gateway that is behind, or correct its `redis.url`.",
    ),
    Alert(
        name="LanewiseDecisionsNotRecorded",
        expr='sum(increase(lanewise_decision_records_total{result!="written"}[10m])) > 0',
        severity="ticket",
        summary="Decisions are lost to the log; back-tests will not see them.",
        fires=Fires(
            Case({'lanewise_decision_records_total{result="failed"}': "0x4 0+2x60"}),
            "Decisions are lost to the log; back-tests will not see them.",
        ),
        silent=Case(
            {
                'lanewise_decision_records_total{result="failed"}': "0x60",
                'lanewise_decision_records_total{result="written"}': "0+50x60",
            }
        ),
        meaning="""\
Lines of the decision log were not written: `failed`, the disk is full or the file is gone;
`dropped`, the disk is too slow. Tasks are not affected.""",
        first_look="`df -h` for the disk of `recording.path`; the log names file and error.",
        remedy="Make room, or lower `recording.keep` and `recording.max_bytes`.",
    ),
    # New tenants usually differ from what the classifier was trained on, until they taught enough.
    Alert(
        name="LanewiseTrafficDrifts",
        expr="max by (sign) (lanewise_drift_alarms) > 0",
        severity="ticket",
        summary="{{ $value }} tenants' traffic has moved, by {{ $labels.sign }}.",
        lasts="1h",
        fires=Fires(
            Case({'lanewise_drift_alarms{sign="words"}': "2x90"}, at="80m", interval="1m"),
            "2 tenants' traffic has moved, by words.",
            {"sign": "words"},
        ),
        silent=Case(
            {'lanewise_drift_alarms{sign="shape"}': "0x30 1x15 0x45"}, at="80m", interval="1m"
        ),
        meaning="""\
What some tenants ask has differed for an hour from what the classifier knows. It may route worse,
and learns from outcomes as they come.""",
        first_look="`GET /admin/learning` names the tenants; dashboard *routing* the signals.",
        remedy="""\
Often none: a new tenant. If failures rise as well, give the tenant a rule of its own, or report
outcomes ([learning.md](../learning.md)).""",
    ),
)
