"""Alerts on what is down: gateways, engines, Redis, and the alerts themselves."""

from dashboards.alerts.objectives import LEAST_BAD
from dashboards.alerts.record import Alert, Case, Fires


def _engine(num_waiting: int, tokens: str, num_cancelled: int) -> dict[str, str]:
    return {
        'vllm:num_requests_waiting{job="lanewise",engine="deep"}': f"{num_waiting}x60",
        'vllm:num_requests_running{job="lanewise",engine="deep"}': "0x60",
        'vllm:generation_tokens_total{job="lanewise",engine="deep"}': tokens,
        'lanewise_requests_total{outcome="cancelled"}': f"0+{num_cancelled}x60",
    }


ALERTS = (
    Alert(
        name="LanewiseHeartbeat",
        expr="vector(1)",
        severity="heartbeat",
        summary="Alerts reach this far.",
        fires=Fires(
            Case({'up{job="lanewise",instance="a"}': "1x20"}, at="1m"), "Alerts reach this far."
        ),
        silent=None,  # it never is
        meaning="""\
Always raised. It shows that Prometheus evaluates its rules and that Alertmanager delivers. What
receives it must tell somebody when it stays away: then no other alert would arrive either.""",
        first_look="""\
If it stays away:

1. Do Prometheus (`:9090/-/healthy`) and Alertmanager (`:9093/-/healthy`) answer?
2. Prometheus, *Status > Rules*: does it evaluate? *Status > Runtime*: does it know Alertmanager?
3. Alertmanager's log: is the receiver's address right, and does it answer?""",
        remedy="""\
Start what does not run (`docker compose -f deploy/compose.yaml up -d`), and mend the receiver's
address in `deploy/alertmanager.yml`.""",
    ),
    Alert(
        name="LanewiseTargetDown",
        expr='up{job="lanewise"} == 0',
        severity="page",
        summary="Prometheus cannot reach gateway {{ $labels.instance }}.",
        lasts="30s",
        fires=Fires(
            Case(
                {
                    'up{job="lanewise",instance="a"}': "1x4 0x10",
                    'up{job="lanewise",instance="b"}': "1x20",
                },
                at="4m",
            ),
            "Prometheus cannot reach gateway a.",
            {"job": "lanewise", "instance": "a"},
        ),
        # A restart that takes one scrape.
        silent=Case({'up{job="lanewise",instance="a"}': "1x4 0 1x10"}, at="2m30s"),
        meaning="""\
`/metrics` of a gateway has not answered for half a minute. The process has ended, hangs, or cannot
be reached from Prometheus.""",
        first_look="""\
1. Does it serve? `curl http://HOST:8080/healthz`. Then only its admin address (8081) is shut.
2. Does it run? `docker compose -f deploy/compose.yaml ps gateway`, `systemctl status lanewise`,
   `kubectl -n lanewise get pods`.
3. Its log's last lines: a `ConfigError` says which setting is wrong; nothing at all after a while
   of work is the kernel's out-of-memory killer (`dmesg | tail`).""",
        remedy="""\
- Start it again. Reservations of the dead process come back by themselves within 31 s, and clients
  reconnect to any other gateway.
- It ends at once: `lanewise config check FILE` names what is wrong with the configuration.
- Out of memory: lower `[memory]`'s bounds, or give it more.
- Point Prometheus at `server.admin_address`, and at no public one.""",
    ),
    Alert(
        name="LanewiseNoTargets",
        expr='absent(up{job="lanewise"})',
        severity="page",
        summary="Prometheus scrapes no gateway: its job `lanewise` has no targets.",
        lasts="1m",
        fires=Fires(
            Case({'up{job="gateways",instance="a"}': "1x20"}, at="4m"),
            "Prometheus scrapes no gateway: its job `lanewise` has no targets.",
            {"job": "lanewise"},
        ),
        silent=Case({'up{job="lanewise",instance="a"}': "1x4 0x16"}, at="8m"),  # another's
        meaning="""\
Nothing is known of any gateway, so no other alert of theirs can be raised. Either none runs, or
Prometheus does not find them, or its job has another name: alerts and dashboards ask for
`job="lanewise"`.""",
        first_look="""\
1. Prometheus, *Status > Targets*: is there a job `lanewise`, and what was dropped of it?
2. Do gateways run? `curl http://HOST:8080/healthz`, `kubectl -n lanewise get pods`.
3. Kubernetes: may Prometheus's service account list the pods of that namespace? Its log says.""",
        remedy="""\
- Name the job `lanewise`, as `deploy/prometheus.yml` and `deploy/prometheus.kubernetes.yml` do.
- No gateway runs: start one; see [LanewiseTargetDown](LanewiseTargetDown.md).""",
    ),
    Alert(
        name="LanewiseGroupDown",
        expr="count by (group) (lanewise_group_backends_up == 0)",
        severity="page",
        summary="No engine is left in the {{ $labels.group }} group, as {{ $value }} of the"
        " gateways see it.",
        lasts="20s",
        fires=Fires(
            Case(
                {
                    'lanewise_group_backends_up{group="fast",instance="a"}': "2x4 0x20",
                    'lanewise_group_backends_up{group="fast",instance="b"}': "2x24",
                    'lanewise_group_backends_up{group="deep",instance="a"}': "1x24",
                },
                at="5m",
            ),
            "No engine is left in the fast group, as 1 of the gateways see it.",
            {"group": "fast"},
        ),
        silent=Case({'lanewise_group_backends_up{group="fast"}': "2x4 1x20"}, at="8m"),
        meaning="""\
Every engine of the group is down, drained, or left alone for its failures. Tasks that may run on
the other group do; all others fail.""",
        first_look="""\
1. All gateways, or one, whose network is to blame then? Dashboard *engines*, row **Now**, with each
   `instance` in turn: which engines are down (*Up*), which are ejected or drained? Without Grafana:
   `lanewise backends list`, or ask Prometheus for
   `lanewise_group_backends_up == 0 or lanewise_backend_up == 0 or lanewise_backend_ejected == 1`.
2. `/readyz` names them; the gateway's log says why, once for each cause: refused, timed out, wrong
   key.
3. From the gateway's host: does `GET {base_url}/models` answer, with the key of `key_env`?""",
        remedy="""\
- Start the engine (`lanewise engine ...` for a linked one); the gateway finds it within 5 s.
- An upstream that refuses the key: renew it in the file that `key_file` names, and `kill -HUP`. The
  variable that `key_env` names is a running process's own: renew it and restart the gateway.
- It takes long: send the group's tasks to the other one with a policy rule
  (`lanewise policy apply`), so that no task waits in vain.""",
    ),
    Alert(
        name="LanewiseBackendDown",
        # Its group is what deploy/alertmanager.yml knows those of a group that is down by.
        expr="min by (backend, group) (lanewise_backend_up) == 0 unless on (backend) "
        "max by (backend) (lanewise_backend_drained) == 1",
        severity="ticket",
        summary="{{ $labels.backend }} is not healthy.",
        lasts="1m",
        fires=Fires(
            Case(
                {
                    'lanewise_backend_up{backend="wafer",group="fast"}': "1x5 0x30",
                    'lanewise_backend_up{backend="gpu",group="deep"}': "1x40",
                    'lanewise_backend_up{backend="at-rest",group="deep"}': "1x5 0x30",
                    'lanewise_backend_drained{backend="at-rest"}': "1x40",
                }
            ),
            "wafer is not healthy.",
            {"backend": "wafer", "group": "fast"},
        ),
        silent=Case({'lanewise_backend_up{backend="wafer",group="fast"}': "1x5 0 1x30"}),
        meaning="""\
One engine does not answer its probe, or its link is down. Others of its group do its work; when
none is left, [LanewiseGroupDown](LanewiseGroupDown.md) pages.""",
        first_look="""\
1. The gateway's log names the engine, its address and the cause, once for each cause.
2. Dashboard *engines*: is the load of the others bearable (**Sequences**, **KV cache**)?""",
        remedy="""\
Start the engine, or take it out of the configuration and `kill -HUP` the gateway.""",
    ),
    # Clients that leave before the engine's own time limit make it no failure, and its probe is
    # answered: nothing else tells of it.
    Alert(
        name="LanewiseEngineSilent",
        expr='sum by (engine) (vllm:num_requests_waiting{job="lanewise"}) > 0'
        ' and sum by (engine) (vllm:num_requests_running{job="lanewise"}) == 0'
        ' and sum by (engine) (increase(vllm:generation_tokens_total{job="lanewise"}[3m])) == 0'
        " and on () "
        f'sum(increase(lanewise_requests_total{{outcome="cancelled"}}[5m])) >= {LEAST_BAD}',
        severity="page",
        summary="{{ $labels.engine }} takes tasks and has given no token for three minutes.",
        lasts="1m",
        fires=Fires(
            Case(_engine(2, "0+40x10 400x50", 1), at="15m"),
            "deep takes tasks and has given no token for three minutes.",
            {"engine": "deep"},
        ),
        silent=Case(_engine(2, "0+40x60", 1), at="15m"),
        few=Case(_engine(1, "400x60", 0), at="15m"),  # one that thinks for long
        meaning="""\
The engine answers its probe and takes tasks, and none of them has had a token. Clients gave up
before `first_token_timeout_s` did (120 s by default), so that these tasks count as cancelled and
not as failed.""",
        first_look="""\
1. Dashboard *engines*, **Sequences**: how many wait there, on this engine alone?
2. Dashboard *objectives*, **Tasks**: `cancelled`, on which route?
3. Ask the engine itself, past the gateway: one small task. Does it queue, load, or hang?""",
        remedy="""\
- Others of its group work: `lanewise backends drain NAME`, restart it, `lanewise backends resume
  NAME`.
- It is the only one: restart it. Send its group's tasks to the other one until then, by a policy
  rule (`lanewise policy apply`).
- Lower its `first_token_timeout_s` below what clients wait: then such tasks fail over.""",
    ),
    # An ejection is short at first and comes again while the failures do: gaps of a minute count.
    Alert(
        name="LanewiseBackendEjected",
        expr="max by (backend) (max_over_time(lanewise_backend_ejected[1m])) == 1",
        severity="ticket",
        summary="{{ $labels.backend }} fails again and again; others of its group do its work.",
        lasts="2m",
        fires=Fires(
            Case(
                {'lanewise_backend_ejected{backend="flapping"}': "0 1 0 1 0 1 1 0 1 1 1 1 1 1 1 1"},
                at="5m",
            ),
            "flapping fails again and again; others of its group do its work.",
            {"backend": "flapping"},
        ),
        silent=Case({'lanewise_backend_ejected{backend="stumbled"}': "0 0 1 0x20"}, at="5m"),
        meaning="""\
The engine answers its probe, but task after task fails there, so that it is left alone for a while,
longer each time.""",
        first_look="""\
1. Dashboard *engines*, **Failed generations**: which reason?
2. The gateway's log has the upstream's own words.""",
        remedy="""\
- `server_is_overloaded`: its provider limits you; lower its `max_num_seqs`, or buy more.
- `server_error`: a fault of the engine. Take it out until it is mended.
- Anything else: what we send is not taken; see the upstream's options (docs/operations.md).""",
    ),
    Alert(
        name="LanewisePoolsUnreachable",
        expr="sum(lanewise_ratelimit_degraded) > 0",
        severity="page",
        summary="{{ $value }} of the gateways cannot reach Redis.",
        lasts="30s",
        fires=Fires(
            Case(
                {
                    'lanewise_ratelimit_degraded{instance="a"}': "0x9 1x20",
                    'lanewise_ratelimit_degraded{instance="b"}': "0x30",
                },
                at="6m",
            ),
            "1 of the gateways cannot reach Redis.",
        ),
        silent=Case({'lanewise_ratelimit_degraded{instance="a"}': "0x9 1 0x20"}, at="5m"),
        meaning="""\
Tasks are limited by each gateway for itself, at half of each limit divided by the gateways that
live. Nothing fails for it, stored responses aside; limits are rough, and new keys are not learned
of. A gateway that was started meanwhile refuses every task, and is not ready, unless
`redis.on_blind` is "local": restart none until Redis is back.""",
        first_look="""\
1. Dashboard *pools and tenants*, row **Redis**: all gateways, or one? Without Grafana, ask
   Prometheus for `lanewise_ratelimit_degraded == 1`.
2. Where the gateway runs, with its environment: `lanewise doctor --no-engines --config FILE`.
   "Connect call failed": it does not run. "Timeout reading": it runs and answers nothing.
3. Redis's own log: out of memory, a failover, a disk that is full?""",
        remedy="""\
- Start Redis; restart one that answers nothing. Gateways return by themselves within seconds and
  settle what waited.
- One gateway only: its network, or its password.
- It came back empty: see [LanewiseRedisCameBackEmpty](LanewiseRedisCameBackEmpty.md).""",
    ),
    Alert(
        name="LanewiseRedisCameBackEmpty",
        expr="sum by (instance) (increase(lanewise_embedded_redis_restarts_total[10m])) > 0",
        severity="ticket",
        summary="The embedded Redis of {{ $labels.instance }} ended and came back empty.",
        fires=Fires(
            Case({'lanewise_embedded_redis_restarts_total{instance="a"}': "0x5 1x20"}, at="5m"),
            "The embedded Redis of a ended and came back empty.",
            {"instance": "a"},
        ),
        silent=Case({'lanewise_embedded_redis_restarts_total{instance="a"}': "1x40"}, at="15m"),
        meaning="""\
The Redis that the gateway runs itself has ended and was started anew. Nothing of it is on disk:
pools are full again, and stored responses, run-time keys, policies and unexported usage are
gone.""",
        first_look="""\
The gateway's log: `the embedded Redis ended with code ...` and its last words. Code -9 is the
kernel's out-of-memory killer, or somebody's `kill -9`.""",
        remedy="""\
- Apply the policy again (`lanewise policy apply`), and make run-time keys anew.
- For anything but one process on one machine, run a Redis of its own and name it in `[redis] url`:
  then nothing is lost.""",
    ),
)
