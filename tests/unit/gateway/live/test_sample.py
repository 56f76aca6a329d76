"""Tests samples of several workers together, and rates between two of them."""

from gateway.live.sample import (
    BackendSample,
    GatewaySample,
    WorkerSample,
    point_between,
    together,
)

ENGINE = BackendSample(
    name="wafer",
    group="fast",
    model="lanewise-fast",
    simulated=True,
    healthy=True,
    running=2,
    waiting=0,
    max_num_seqs=18,
    kv_used_tokens=10,
    kv_capacity_tokens=100,
    generated_tokens=1_000,
    prompt_tokens=500,
)


def worker(at: float, **changes: object) -> WorkerSample:
    fields: dict[str, object] = {
        "at": at,
        "draining": False,
        "pools": "redis",
        "num_gateways": 1,
        "keys_current": True,
        "policy": "default",
        "policy_source": "configured",
        "shadow": 0,
        "running": 1,
        "connections": 3,
        "ended": {"fast ok": 4},
        "backends": [ENGINE],
        "decisions": [],
    }
    return WorkerSample(**{**fields, **changes})  # type: ignore[arg-type]


def gateway(at: float, **changes: object) -> GatewaySample:
    return together([worker(at, **changes)])


def test_workers_add_up_and_shared_engines_do_not() -> None:
    seen = [worker(1.0), worker(2.0, pools="degraded", ended={"fast ok": 1, "deep error": 2})]
    both = together(seen)
    assert (both.workers, both.running, both.connections) == (2, 2, 6)
    assert both.ended == {"fast ok": 5, "deep error": 2}
    assert both.pools == "degraded"  # one that is cut off is worth knowing of
    assert [each.generated_tokens for each in both.backends] == [1_000]
    assert both.at == 2.0


def test_rates_between_two_samples() -> None:
    later = ENGINE.__class__(**{**_fields(ENGINE), "generated_tokens": 3_000})
    before = gateway(10.0)
    now = gateway(12.0, backends=[later], ended={"fast ok": 8, "none rate_limited": 1})
    point = point_between(before, now)
    assert point.tokens_per_s == {"wafer": 1_000}
    assert point.tasks_per_s == {"fast": 2.0, "none": 0.5}


def test_an_engine_that_began_anew_counts_from_nothing() -> None:
    anew = ENGINE.__class__(**{**_fields(ENGINE), "generated_tokens": 5})
    assert point_between(gateway(1.0), gateway(2.0, backends=[anew])).tokens_per_s == {"wafer": 0}


def _fields(sample: BackendSample) -> dict[str, object]:
    return {name: getattr(sample, name) for name in sample.__struct_fields__}
