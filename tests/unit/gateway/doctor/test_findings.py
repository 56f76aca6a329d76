"""Tests what the doctor makes of what it read: ok, warn or fail, and what to do."""

from typing import Any

import pytest

from gateway.config.sections import RedisConfig
from gateway.doctor.findings import (
    EngineAnswer,
    Finding,
    RedisFacts,
    StreamFacts,
    certificate_finding,
    clock_finding,
    descriptors_finding,
    engine_finding,
    least_offset_s,
    proxy_findings,
    redis_findings,
    stream_finding,
)

GOOD = {
    "redis_version": "7.4.1",
    "maxmemory": 512 << 20,
    "maxmemory_policy": "volatile-lru",
}


def of_redis(round_trip_ms: float = 0.5, offset_s: float = 0.0, **info: Any) -> dict[str, Finding]:
    facts = RedisFacts(info=GOOD | info, round_trip_ms=round_trip_ms, clock_offset_s=offset_s)
    return {one.check: one for one in redis_findings(facts, RedisConfig(budget_ms=50))}


def test_a_redis_that_is_as_it_should_be() -> None:
    assert {one.level for one in of_redis().values()} == {"ok"}


@pytest.mark.parametrize(
    ("info", "level", "text"),
    [
        ({"redis_version": "6.0.20"}, "fail", "Redis 6.0.20"),
        ({"redis_version": "6.2.14"}, "ok", "Redis 6.2.14"),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.1"}, "ok", "Valkey 9.0.1"),
        ({"redis_version": "10.0.0"}, "ok", "Redis 10.0.0"),
    ],
)
def test_its_version(info: dict[str, str], level: str, text: str) -> None:
    found = of_redis(**info)["redis version"]
    assert (found.level, found.text) == (level, text)


@pytest.mark.parametrize(
    ("max_memory_bytes", "policy", "level"),
    [
        (1 << 30, "volatile-lru", "ok"),
        (1 << 30, "volatile-ttl", "ok"),
        (1 << 30, "noeviction", "warn"),
        (0, "noeviction", "warn"),
        (0, "volatile-lru", "warn"),
        (1 << 30, "allkeys-lru", "fail"),
        (0, "allkeys-lfu", "fail"),
    ],
)
def test_what_it_evicts(max_memory_bytes: int, policy: str, level: str) -> None:
    found = of_redis(maxmemory=max_memory_bytes, maxmemory_policy=policy)["redis eviction"]
    assert found.level == level
    assert (found.level == "ok") == (not found.advice)


def test_what_it_has_evicted() -> None:
    assert of_redis(evicted_keys=0)["redis eviction"].level == "ok"
    found = of_redis(evicted_keys=12)["redis eviction"]
    assert (found.level, "started: 12" in found.text) == ("warn", True)
    assert "maxmemory" in found.advice


@pytest.mark.parametrize(("round_trip_ms", "level"), [(0.3, "ok"), (24.0, "ok"), (26.0, "warn")])
def test_how_far_it_is(round_trip_ms: float, level: str) -> None:
    assert of_redis(round_trip_ms)["redis distance"].level == level


@pytest.mark.parametrize(
    ("offset_s", "level", "text"),
    [
        (0.0, "ok", "as ours"),
        (-0.9, "ok", "as ours"),
        (7.0, "fail", "7.0 s ahead of ours"),
        (-7.0, "fail", "7.0 s behind ours"),
    ],
)
def test_clocks(offset_s: float, level: str, text: str) -> None:
    assert of_redis(offset_s=offset_s)["clock of Redis"].level == level
    assert clock_finding("it", offset_s).text == text


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("key_env: the environment variable X is not set", "export it"),
        ("the upstream refuses this gateway (401)", "is the key in key_env valid"),
        ("the upstream answered 302, a redirect, and none is followed", "write the address"),
        (
            "no connection: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate",
            "is its certificate for the name",
        ),
        ("the upstream answered 404: no such model", "is upstream_model what"),
        ("the upstream answered 429", "the account is at its limit"),
        ("the upstream refuses this gateway (402)", "is the account paid"),
        ("the upstream answered 422: extra_forbidden: seed", "does it take every field"),
        ("the upstream answered 200 without any event: is its", "is base_url its API"),
        ("the upstream answered 503: Loading model", "it runs, but does not serve"),
        ("no answer within 60 s", "is it loading"),
        ("[Errno 111] Connection refused", "does the server run"),
    ],
)
def test_engines_that_fail(error: str, advice: str) -> None:
    found = engine_finding(EngineAnswer(name="one", model="m", error=error))
    assert found.level == "fail"
    assert found.advice.startswith(advice)
    assert found.line.startswith(f"fail  engine one: m: {error} -> {advice}")


def test_a_servers_words_stay_on_one_line() -> None:
    error = "the upstream answered 200: data: {}\n\ndata: \x1b[2J{}"
    found = engine_finding(EngineAnswer(name="one", model="m", error=error))
    assert found.line.startswith("fail  engine one: m: the upstream answered 200: data: {} data: ")
    assert found.line.isprintable()


def test_engines_that_answer() -> None:
    def level(**fields: Any) -> str:
        return engine_finding(EngineAnswer(name="one", model="m", **fields)).level

    assert level(first_ms=12.0, num_tokens=3) == "ok"
    assert level(simulated=True, first_ms=1.0) == "ok"
    assert level(num_tokens=0) == "warn", "it says nothing"


@pytest.mark.parametrize(
    ("num_open", "limit", "level"),
    [(20, 20_000, "ok"), (0, 1_024, "ok"), (10, 1_024, "warn"), (19_900, 20_000, "warn")],
)
def test_descriptors(num_open: int, limit: int, level: str) -> None:
    assert descriptors_finding(num_open, limit).level == level


@pytest.mark.parametrize(("days", "level"), [(90, "ok"), (21, "ok"), (20.9, "warn"), (-2, "fail")])
def test_certificates(days: float, level: str) -> None:
    assert certificate_finding("it", days).level == level


@pytest.mark.parametrize(
    ("first_s", "last_s", "level"),
    [
        (0.1, 5.0, "ok"),
        (4.0, 5.0, "ok"),
        (4.9, 5.0, "fail"),
        (0.2, 0.2, "ok"),  # too short to say
    ],
)
def test_streams_that_something_holds_back(first_s: float, last_s: float, level: str) -> None:
    assert stream_finding(StreamFacts(first_s=first_s, last_s=last_s)).level == level


def test_proxies_that_the_gateway_does_not_use() -> None:
    given = {"https_proxy": "http://proxy:3128"}
    (found,) = proxy_findings(given, ["api.openai.com"])
    assert found.level == "warn"
    assert "https_proxy" in found.text
    assert proxy_findings(given, []) == proxy_findings({}, ["api.openai.com"]) == []


@pytest.mark.parametrize(
    ("low_s", "high_s", "least_s"),
    [
        (-0.2, 0.3, 0.0),  # a right clock, on a machine that took half a second
        (-40.0, 2.0, 0.0),  # on one that took forty
        (1.5, 2.0, 1.5),
        (-9.0, -3.0, -3.0),
    ],
)
def test_a_clock_is_not_blamed_for_a_slow_answer(
    low_s: float, high_s: float, least_s: float
) -> None:
    assert least_offset_s(low_s, high_s) == least_s
