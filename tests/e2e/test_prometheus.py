"""A real Prometheus scrapes a gateway under load: every query of every dashboard has data."""

import asyncio
import contextlib
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from dashboards.alerts.table import ALERTS, LONG_RECORDINGS, RECORDINGS
from dashboards.grafana import VALUES
from tests.e2e.admin_api import ask as ask_admin
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    NARROW_KEY,
    ROOT,
    SMALL_KEY,
    GatewayProcess,
    redis_server,
)
from tests.e2e.monitoring import (
    RULES,
    TIMEOUT_S,
    ask,
    needs_alertmanager,
    needs_prometheus,
    prometheus,
    tool,
)
from tests.e2e.socket_client import SocketClient


def told_by(
    name: str, *arguments: str, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tool(name)), *arguments],
        cwd=ROOT / "dashboards",
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_prometheus
@pytest.mark.parametrize("name", ["lanewise.test.yml", "lanewise.days.test.yml"])
def test_alerts_are_raised_for_what_they_should_and_for_nothing_else(name: str) -> None:
    for command in (["check", "rules", "lanewise.rules.yml"], ["test", "rules", name]):
        told = told_by("promtool", *command)
        assert told.returncode == 0, told.stdout + told.stderr


def expect(
    tmp_path: Path, series: dict[str, str], after_30_min: dict[str, dict[str, float]]
) -> None:
    """Has promtool ask each query of series with a value each 30 s: labels -> value."""
    document = {
        "rule_files": [str(RULES)],
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": each} for name, each in series.items()],
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": "30m",
                        "exp_samples": [{"labels": name, "value": v} for name, v in each.items()],
                    }
                    for expr, each in after_30_min.items()
                ],
            }
        ],
    }
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps(document))
    told = told_by("promtool", "test", "rules", str(path))
    assert told.returncode == 0, told.stdout + told.stderr


@needs_prometheus
def test_a_quiet_night_draws_zeros_and_not_a_gap(tmp_path: Path) -> None:
    """Shares of no tasks are 0, over short windows and long ones."""
    counters = (
        'lanewise_requests_total{route="fast",outcome="ok"}',
        'lanewise_requests_total{route="fast",outcome="error"}',
        'lanewise_ttft_seconds_bucket{route="fast",le="0.25"}',
        'lanewise_ttft_seconds_count{route="fast"}',
    )
    shares = [
        each.name
        for each in (*RECORDINGS, *LONG_RECORDINGS)
        if re.match("lanewise:(error|fast_ttft_miss)_ratio:", each.name)
    ]
    assert len(shares) == 12
    expect(tmp_path, dict.fromkeys(counters, "7x60"), {each: {each: 0.0} for each in shares})


@needs_prometheus
def test_an_engine_that_gateways_share_is_drawn_once(tmp_path: Path) -> None:
    series = {}
    for gateway in ("a", "b"):
        where = f'job="lanewise",instance="{gateway}"'
        series[f'lanewise_backend_linked{{{where},backend="far"}}'] = "1x60"
        for name, places in (("far", 256), ("own", 18)):
            series[f'lanewise_backend_max_seqs{{{where},backend="{name}"}}'] = f"{places}x60"
            tokens = f'vllm:generation_tokens_total{{{where},model_name="m",engine="{name}"}}'
            series[tokens] = "0+30x60"  # one a second
    queries = {
        name: re.sub(r"\$(instance|model)", ".*", expr).replace("$__rate_interval", "5m")
        for name, expr in dashboards()
    }
    wanted = {
        queries["engines: Sequences C"]: {'{backend="far"}': 256.0, '{backend="own"}': 36.0},
        queries["engines: Tokens generated A"]: {'{engine="far"}': 1.0, '{engine="own"}': 2.0},
    }
    expect(tmp_path, series, wanted)


@needs_prometheus
@needs_alertmanager
def test_the_deployed_files_are_valid() -> None:
    told = told_by("amtool", "check-config", str(ROOT / "deploy" / "alertmanager.yml"))
    assert told.returncode == 0, told.stdout + told.stderr
    told = told_by(
        "promtool", "check", "config", "--syntax-only", str(ROOT / "deploy" / "prometheus.yml")
    )
    assert told.returncode == 0, told.stdout + told.stderr


@needs_prometheus
def test_metric_names_follow_the_conventions(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"{gateway.url}/metrics") as answer:
        text = answer.read().decode()
    # vLLM's names are its own affair.
    ours = "".join(f"{line}\n" for line in text.splitlines() if "vllm:" not in line)
    told = told_by("promtool", "check", "metrics", text=ours)
    assert told.returncode == 0, told.stdout + told.stderr


# What vLLM's published dashboard asks: examples/observability/prometheus_grafana/grafana.json of
# vllm-project/vllm, commit 4b5c627c, read 2026-11.
_HISTOGRAMS = ("e2e_request_latency", "inter_token_latency", "time_to_first_token")
VLLM_QUERIES = (
    *(
        f"histogram_quantile({q}, sum by(le) (rate(vllm:{name}_seconds_bucket"
        '{model_name="$model_name"}[$__rate_interval])))'
        for name in _HISTOGRAMS
        for q in (0.99, 0.95, 0.9, 0.5)
    ),
    *(
        f'rate(vllm:{name}_seconds_sum{{model_name="$model_name"}}[$__rate_interval])'
        f' / rate(vllm:{name}_seconds_count{{model_name="$model_name"}}[$__rate_interval])'
        for name in _HISTOGRAMS
    ),
    *(
        f'rate(vllm:{name}{{model_name="$model_name"}}[$__rate_interval])'
        for name in (
            *("prompt_tokens_total", "generation_tokens_total"),
            *("request_queue_time_seconds_sum", "request_prefill_time_seconds_sum"),
            *("request_decode_time_seconds_sum", "request_max_num_generation_tokens_sum"),
        )
    ),
    *(
        f'vllm:{name}{{model_name="$model_name"}}'
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    ),
    *(
        f"sum by(le) (increase(vllm:request_{kind}_tokens_bucket"
        '{model_name="$model_name"}[$__rate_interval]))'
        for kind in ("prompt", "generation")
    ),
    'sum by(finished_reason) (increase(vllm:request_success_total{model_name="$model_name"}'
    "[$__rate_interval]))",
)

POLICY = """
version = "with-a-canary"
wait_ms = { fast = 300, deep = 300 }

[[rules]]
name = "half-go-deep"
when = { labels = ["interactive", "uncertain", "deep"] }
percent = 50
route = "fast"
"""


def dashboards() -> Iterator[tuple[str, str]]:
    """Yields every query of every dashboard, with what it is for."""
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        document = json.loads(path.read_text())
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']} {target['refId']}", target["expr"]
        for annotation in document["annotations"]["list"]:
            yield f"{path.stem}: {annotation['name']}", annotation["expr"]


def narrowed(values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the queries with all variables at "All", and with each of them set to a value."""
    for name, expr in dashboards():
        asked = set(re.findall(r"\$(\w+)", expr)) & set(values)
        for variable in ("", *asked):
            query = expr.replace("$__rate_interval", "30s")
            for each in asked:
                query = query.replace(f"${each}", values[each] if each == variable else ".*")
            yield f"{name} {variable and f'of {variable} {values[variable]}'}", query


def rules() -> Iterator[tuple[str, str]]:
    """Yields what every rule records, and every series that an alert looks at."""
    for recording in (*RECORDINGS, *LONG_RECORDINGS):
        yield recording.name, recording.name
    for alert in ALERTS:
        for series in re.findall(r"\b(?:lanewise[_:]|process_)[\w:]+(?:\{[^}]*\})?", alert.expr):
            yield alert.name, series


def load(gateway: GatewayProcess, number: int) -> None:
    """Asks a bit of everything: engines, transports, strategies, compaction, refusals, bad keys."""
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        for model in ("auto", "lanewise-fast", "lanewise-deep"):
            client.responses.create(model=model, input="Say hello.", max_output_tokens=40)
        for text in ("Prove that there are infinitely many primes.", "Hi.", "What is a monad?"):
            conversation = {"conversation_id": f"{number}-{text[:3]}"}
            client.responses.create(
                model="auto", input=text, metadata=conversation, max_output_tokens=40
            )
        for strategy in ("hedge", "draft"):
            client.responses.create(
                model="auto",
                input="Hi.",
                metadata={"route": "parallel", "strategy": strategy},
                max_output_tokens=40,
            )
        client.responses.compact(
            model="auto",
            input=[{"role": "user", "content": "Remember the number 7. " * 200}],
        )
    with (
        OpenAI(base_url=gateway.base_url, api_key=SMALL_KEY, max_retries=0) as small,
        contextlib.suppress(openai.RateLimitError),
    ):
        for _ in range(8):
            small.responses.create(model="auto", input="Hi.", max_output_tokens=16)
    with (
        OpenAI(base_url=gateway.base_url, api_key="sk-nobody", max_retries=0) as nobody,
        contextlib.suppress(openai.AuthenticationError),
    ):
        nobody.models.list()
    asyncio.run(_sockets(gateway))


async def _sockets(gateway: GatewayProcess) -> None:
    """Runs more tasks at once than their tenant may have: some wait for a place."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(SocketClient.open(gateway, key=NARROW_KEY))
            for _ in range(5)
        ]
        for client in clients:
            await client.create("Count to a hundred.", model="lanewise-fast", max_output_tokens=200)
        ended = (client.terminal() for client in clients)
        await asyncio.gather(*ended, return_exceptions=True)  # some are refused


def put_policies_in_force(gateway: GatewayProcess) -> None:
    """Puts a canary in force, and a shadow beside it."""
    body = {"document": POLICY, "comment": "a canary"}
    status, answer = ask_admin(gateway, "POST", "/admin/policies", body)
    assert status in (200, 201), answer
    version = answer["version"]
    for path, body in (
        (f"{version}/activate", {"expected": None}),
        ("shadow", {"version": version}),
    ):
        status, answer = ask_admin(gateway, "POST", f"/admin/policies/{path}", body)
        assert status in (200, 201), answer


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[GatewayProcess, str]]:
    """Gives two workers that were restarted and got a policy, under Prometheus's eyes; and it."""
    config = tmp_path / "lanewise.toml"
    config.write_text(f'{CONFIG}[[prices]]\nmodel = "lanewise-fast"\ninput = 1.5\noutput = 6.0\n')
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(redis_server(tmp_path))
        arguments = ("--config", str(config), "--redis", url, "--workers", "2")
        gateway = GatewayProcess(tmp_path, *arguments)
        stack.callback(gateway.stop)
        gateway.wait_until_ready()
        asked = stack.enter_context(prometheus(tmp_path, [f"127.0.0.1:{gateway.port}"]))
        wait(lambda: ask(asked, 'lanewise_policy_version{mode="live"}'))
        gateway.stop()
        gateway = GatewayProcess(tmp_path, *arguments, port=gateway.port)
        stack.callback(gateway.stop)
        gateway.wait_until_ready()
        wait(lambda: gateway.metrics().total("lanewise_workers") == 2)
        put_policies_in_force(gateway)
        yield gateway, asked


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.1)


@needs_prometheus
def test_every_query_has_data(watched: tuple[GatewayProcess, str]) -> None:
    """Dashboards, rules and vLLM's own dashboard are asked, with each variable set."""
    gateway, asked = watched
    values = {
        "instance": f"127.0.0.1:{gateway.port}",
        "route": "fast",
        "model": "lanewise-fast",
        "tenant": "dev",
    }
    assert set(VALUES) == set(values)
    wanted = dict((*narrowed(values), *rules()))
    for query in VLLM_QUERIES:
        query = query.replace("$__rate_interval", "30s")
        for model in ("lanewise-fast", "lanewise-deep"):
            wanted[f"vLLM's {query}"] = query.replace("$model_name", model)
    deadline, number = time.monotonic() + TIMEOUT_S, 0
    while wanted:
        load(gateway, number := number + 1)
        time.sleep(1.0)  # a scrape
        wanted = {name: expr for name, expr in wanted.items() if not ask(asked, expr)}
        assert time.monotonic() < deadline, f"no data: {json.dumps(wanted, indent=1)}"
