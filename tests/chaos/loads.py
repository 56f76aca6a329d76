"""Plays L1 to L6: what a gateway carries when nothing fails."""

import asyncio
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websockets

from gateway.metrics.buckets import LAG_S, OVERHEAD_S
from tests.accept.connections import rss_bytes
from tests.chaos.fleet import NOISY_KEY, STEADY_KEY, quantile_s, redis_and_fleet, until
from tests.chaos.load import Load, Tally, quantile
from tests.chaos.stage import Checks, Stage
from tests.chaos.watch import watching
from tests.e2e.gateway_process import GatewayProcess
from tests.integration.redis_fleet import Wire

KIB, MB = 1 << 10, 10**6
FILLING_S = 45.0  # at 300 turns/s caches are full: they grow by 3 KiB a turn up to some 12,000
NUM_IDLE, MAX_IDLE_BYTES, MAX_LAG_S = 2_000, 25 * KIB, 0.05
NUM_STEADY, STEADY_PER_S = 200, 100.0
NUM_DROPPED, BACK_S, JITTER_S = 500, 30.0, 10.0
PLACES = 8  # of the tenant that is overloaded
NOISY_PLACES = 2  # so few that ten times as much does not fill the machine
DEEP_TOKENS = 40  # 0.6 s on the deep engine, as it is simulated


async def idle(stage: Stage) -> list[str]:
    """Plays L1: sockets say nothing."""
    checks = Checks()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with redis_and_fleet(stage.folder) as (_, fleet):
        (gateway,) = fleet.gateways
        before, sockets = rss_bytes(gateway), []
        headers = {"authorization": f"Bearer {STEADY_KEY}"}
        for _ in range(0, NUM_IDLE, 50):
            sockets += await asyncio.gather(
                *(
                    websockets.connect(
                        gateway.socket_url,
                        additional_headers=headers,
                        compression=None,
                        ping_interval=None,
                        open_timeout=60,
                    )
                    for _ in range(50)
                )
            )
        await asyncio.sleep(stage.seconds)
        grown = (rss_bytes(gateway) - before) / NUM_IDLE
        dropped = sum(socket.close_code is not None for socket in sockets)
        lag_s = quantile_s(gateway.metrics(), "lanewise_event_loop_lag_seconds", 0.99, LAG_S)
        checks.below(grown / KIB, MAX_IDLE_BYTES / KIB, f"KiB for each of {NUM_IDLE} sockets")
        checks.that(dropped == 0, f"sockets dropped: {dropped}")
        checks.below(lag_s, MAX_LAG_S + 1e-9, "seconds of loop lag at p99 (its bucket)")
        for socket in sockets:
            socket.transport.abort()
    return checks.failures


async def steady(stage: Stage) -> list[str]:
    """Plays L2: turns come at a steady rate."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (server, fleet), watching(server, fleet) as watch:
        load = steady_load(stage, lambda: fleet.urls)
        tally = await load.run(stage.seconds)
        print(f"  {tally}")
        samples = fleet.gateways[0].metrics()
        for share, bound in ((0.5, 0.003), (0.99, 0.015)):
            name = "lanewise_gateway_overhead_seconds"
            figure = quantile_s(samples, name, share, OVERHEAD_S)
            checks.below(figure, bound, f"seconds of overhead at p{share * 100:.0f} (its bucket)")
        checks.that(tally.num_errors + tally.lost == 0, f"errors: {tally.num_errors + tally.lost}")
        await watch.at_the_end([tally])
    checks.no_violation(watch)
    return checks.failures


def steady_load(stage: Stage, urls: Callable[[], list[str]], **options: Any) -> Load:
    """Returns the load of L2, which faults meet too."""
    return Load(
        urls,
        num_sockets=NUM_STEADY,
        turns_per_s=STEADY_PER_S,
        seed=stage.seed,
        **options,
    )


async def soak(stage: Stage) -> list[str]:
    """Plays L3: the load lasts long."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (server, fleet), watching(server, fleet) as watch:
        (gateway,) = fleet.gateways
        filling_s = min(FILLING_S, stage.seconds / 2)
        filling = Load(lambda: fleet.urls, num_sockets=50, turns_per_s=300, seed=stage.seed)
        filled = await filling.run(filling_s)
        load = Load(lambda: fleet.urls, num_sockets=50, turns_per_s=20, seed=stage.seed + 1)
        running = asyncio.create_task(load.run(stage.seconds - filling_s))
        samples: list[tuple[float, float, int]] = []
        began_s = time.monotonic()
        while not running.done():
            await asyncio.sleep(1.0)
            at_s = time.monotonic() - began_s
            if 1 < at_s < stage.seconds - filling_s - 1:  # not while sockets open and close
                samples.append((at_s, rss_bytes(gateway) / MB, num_descriptors(gateway)))
        tally = await running
        print(f"  {filled}\n  {tally}")
        seconds, resident, descriptors = zip(*samples, strict=True)
        slope = statistics.linear_regression(seconds, resident).slope * 600
        checks.below(slope, 1.0, f"MB of RSS in 10 min, by a line through {len(samples)} s")
        grown = max(descriptors) - min(descriptors)
        checks.that(grown <= 4, f"descriptors: {min(descriptors)} to {max(descriptors)}")
        num_errors = sum(each.num_errors + each.lost for each in (filled, tally))
        checks.that(num_errors == 0, f"errors: {num_errors}")
        await watch.at_the_end([filled, tally])
    checks.no_violation(watch)
    return checks.failures


def num_descriptors(gateway: GatewayProcess) -> int:
    """Counts the files and sockets that it holds; proc(5)."""
    return len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))


async def reconnects(stage: Stage) -> list[str]:
    """Plays L4: all sockets are cut at once, and come back."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (server, fleet), watching(server, fleet) as watch:
        async with Wire(fleet.gateways[0]).open() as wire:  # type: ignore[arg-type]
            url = f"ws://127.0.0.1:{wire.port}/v1/responses"
            load = Load(
                lambda: [url],
                num_sockets=NUM_DROPPED,
                turns_per_s=10,
                seed=stage.seed,
                jitter_s=JITTER_S,
            )
            running = asyncio.create_task(load.run(3_600))
            assert await until(lambda: load.num_open == NUM_DROPPED), load.num_open
            wire.cut()
            began_s = time.monotonic()
            await until(lambda: load.num_open < NUM_DROPPED / 2)
            is_back = await until(lambda: load.num_open == NUM_DROPPED, timeout_s=60.0)
            took_s = time.monotonic() - began_s
            load.stop()
            tally = await running
        print(f"  {tally}")
        checks.that(is_back and took_s < BACK_S, f"{load.tally.reconnects} back in {took_s:.1f} s")
        await watch.at_the_end([tally], ledger=False)
    checks.no_violation(watch)
    return checks.failures


def _tight(num_places: int) -> str:
    return f"requests_per_min = 6000000, tokens_per_min = 900000000, max_concurrent = {num_places}"


def _good_per_s(tally: Tally, began_s: float) -> float:
    """Counts turns that ended well, per second until the last: a load awaits what is under way."""
    return tally.num_good / (tally.ends[-1][0] - began_s)


async def overload(stage: Stage) -> list[str]:
    """Plays L5: three times as much comes as the tenant's places carry."""
    checks = Checks()
    options: dict[str, Any] = {"model": "lanewise-deep", "num_tokens": DEEP_TOKENS}
    async with (
        redis_and_fleet(stage.folder, limits={"steady": _tight(PLACES)}) as (server, fleet),
        watching(server, fleet) as watch,
    ):

        def load(num_sockets: int, per_s: float) -> Load:
            return Load(
                lambda: fleet.urls,
                num_sockets=num_sockets,
                turns_per_s=per_s,
                seed=stage.seed,
                **options,
            )

        began_s = time.monotonic()
        full = await load(PLACES, 10_000).run(stage.seconds / 3)
        capacity_per_s = _good_per_s(full, began_s)
        over = load(PLACES * 12, 3 * capacity_per_s * 1.15)
        began_s = time.monotonic()
        tally = await over.run(stage.seconds)
        ended_s = time.monotonic()
        after = await load(PLACES // 2, capacity_per_s / 4).run(10.0)
        print(f"  {tally}")
        goodput = _good_per_s(tally, began_s) / capacity_per_s
        offered = tally.ended.total() / stage.seconds / capacity_per_s
        checks.that(
            goodput >= 0.9,
            f"goodput {goodput:.0%} of {capacity_per_s:.1f} turns/s, {offered:.1f} times offered",
        )
        checks.below(
            quantile(tally.shed_s, 0.99), 0.05, f"seconds to p99 of {len(tally.shed_s)} refusals"
        )
        checks.that(
            tally.without_retry_after == 0,
            f"refusals without retry-after: {tally.without_retry_after}",
        )
        late = [
            at_s - ended_s
            for at_s, how in after.ends
            if how not in ("response.completed", "response.incomplete")
        ]
        checks.below(max(late, default=0.0), 10.0, "seconds until nothing more was refused")
        await watch.at_the_end([full, tally, after])
    checks.no_violation(watch)
    return checks.failures


async def noisy_neighbour(stage: Stage) -> list[str]:
    """Plays L6: another tenant is at ten times its quota."""
    checks = Checks()
    async with (
        redis_and_fleet(stage.folder, limits={"noisy": _tight(NOISY_PLACES)}) as (server, fleet),
        watching(server, fleet) as watch,
    ):

        def load(key: str, num_sockets: int, per_s: float) -> Load:
            return Load(
                lambda: fleet.urls,
                num_sockets=num_sockets,
                turns_per_s=per_s,
                seed=stage.seed,
                key=key,
                model="lanewise-deep",
                num_tokens=DEEP_TOKENS,
            )

        alone = await load(STEADY_KEY, 20, 10).run(stage.seconds / 2)
        quota_per_s = NOISY_PLACES / 0.6  # turns of DEEP_TOKENS
        beside, noisy = await asyncio.gather(
            load(STEADY_KEY, 20, 10).run(stage.seconds / 2),
            load(NOISY_KEY, 60, 10 * quota_per_s).run(stage.seconds / 2),
        )
        print(f"  alone: {alone}\n  beside: {beside}\n  noisy: {noisy}")
        before_s, after_s = (quantile(each.begin_s, 0.95) for each in (alone, beside))
        checks.below(
            after_s / before_s, 2.0, f"times p95 of {before_s * 1e3:.1f} ms to the first event"
        )
        refused = beside.ended["rate_limit_exceeded"]
        checks.that(refused == 0, f"refusals of the steady tenant: {refused}")
        checks.that(noisy.ended["rate_limit_exceeded"] > 0, "the noisy one met its limit")
        await watch.at_the_end([alone, beside, noisy])
    checks.no_violation(watch)
    return checks.failures
