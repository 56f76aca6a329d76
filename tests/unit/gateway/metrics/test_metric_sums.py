"""Tests several workers' metrics as one gateway's: sums, common values, dead workers' counts."""

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.contract import BackendInfo, BackendStats
from gateway.metrics.finished_tasks import FinishedTask
from gateway.metrics.metric_sums import (
    Snapshot,
    ended,
    lasting,
    merged,
    rendered,
    rule_of,
    snapshot_of,
    still_shown,
    supervised,
)
from gateway.metrics.metrics import Metrics
from gateway.metrics.reports import WorkersReport
from gateway.metrics.table import METRICS
from router.record.recording import TaskOutcome

WORKERS = WorkersReport(num_serving=3, num_wanted=4, num_restarts=5)
LINKED = frozenset({"wafer"})


def stats(name: str, running: int) -> BackendStats:
    info = BackendInfo(name=name, model=name, group="fast", window_tokens=1, max_output_tokens=1)
    return BackendStats(
        info=info,
        healthy=True,
        num_running=running,
        num_waiting=0,
        max_num_seqs=8,
        kv_used_tokens=0,
        kv_capacity_tokens=0,
        num_prompt_tokens=10 * running,
    )


async def worker(tasks: int, running: int) -> Snapshot:
    """Returns a worker that ran so many tasks, and has one socket open."""
    made = Metrics(
        version="1", backends=lambda: [stats("wafer", running), stats("upstream", running)]
    )
    for _ in range(tasks):
        made.task_started()
        made.task_finished(
            FinishedTask(
                tenant_id="acme",
                route=None,
                usage_by_model={},
                ended=TaskOutcome(outcome="ok", duration_us=20_000),
            )
        )
    made.ws_opened()
    return msgspec.msgpack.decode(await made.snapshot(), type=Snapshot)


def value(snapshot: Snapshot, name: str, **labels: str) -> float:
    samples = [
        sample
        for family in text_string_to_metric_families(rendered(snapshot).decode())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert samples, name
    return float(sum(sample.value for sample in samples))


async def test_counts_add_up_and_what_all_see_alike_does_not() -> None:
    both = merged([await worker(2, running=3), await worker(5, running=3)], LINKED)
    assert value(both, "lanewise_requests_total", outcome="ok") == 7
    assert value(both, "lanewise_request_duration_seconds_count") == 7
    assert value(both, "lanewise_request_duration_seconds_bucket", le="+Inf") == 7
    assert value(both, "lanewise_request_duration_seconds_sum") == pytest.approx(0.14)
    assert value(both, "lanewise_ws_connections") == 2
    assert value(both, "lanewise_gateways") == 1
    assert value(both, "lanewise_build_info", version="1") == 1
    # One engine that both are linked to, and an upstream that each uses by itself.
    assert value(both, "lanewise_backend_inflight", backend="wafer") == 3
    assert value(both, "lanewise_backend_inflight", backend="upstream") == 6
    assert value(both, "vllm:prompt_tokens_total", engine="wafer") == 30
    assert value(both, "vllm:prompt_tokens_total", engine="upstream") == 60


async def test_descriptors_are_those_of_the_fullest_worker_and_so_is_their_limit() -> None:
    one = await worker(2, running=3)
    both = merged([one, await worker(5, running=3)], LINKED)
    used = value(both, "process_open_fds") / value(both, "process_max_fds")
    assert used == pytest.approx(value(one, "process_open_fds") / value(one, "process_max_fds"))


async def test_a_worker_that_ended_leaves_its_counts_and_no_gauges() -> None:
    gone, lives = await worker(2, running=3), await worker(5, running=4)
    past = merged([[], lasting(gone, LINKED)], LINKED)
    now = merged([past, lives], LINKED)
    assert value(now, "lanewise_requests_total", outcome="ok") == 7
    assert value(now, "lanewise_ws_opened_total") == 2
    assert value(now, "lanewise_ws_connections") == 1
    assert value(now, "lanewise_backend_inflight", backend="wafer") == 4
    # The engine's own total is not the worker's to leave.
    assert value(now, "vllm:prompt_tokens_total", engine="wafer") == 40
    assert value(now, "vllm:prompt_tokens_total", engine="upstream") == 70
    again = merged([merged([past, lasting(lives, LINKED)], LINKED)], LINKED)
    assert value(again, "lanewise_requests_total", outcome="ok") == 7


async def test_one_worker_s_metrics_come_back_as_they_were() -> None:
    made = Metrics(version="1", backends=lambda: [stats("wafer", 1)])
    made.ws_opened()
    told = msgspec.msgpack.decode(await made.snapshot(), type=Snapshot)

    def samples(text: bytes) -> set[tuple[Any, ...]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if not sample.name.startswith("process_")
        }

    assert samples(rendered(merged([told], LINKED))) == samples(await made.render())


def test_the_table_is_what_gateways_and_their_supervisor_have() -> None:
    own = snapshot_of(Metrics(version="", backends=tuple).registry.collect())
    known = {family.name: (family.kind, family.text) for family in [*own, *supervised(WORKERS)]}
    assert {metric.family: (metric.kind, metric.help) for metric in METRICS} == known
    assert len({metric.family for metric in METRICS}) == len(METRICS)


def test_a_supervisor_adds_how_its_workers_stand() -> None:
    snapshot = supervised(WORKERS, num_redis_restarts=2, links=["far"])
    assert value(snapshot, "lanewise_workers") == 3
    assert value(snapshot, "lanewise_workers_wanted") == 4
    assert value(snapshot, "lanewise_worker_restarts_total") == 5
    assert value(snapshot, "lanewise_embedded_redis_restarts_total") == 2
    assert value(snapshot, "lanewise_backend_linked") == 1


def test_creation_times_and_strangers() -> None:
    assert rule_of("lanewise_something_new", (), LINKED) == "sum"
    assert rule_of("lanewise_backend_inflight", (("backend", "wafer"),), LINKED) == "max"


async def test_a_series_that_one_worker_ended_does_not_make_the_sum_fall() -> None:
    def spent(tenants: dict[str, int]) -> Snapshot:
        made = Metrics(version="1", backends=tuple)
        for tenant, tokens in tenants.items():
            made.counts["lanewise_tenant_tokens_total"][tenant, "fast"].inc(tokens)
        return snapshot_of(made.registry.collect())

    def shown(tenant: str) -> float:
        sums = merged([past, *workers], LINKED)
        return value(sums, "lanewise_tenant_tokens_total", tenant=tenant)

    past: Snapshot = []
    workers = [spent({"acme": 100, "busy": 5}), spent({"acme": 60})]
    # The first worker's busiest tenants are others now, then acme is one of them again.
    for acme, expected in ((None, 160), (7, 167)):
        latest = spent({"busy": 9} if acme is None else {"busy": 9, "acme": acme})
        past = merged([past, ended(workers[0], latest)], LINKED)
        workers[0] = latest
        past = still_shown(past, workers)
        assert (shown("acme"), shown("busy")) == (expected, 9)
    # It began again between two looks, with less than it had.
    latest = spent({"busy": 9, "acme": 3})
    past = merged([past, ended(workers[0], latest)], LINKED)
    workers[0] = latest
    assert shown("acme") == 100 + 7 + 3 + 60
    # Nobody has it any more: it has ended, and what comes of it begins at zero.
    workers = [spent({"busy": 9}), spent({})]
    past = still_shown(past, workers)
    names = {labels for family in past for _, each in family.samples.items() for labels, _ in each}
    assert not any(("tenant", "acme") in labels for labels in names)
