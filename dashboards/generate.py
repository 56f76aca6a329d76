"""Writes overview.json, the Grafana dashboard that shows every metric of the gateway.

Run it after changing it: python dashboards/generate.py. A test compares the file with its output.
"""

import json
from pathlib import Path
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # of Grafana's grid
HEIGHT = 8

Panel = dict[str, Any]


def rate(metric: str, *by: str) -> str:
    """Per second, summed over everything but `by`."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (rate({metric}[$__rate_interval]))"


def never_empty(expr: str) -> str:
    """Zero where nothing was counted yet: errors are rare, and a blank panel says nothing."""
    return f"{expr} or vector(0)"


def quantile(q: float, histogram: str, *by: str) -> str:
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', 'le', *by)})"


def panel(title: str, unit: str, text: str, *targets: tuple[str, str], kind: str = "") -> Panel:
    """A panel; each target is (expression, legend)."""
    return {
        "type": kind or "timeseries",
        "title": title,
        "description": text,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for number, (expr, legend) in enumerate(targets)
        ],
    }


def quantiles(title: str, text: str, histogram: str, *by: str, unit: str = "s") -> Panel:
    """The median and the 95th percentile of a histogram."""
    label = " ".join(f"{{{{{name}}}}}" for name in by)
    return panel(
        title,
        unit,
        text,
        (quantile(0.5, histogram, *by), f"p50 {label}".strip()),
        (quantile(0.95, histogram, *by), f"p95 {label}".strip()),
    )


TASKS = (
    panel(
        "Tasks",
        "reqps",
        "Tasks that ended, by route and outcome.",
        (rate("lanewise_requests_total", "route", "outcome"), "{{route}} {{outcome}}"),
    ),
    panel(
        "Tasks running",
        "short",
        "Between arrival and terminal event, over all processes.",
        ("sum(lanewise_tasks_running)", "running"),
    ),
    quantiles(
        "Duration",
        "From arrival to the terminal event.",
        "lanewise_request_duration_seconds",
        "route",
    ),
    panel(
        "Tokens",
        "short",
        "Tokens per second; input includes cached ones, output includes reasoning.",
        (rate("lanewise_tokens_total", "model", "type"), "{{model}} {{type}}"),
    ),
    panel(
        "Version",
        "short",
        "Processes by version.",
        ("count by (version) (lanewise_build_info)", "{{version}}"),
        kind="stat",
    ),
)
SPEED = (
    quantiles("Time to first token", "From arrival.", "lanewise_ttft_seconds", "route"),
    quantiles(
        "Time per output token",
        "Mean of a task, its first token excepted.",
        "lanewise_time_per_output_token_seconds",
        "model",
    ),
    quantiles(
        "Waiting for the stream's turn",
        "From arrival until its stream let it start.",
        "lanewise_queue_wait_seconds",
        "route",
    ),
    panel(
        "The gateway's own time",
        "s",
        "99th percentile per task and stage.",
        (quantile(0.99, "lanewise_gateway_overhead_seconds", "stage"), "{{stage}}"),
    ),
    quantiles("Event loop lag", "How late the loop wakes.", "lanewise_event_loop_lag_seconds"),
)
DECISIONS = (
    panel(
        "Decisions",
        "reqps",
        "Routes taken, by the rule that put them first.",
        (
            rate("lanewise_route_decisions_total", "policy", "rule", "route", "mode"),
            "{{route}} for {{rule}} ({{policy}}, {{mode}})",
        ),
    ),
    panel(
        "Policy in force",
        "short",
        "The stored version, in the first and the last process; they differ during a change only.",
        ("min by (mode) (lanewise_policy_version)", "{{mode}} min"),
        ("max by (mode) (lanewise_policy_version)", "{{mode}} max"),
    ),
    panel(
        "Policy changes",
        "reqps",
        "Taken from the store, or why they could not be.",
        (never_empty(rate("lanewise_policy_reload_total", "result")), "{{result}}"),
    ),
    panel(
        "Decision log",
        "reqps",
        "Lines written, and lines lost.",
        (rate("lanewise_decision_records_total", "result"), "{{result}}"),
    ),
    quantiles(
        "Classifier's confidence",
        "Probability of the label it chose.",
        "lanewise_classifier_confidence",
        "task",
        unit="percentunit",
    ),
    panel(
        "Escalations",
        "reqps",
        "Tasks that ran elsewhere than ranked first.",
        (
            never_empty(rate("lanewise_escalations_total", "from", "to", "reason")),
            "{{from}} to {{to}} {{reason}}",
        ),
    ),
    panel(
        "Outcomes learned from",
        "reqps",
        "What clients said and showed of answers, by where it came from.",
        (rate("lanewise_learning_outcomes_total", "source"), "{{source}}"),
    ),
    panel(
        "What outcomes moved",
        "short",
        "Tenants whose outcomes count, and the largest root mean square they moved the gain by.",
        ("max(lanewise_learning_tenants)", "tenants"),
        ("max(lanewise_learning_distance)", "distance"),
    ),
    panel(
        "Drift",
        "short",
        "Tenants whose traffic has moved, and the largest population stability index by signal.",
        ("max by (sign) (lanewise_drift_alarms)", "{{sign}}"),
        ("max by (signal) (lanewise_drift_psi)", "PSI of {{signal}}"),
    ),
)
POOLS = (
    panel(
        "Admissions",
        "reqps",
        "Admitted and refused; a refusal names the pool that was empty. Degraded: without Redis.",
        (
            rate("lanewise_ratelimit_decisions_total", "route", "tier", "result", "limit", "mode"),
            "{{route}} {{tier}} {{result}} {{limit}} {{mode}}",
        ),
    ),
    panel(
        "Calls to the pools",
        "s",
        "95th percentile.",
        (
            quantile(0.95, "lanewise_ratelimit_redis_seconds", "op", "status"),
            "{{op}} {{status}}",
        ),
    ),
    panel(
        "Reserved and settled tokens",
        "short",
        "Reserved now, and charged per second.",
        ("sum by (route) (lanewise_ratelimit_reserved_tokens)", "reserved {{route}}"),
        (rate("lanewise_ratelimit_settled_tokens_total", "route"), "settled/s {{route}}"),
    ),
    panel(
        "Reservations",
        "short",
        "Held now, and taken back from holders that died.",
        ("sum by (route) (lanewise_ratelimit_leases)", "held {{route}}"),
        (rate("lanewise_ratelimit_reaped_total"), "reaped/s"),
    ),
    panel(
        "Pools unreachable",
        "short",
        "Processes that cannot reach Redis, and how many live.",
        ("sum(lanewise_ratelimit_degraded)", "without Redis"),
        ("max(lanewise_gateways)", "alive"),
        kind="stat",
    ),
    panel(
        "After outages",
        "short",
        "Settlements that wait for Redis or were given up, and returns to it.",
        ("sum(lanewise_ratelimit_unsettled)", "waiting"),
        ("sum(lanewise_ratelimit_uncharged_total)", "given up"),
        ("sum(lanewise_ratelimit_recoveries_total)", "returns"),
    ),
    panel(
        "Waiting for a pool",
        "short",
        "Tasks that wait instead of being refused, by group, over all processes.",
        ("sum by (route) (lanewise_admission_queue_depth)", "{{route}}"),
    ),
    panel(
        "Time waited for a pool",
        "s",
        "95th percentile, by how it ended.",
        (
            never_empty(quantile(0.95, "lanewise_admission_wait_seconds", "route", "outcome")),
            "{{route}} {{outcome}}",
        ),
    ),
    panel(
        "Usage ledger",
        "short",
        "Entries that wait for Redis or for an export, and those lost.",
        ("sum(lanewise_ledger_waiting)", "wait for Redis"),
        ("max(lanewise_ledger_entries)", "wait for an export"),
        (rate("lanewise_ledger_appended_total"), "appended/s"),
        (rate("lanewise_ledger_lost_total", "reason"), "lost/s {{reason}}"),
    ),
    panel(
        "Capacity that follows demand",
        "short",
        "Tasks at once per group that adapts: the limit, and how many there are.",
        ("sum by (route) (lanewise_capacity_limit)", "limit {{route}}"),
        ("sum by (route) (lanewise_capacity_inflight)", "running {{route}}"),
    ),
    panel(
        "Capacity moves",
        "short",
        "Steps of the limit, and tasks refused for want of capacity, per second.",
        (rate("lanewise_capacity_steps_total", "route", "direction"), "{{route}} {{direction}}"),
        (rate("lanewise_capacity_shed_total", "route", "reason"), "shed {{route}} {{reason}}"),
    ),
    panel(
        "Tokens by tenant",
        "short",
        "Per second, input and output.",
        (rate("lanewise_tenant_tokens_total", "tenant", "route"), "{{tenant}} {{route}}"),
    ),
    panel(
        "Refusals by tenant",
        "reqps",
        "For its own limits.",
        (
            never_empty(rate("lanewise_tenant_rejected_total", "tenant", "route")),
            "{{tenant}} {{route}}",
        ),
    ),
)
STRATEGIES = (
    panel(
        "Strategies",
        "reqps",
        "Tasks on both engines, by how they ended; degraded is an answer though a part failed.",
        (rate("lanewise_strategy_tasks_total", "strategy", "outcome"), "{{strategy}} {{outcome}}"),
    ),
    panel(
        "Races and hedges won",
        "reqps",
        "By the engine that gave the answer.",
        (rate("lanewise_strategy_wins_total", "strategy", "route"), "{{strategy}} {{route}}"),
    ),
    panel(
        "Tokens of losers",
        "short",
        "Per second, used by generations that gave way to others.",
        (
            rate("lanewise_strategy_wasted_tokens_total", "strategy", "route"),
            "{{strategy}} {{route}}",
        ),
    ),
)
SOCKETS = (
    panel(
        "Connections",
        "short",
        "Open now.",
        ("sum(lanewise_ws_connections)", "open"),
    ),
    panel(
        "Opened and closed",
        "reqps",
        "By close code; 1006 is a client that vanished.",
        (rate("lanewise_ws_opened_total"), "opened"),
        (never_empty(rate("lanewise_ws_closed_total", "code")), "closed {{code}}"),
    ),
    quantiles(
        "Message size",
        "By direction.",
        "lanewise_ws_message_bytes",
        "direction",
        unit="bytes",
    ),
    panel(
        "Slow readers",
        "reqps",
        "Connections cut because they did not read.",
        (rate("lanewise_ws_send_stalls_total"), "cut"),
    ),
)
BACKENDS = (
    panel(
        "Sequences",
        "short",
        "Generating, waiting, and how many fit at once.",
        ("sum by (backend) (lanewise_backend_inflight)", "running {{backend}}"),
        ("sum by (backend) (lanewise_backend_waiting)", "waiting {{backend}}"),
        ("sum by (backend) (lanewise_backend_max_seqs)", "fit {{backend}}"),
    ),
    panel(
        "KV cache",
        "percentunit",
        "Share held by live sequences.",
        ("max by (backend) (lanewise_backend_kv_usage_ratio)", "{{backend}}"),
    ),
    panel(
        "Up",
        "short",
        "1 while healthy, in the worst process.",
        ("min by (backend) (lanewise_backend_up)", "{{backend}}"),
        kind="stat",
    ),
    panel(
        "Ejected",
        "short",
        "1 while left alone for failures in a row, in any process.",
        ("max by (backend) (lanewise_backend_ejected)", "{{backend}}"),
        kind="stat",
    ),
    panel(
        "Failed generations",
        "reqps",
        "By backend and reason.",
        (
            never_empty(rate("lanewise_backend_errors_total", "backend", "reason")),
            "{{backend}} {{reason}}",
        ),
    ),
    panel(
        "Failovers",
        "reqps",
        "Generations begun again on another backend of the group, before their first token.",
        (
            never_empty(rate("lanewise_failovers_total", "from", "to", "reason")),
            "{{from}} to {{to}}: {{reason}}",
        ),
    ),
    panel(
        "Prefix cache",
        "percentunit",
        "Share of prompt tokens that were found in the KV cache.",
        (
            f"{rate('vllm:prefix_cache_hits_total', 'model_name')} / "
            f"{rate('vllm:prefix_cache_queries_total', 'model_name')}",
            "{{model_name}}",
        ),
    ),
    panel(
        "Continued upstream",
        "reqps",
        "Requests that brought an upstream new items alone, and those that it had forgotten.",
        (rate("lanewise_upstream_continued_total", "backend"), "{{backend}}"),
        (rate("lanewise_upstream_chains_lost_total", "backend"), "{{backend}}: forgotten"),
    ),
    panel(
        "Warm-ups",
        "short",
        "Under way, and per second: how they ended, and the prompt tokens computed for them.",
        ("sum by (backend) (lanewise_backend_warming)", "{{backend}} under way"),
        (
            never_empty(rate("lanewise_warm_ups_total", "backend", "state")),
            "{{backend}}: {{state}}",
        ),
        (
            never_empty(rate("lanewise_warm_up_tokens_total", "backend")),
            "{{backend}} tokens",
        ),
    ),
)
COMPACTIONS = (
    panel(
        "Compactions",
        "reqps",
        "Contexts that were to be made shorter, by who asked and what came of it.",
        (rate("lanewise_compactions_total", "kind", "outcome"), "{{kind}} {{outcome}}"),
    ),
    panel(
        "Context before and after",
        "short",
        "Prompt tokens of compactions that came off: median and the largest tenth.",
        *(
            (
                never_empty(quantile(q, "lanewise_compaction_tokens", "moment")),
                f"p{q * 100:.0f} {{{{moment}}}}",
            )
            for q in (0.5, 0.9)
        ),
    ),
)
PROCESS = (
    panel(
        "CPU",
        "percentunit",
        "Cores in use, per process.",
        ("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}"),
    ),
    panel("Memory", "bytes", "Resident.", ("process_resident_memory_bytes", "{{instance}}")),
    panel(
        "File descriptors",
        "percentunit",
        "Of what is allowed.",
        ("process_open_fds / process_max_fds", "{{instance}}"),
    ),
    panel(
        "Workers",
        "short",
        "With --workers: those that serve, and those that should. 0 without.",
        (never_empty("sum(lanewise_workers)"), "serve"),
        (never_empty("sum(lanewise_workers_wanted)"), "should serve"),
    ),
    panel(
        "Worker crashes",
        "short",
        "In ten minutes: workers that ended by themselves and were started again.",
        (never_empty("sum(increase(lanewise_worker_restarts_total[10m]))"), "crashes"),
    ),
)
ROWS: dict[str, tuple[Panel, ...]] = {
    "Tasks": TASKS,
    "Speed": SPEED,
    "Decisions": DECISIONS,
    "Both engines": STRATEGIES,
    "Pools": POOLS,
    "Sockets": SOCKETS,
    "Backends": BACKENDS,
    "Compaction": COMPACTIONS,
    "Process": PROCESS,
}


def layout(rows: dict[str, tuple[Panel, ...]]) -> list[Panel]:
    """Three panels side by side under each row's title, numbered and placed."""
    placed: list[Panel] = []
    y = 0
    for title, panels in rows.items():
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        placed.append({"type": "row", "title": title, "collapsed": False, "gridPos": place})
        y += 1
        for number, entry in enumerate(panels):
            column = number % 3
            place = {"h": HEIGHT, "w": WIDTH // 3, "x": column * WIDTH // 3, "y": y}
            placed.append({**entry, "gridPos": place})
            y += HEIGHT if column == 2 or number == len(panels) - 1 else 0
    return [{"id": number, **entry} for number, entry in enumerate(placed, start=1)]


def dashboard() -> dict[str, Any]:
    """The whole document, as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    return {
        "uid": "lanewise-overview",
        "title": "Lanewise",
        "tags": ["lanewise"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source]},
        "panels": layout(ROWS),
    }


def render() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "overview.json").write_text(render())
