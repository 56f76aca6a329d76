"""Alerts on the gateway's own processes."""

from dashboards.alerts.record import Alert, Case, Fires

_LAG = "lanewise_event_loop_lag_seconds_bucket"

ALERTS = (
    Alert(
        name="LanewiseEventLoopLag",
        expr=f"histogram_quantile(0.99, sum by (le, instance) (rate({_LAG}[5m]))) > 0.25",
        severity="page",
        summary="{{ $labels.instance }} wakes late; every stream on it stutters.",
        lasts="5m",
        fires=Fires(
            Case(
                {
                    f'{_LAG}{{instance="slow",le="0.25"}}': "0+1x60",
                    f'{_LAG}{{instance="slow",le="0.5"}}': "0+100x60",
                    f'{_LAG}{{instance="slow",le="+Inf"}}': "0+100x60",
                },
                at="20m",
            ),
            "slow wakes late; every stream on it stutters.",
            {"instance": "slow"},
        ),
        silent=Case(
            {
                f'{_LAG}{{instance="well",le="0.25"}}': "0+100x60",
                f'{_LAG}{{instance="well",le="0.5"}}': "0+100x60",
                f'{_LAG}{{instance="well",le="+Inf"}}': "0+100x60",
            },
            at="20m",
        ),
        meaning="""\
The loop that moves all streams of a process wakes a quarter of a second late or more. Either the
process has more to do than a core can, or something else takes the core.""",
        first_look="""\
1. Dashboard *gateway*, **CPU**: near 1 (a core)? Then it has too much to do.
2. `top`: another program on that machine? **Memory**: does the machine swap?""",
        remedy="""\
- Too much to do: `--workers` with a core each, or more gateways.
- Not its own fault: give it cores of its own (`CPUQuota`, requests equal to limits).""",
    ),
    # While SIGHUP replaces them, one after the other is missing, for some seconds each.
    Alert(
        name="LanewiseWorkersMissing",
        expr="lanewise_workers < lanewise_workers_wanted",
        severity="ticket",
        summary="{{ $labels.instance }} has {{ $value }} workers serving, and wants more.",
        lasts="5m",
        fires=Fires(
            Case(
                {
                    'lanewise_workers{instance="short"}': "4x3 3x40",
                    'lanewise_workers_wanted{instance="short"}': "4x43",
                },
                at="15m",
            ),
            "short has 3 workers serving, and wants more.",
            {"instance": "short"},
        ),
        silent=Case(
            {
                'lanewise_workers{instance="rolled"}': "4x3 3x3 4 3x3 4x40",
                'lanewise_workers_wanted{instance="rolled"}': "4x50",
            },
            at="6m",
        ),
        meaning="For five minutes fewer workers have served than `--workers` asks for.",
        first_look="The supervisor's log: which worker ended, with which status; when it retries.",
        remedy="""\
Mend what its last words name: a port that is taken, a file that is missing, no memory. Restart the
service if it gave a worker up.""",
    ),
    Alert(
        name="LanewiseWorkersCrash",
        expr="sum by (instance) (increase(lanewise_worker_restarts_total[10m])) > 3",
        severity="ticket",
        summary="Workers of {{ $labels.instance }} crash again and again; its log says with what.",
        fires=Fires(
            Case({'lanewise_worker_restarts_total{instance="looping"}': "0x4 0+1x40"}),
            "Workers of looping crash again and again; its log says with what.",
            {"instance": "looping"},
        ),
        silent=Case({'lanewise_worker_restarts_total{instance="stumbled"}': "0x4 1x40"}),
        meaning="""\
Four or more workers or engines' processes of one supervisor ended or hung within ten minutes. Each
takes its clients' streams with it.""",
        first_look="""\
The supervisor's log: `ended with status -9` is the kernel's out-of-memory killer. Anything else is
preceded by a traceback; with `-11`, a crash of the interpreter, by where each thread was.""",
        remedy="Memory: lower `[memory]`'s bounds. A traceback: roll back, and report it.",
    ),
    Alert(
        name="LanewiseFileDescriptorsNearLimit",
        expr='process_open_fds{job="lanewise"} / process_max_fds{job="lanewise"} > 0.8',
        severity="ticket",
        summary="{{ $labels.instance }} will soon refuse connections.",
        lasts="5m",
        fires=Fires(
            Case(
                {
                    'process_open_fds{job="lanewise",instance="a"}': "900x40",
                    'process_max_fds{job="lanewise",instance="a"}': "1024x40",
                }
            ),
            "a will soon refuse connections.",
            {"job": "lanewise", "instance": "a"},
        ),
        silent=Case(
            {
                'process_open_fds{job="lanewise",instance="a"}': "500x40",
                'process_max_fds{job="lanewise",instance="a"}': "1024x40",
                'process_open_fds{job="another",instance="b"}': "1000x40",
                'process_max_fds{job="another",instance="b"}': "1024x40",
            }
        ),
        meaning="""\
A process holds four fifths of the file descriptors that it may. Beyond seven eighths it cuts
connections without a key, then it refuses new ones.""",
        first_look="Dashboard *gateway*, **Client connections**: with a key, or without?",
        remedy="""\
Raise the limit (`LimitNOFILE=`, `ulimit -n`) and restart, or add gateways. Connections without a
key: lower `connections.max_per_address`.""",
    ),
    Alert(
        name="LanewiseConfigNotTaken",
        expr="lanewise_config_reload_failed == 1",
        severity="ticket",
        summary="{{ $labels.instance }} read its configuration again, and found it wrong.",
        fires=Fires(
            Case({'lanewise_config_reload_failed{instance="a"}': "0x5 1x30"}),
            "a read its configuration again, and found it wrong.",
            {"instance": "a"},
        ),
        silent=Case({'lanewise_config_reload_failed{instance="a"}': "0x5 1x5 0x30"}),  # put right
        lasts="1m",
        meaning="""\
After a SIGHUP the file was found wrong: the configuration from before is in force, without what was
to change. A gateway that is started with this file ends at once.""",
        first_look="""\
The gateway's log says which setting is wrong, and where; so does `lanewise config check FILE`.""",
        remedy="""\
Put the file right and `kill -HUP` the gateway again (`systemctl reload lanewise`). The alert ends
with a file that is taken.""",
    ),
    Alert(
        name="LanewiseCertificateEnds",
        expr="(lanewise_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400",
        severity="ticket",
        summary="The certificate of {{ $labels.instance }} has"
        " {{ $value | humanizeDuration }} left.",
        lasts="5m",
        fires=Fires(
            Case({'lanewise_certificate_expiry_timestamp_seconds{instance="a"}': "259800x60"}),
            "The certificate of a has 3d 0h 0m 0s left.",
            {"instance": "a"},
        ),
        silent=Case(  # renewed after five minutes, and one without TLS
            {
                'lanewise_certificate_expiry_timestamp_seconds{instance="a"}': "9000x9 9000000x50",
                'lanewise_certificate_expiry_timestamp_seconds{instance="b"}': "0x60",
            }
        ),
        meaning="""\
The certificate that the gateway shows is valid for less than two weeks, or not any more: then
clients refuse to connect. What renews it, usually a month ahead, did not, or the gateway was not
told.""",
        first_look="""\
1. Dashboard *gateway*, **Certificate**: all gateways, or one?
2. `lanewise doctor --no-engines --config FILE` says how long the file's is valid, and the one that
   is shown. Is the file's newer?
3. The log of what renews it, such as certbot's timer or cert-manager's `Certificate`.""",
        remedy="""\
- The file is newer: `kill -HUP` the gateway (`systemctl reload lanewise`), and let the renewal do
  that from now on.
- It is not: renew it, then the same. Connections that are open stay.""",
    ),
)
