"""Tests the metrics: reports can be read back, gauges return to zero, labels stay bounded."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.contract import BackendInfo, BackendStats, EngineTimes, FinishReason, Usage
from gateway.metrics.engine_requests import EngineRequest
from gateway.metrics.finished_tasks import MAX_WAITING, FinishedTask
from gateway.metrics.labels import ROUTE
from gateway.metrics.metrics import MAX_TENANT_SERIES, Metrics
from gateway.metrics.table import METRICS
from gateway.store.ledger_entry import LedgerEntry, line_of
from router.classify.task import Route
from router.pools.pools import Demand
from router.record.recording import TaskOutcome
from tests.unit.gateway.metric_names import sample_names

ROOT = Path(__file__).resolve().parents[4]

INFO = BackendInfo(
    name="wafer", model="fast-model", group="fast", window_tokens=1000, max_output_tokens=100
)


def snapshot(*, num_running: int = 0) -> tuple[BackendStats, ...]:
    return (
        BackendStats(
            info=INFO,
            healthy=True,
            num_running=num_running,
            num_waiting=2,
            max_num_seqs=8,
            kv_used_tokens=250,
            kv_capacity_tokens=1000,
            num_generated_tokens=70,
            num_prompt_tokens=30,
            num_cached_tokens=10,
        ),
    )


async def scrape(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Returns every sample by name and label values, in alphabetical order of the labels."""
    text = (await metrics.render()).decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_task_is_counted_once_everywhere() -> None:
    metrics = Metrics(version="1.2.3", backends=snapshot)
    metrics.task_started()
    assert (await scrape(metrics))["lanewise_tasks_running", ()] == 1
    metrics.task_finished(
        FinishedTask(
            tenant_id="acme",
            route=Route.FAST,
            usage_by_model={"fast-model": Usage(100, 40, 20, 5)},
            first_model="fast-model",
            ended=TaskOutcome(outcome="ok", duration_us=300_000, ttft_us=50_000, tpot_us=700.0),
        )
    )
    seen = await scrape(metrics)
    assert seen["lanewise_tasks_running", ()] == 0
    assert seen["lanewise_requests_total", ("ok", "fast")] == 1
    assert seen["lanewise_request_duration_seconds_sum", ("ok", "fast")] == pytest.approx(0.3)
    assert seen["lanewise_ttft_seconds_sum", ("fast-model", "fast")] == pytest.approx(0.05)
    assert seen["lanewise_time_per_output_token_seconds_bucket", ("0.001", "fast-model", "fast")]
    assert not seen[
        "lanewise_time_per_output_token_seconds_bucket", ("0.0005", "fast-model", "fast")
    ]
    kinds = {"input": 100, "cached_input": 40, "output": 20, "reasoning": 5}
    for kind, count in kinds.items():
        assert seen["lanewise_tokens_total", ("fast-model", "fast", kind)] == count
    assert seen["lanewise_tenant_tokens_total", ("fast", "acme")] == 120
    assert seen["lanewise_build_info", ("1.2.3",)] == 1


def test_tasks_that_nobody_asks_for_are_counted_when_they_are_many() -> None:
    metrics = Metrics(version="", backends=tuple)
    running = metrics.counts["lanewise_tasks_running"][()]
    for _ in range(MAX_WAITING):
        assert running.value >= 0
        metrics.task_started()
        task = FinishedTask(
            tenant_id="acme",
            route=None,
            usage_by_model={},
            ended=TaskOutcome(outcome="ok", duration_us=1),
        )
        metrics.task_finished(task)
    assert running.value == 0
    assert metrics.counts["lanewise_requests_total"]["none", "ok"].value == MAX_WAITING


async def test_a_task_that_cannot_be_counted_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics(version="", backends=tuple)
    for usage in (Usage(), None, Usage()):
        usages: Any = {"model": usage}
        ended = TaskOutcome(outcome="ok", duration_us=1)
        metrics.task_finished(
            FinishedTask(tenant_id="acme", route=None, usage_by_model=usages, ended=ended)
        )
    seen = await scrape(metrics)
    assert seen["lanewise_requests_total", ("ok", "none")] == 3
    assert "a task that has ended is not counted" in caplog.text


async def test_a_refused_task_has_no_route_and_no_tokens() -> None:
    metrics = Metrics(version="", backends=tuple)
    metrics.task_started()
    metrics.task_finished(
        FinishedTask(
            tenant_id="acme",
            route=None,
            usage_by_model={},
            ended=TaskOutcome(outcome="rate_limited", duration_us=900),
        )
    )
    seen = await scrape(metrics)
    assert seen["lanewise_requests_total", ("rate_limited", "none")] == 1
    assert seen["lanewise_tenant_rejected_total", ("none", "acme")] == 1
    assert not [name for name, _ in seen if name.startswith("lanewise_ttft_seconds_")]


async def test_reservations_return_to_zero() -> None:
    metrics = Metrics(version="", backends=tuple)
    both = (Demand(group="fast", tokens=500), Demand(group="deep", tokens=900))
    metrics.reserved(both)
    metrics.reserved(both[:1])
    seen = await scrape(metrics)
    assert seen["lanewise_ratelimit_leases", ("fast",)] == 2
    assert seen["lanewise_ratelimit_reserved_tokens", ("fast",)] == 1000
    metrics.settled(both, {"fast": 120})
    metrics.settled(both[:1], {})
    seen = await scrape(metrics)
    for group, charged in (("fast", 120), ("deep", 0)):
        assert seen["lanewise_ratelimit_leases", (group,)] == 0
        assert seen["lanewise_ratelimit_reserved_tokens", (group,)] == 0
        assert seen["lanewise_ratelimit_settled_tokens_total", (group,)] == charged


async def test_an_ejected_backend_shows() -> None:
    (healthy,) = snapshot()
    now = [healthy]
    metrics = Metrics(version="", backends=lambda: now)
    for ejected in (True, False):
        now[0] = msgspec.structs.replace(healthy, out_for="failures" if ejected else "")
        seen = await scrape(metrics)
        assert seen["lanewise_backend_ejected", ("wafer",)] == ejected


async def test_backends_are_read_at_each_scrape() -> None:
    running = [3]
    metrics = Metrics(version="", backends=lambda: snapshot(num_running=running[0]))
    seen = await scrape(metrics)
    assert seen["lanewise_backend_inflight", ("wafer",)] == 3
    assert seen["lanewise_backend_kv_usage_ratio", ("wafer",)] == 0.25
    assert seen["vllm:num_requests_waiting", ("wafer", "fast-model")] == 2
    assert seen["vllm:generation_tokens_total", ("wafer", "fast-model")] == 70
    running[0] = 0
    assert (await scrape(metrics))["lanewise_backend_inflight", ("wafer",)] == 0


@pytest.mark.parametrize(("code", "label"), [(1000, "1000"), (1006, "1006"), (4242, "other")])
async def test_close_codes_are_a_closed_set(code: int, label: str) -> None:
    metrics = Metrics(version="", backends=tuple)
    metrics.ws_opened()
    metrics.ws_closed(code)
    seen = await scrape(metrics)
    assert seen["lanewise_ws_closed_total", (label,)] == 1
    assert seen["lanewise_ws_connections", ()] == 0


async def test_tenants_beyond_the_bound_share_a_series() -> None:
    metrics = Metrics(version="", backends=tuple)
    for number in range(MAX_TENANT_SERIES + 7):
        metrics.task_started()
        metrics.task_finished(
            FinishedTask(
                tenant_id=f"tenant-{number}",
                route=None,
                usage_by_model={},
                ended=TaskOutcome(outcome="rate_limited", duration_us=1),
            )
        )
    seen = await scrape(metrics)
    assert seen["lanewise_tenant_rejected_total", ("none", "other")] == 7
    rejected = [key for key in seen if key[0] == "lanewise_tenant_rejected_total"]
    assert len(rejected) == MAX_TENANT_SERIES * len(ROUTE.values) + 1


async def test_the_busiest_tenants_have_the_series_and_all_add_up() -> None:
    metrics = Metrics(version="", backends=tuple)

    def used(tenant_id: str, num_tokens: int) -> None:
        metrics.task_started()
        metrics.task_finished(
            FinishedTask(
                tenant_id=tenant_id,
                route=Route.FAST,
                usage_by_model={"fast-model": Usage(num_tokens, 0, 0, 0)},
                ended=TaskOutcome(outcome="ok", duration_us=1),
            )
        )

    for number in range(MAX_TENANT_SERIES):
        used(f"early-{number}", 10)
    used("late", 1_000)
    name = "lanewise_tenant_tokens_total"
    assert (await scrape(metrics))[name, ("fast", "other")] == 1_000  # it had no series yet
    used("late", 500)
    seen = await scrape(metrics)
    tokens = {key[1][1]: value for key, value in seen.items() if key[0] == name}
    assert tokens["late"] == 500
    assert tokens["other"] == 1_000
    assert len(tokens) == MAX_TENANT_SERIES + 1


async def test_money_is_counted_by_tenant_model_and_route() -> None:
    metrics = Metrics(version="", backends=tuple)
    line = line_of(
        "wafer", "fast", "fast-model", Usage(100, 0, 20, 0), {}, 100 * 1_500 + 20 * 6_000
    )
    free = line_of("gpu", "deep", "deep-model", Usage(100, 0, 20, 0), {}, None)
    for number in range(MAX_TENANT_SERIES + 1):
        metrics.spent(
            LedgerEntry(
                task_id="resp_1",
                tenant_id=f"tenant-{number}",
                key_id="key",
                tier="pro",
                route="parallel",
                outcome="ok",
                ended_s=100,
                duration_ms=1,
                lines=(line, free),
            )
        )
    seen = await scrape(metrics)
    name = "lanewise_spend_usd_total"
    assert seen[name, ("fast-model", "parallel", "tenant-0")] == pytest.approx(0.00027)
    assert seen[name, ("fast-model", "parallel", "other")] == pytest.approx(0.00027)
    assert sum(key[0] == name and value > 0 for key, value in seen.items()) == MAX_TENANT_SERIES + 1


async def test_outcomes_are_there_before_the_first_of_them() -> None:
    metrics = Metrics(version="", backends=snapshot)
    seen = await scrape(metrics)
    assert seen["lanewise_requests_total", ("error", "deep")] == 0
    assert seen["lanewise_pool_asks_total", ("fast", "conc")] == 0
    assert seen["lanewise_canary_tasks_total", ("canary", "error")] == 0
    assert seen["lanewise_ttft_seconds_count", ("fast-model", "fast")] == 0
    assert seen["lanewise_backend_errors_total", ("wafer", "server_error")] == 0
    assert seen["vllm:request_success_total", ("wafer", "stop", "fast-model")] == 0


async def test_a_canary_is_counted_beside_its_control() -> None:
    metrics = Metrics(version="", backends=tuple)
    for arm, outcome, ttft_us in (("canary", "error", None), ("control", "ok", 40_000)):
        metrics.task_started()
        metrics.task_finished(
            FinishedTask(
                tenant_id="acme",
                route=Route.FAST,
                usage_by_model={"fast-model": Usage(100, 0, 20, 0)},
                arm=arm,  # type: ignore[arg-type]
                ended=TaskOutcome(outcome=outcome, duration_us=1, ttft_us=ttft_us),
            )
        )
    seen = await scrape(metrics)
    assert seen["lanewise_canary_tasks_total", ("canary", "error")] == 1
    assert seen["lanewise_canary_tasks_total", ("control", "ok")] == 1
    assert seen["lanewise_canary_tokens_total", ("control", "output")] == 20
    assert seen["lanewise_canary_ttft_seconds_count", ("control",)] == 1
    assert seen["lanewise_canary_ttft_seconds_count", ("canary",)] == 0


async def test_an_engines_request_fills_vllms_metrics() -> None:
    metrics = Metrics(version="", backends=snapshot)
    times = EngineTimes(queue_us=10_000, prefill_us=40_000, decode_us=190_000)
    metrics.engine_request(EngineRequest("fast-model", "wafer", 300, 20, FinishReason.STOP, times))
    metrics.engine_request(EngineRequest("fast-model", "wafer", 300, 3, None, None))  # cancelled
    seen = await scrape(metrics)
    labels = ("wafer", "fast-model")
    for name, seconds in (
        ("request_queue_time", 0.01),
        ("request_prefill_time", 0.04),
        ("request_decode_time", 0.19),
        ("time_to_first_token", 0.05),
        ("e2e_request_latency", 0.24),
        ("inter_token_latency", 0.19),
    ):
        assert seen[f"vllm:{name}_seconds_sum", labels] == pytest.approx(seconds)
    assert seen["vllm:inter_token_latency_seconds_count", labels] == 19
    assert seen["vllm:request_prompt_tokens_sum", labels] == 300
    assert seen["vllm:request_generation_tokens_sum", labels] == 20
    assert seen["vllm:request_success_total", ("wafer", "stop", "fast-model")] == 1
    assert seen["vllm:request_success_total", ("wafer", "abort", "fast-model")] == 1


async def test_the_loop_is_watched_until_cancelled() -> None:
    metrics = Metrics(version="", backends=tuple)
    watcher = asyncio.create_task(metrics.watch_loop())
    while not (await scrape(metrics))["lanewise_event_loop_lag_seconds_count", ()]:
        pass  # the scrape itself gives way to the watcher
    watcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watcher


async def test_names_of_a_scrape_are_the_published_ones() -> None:
    metrics = Metrics(version="", backends=snapshot)
    names = {name for name, _ in await scrape(metrics) if not name.endswith("_created")}
    assert names <= {name for metric in METRICS for name in sample_names(metric)}


def test_whatever_is_counted_by_its_name_is_in_the_table() -> None:
    counted = re.compile(r"\b(counts|histograms)\[\s*\"([\w:]+)\"")
    found = {
        name
        for path in (ROOT / "gateway").rglob("*.py")
        for name in counted.findall(path.read_text())
    }
    table = {
        ("histograms" if metric.kind == "histogram" else "counts", metric.name)
        for metric in METRICS
        if metric.read is None and metric.owner == "gateway"
    }
    assert found == table
