"""Plays F1, F2, F20 and L7: Redis freezes, dies, or is not there yet while turns run."""

import asyncio
import signal
import time

import httpx

from gateway.metrics.buckets import REDIS_S
from tests.accept import late_redis
from tests.chaos.fleet import STEADY_KEY, Fleet, fleet, quantile_s, redis_and_fleet, until
from tests.chaos.loads import steady_load
from tests.chaos.stage import Checks, Stage
from tests.chaos.watch import Watch, watching
from tests.integration.redis_fleet import Server, running

FROZEN_S, AWAY_S = 5.0, 2.0
POLICY = """
version = "last-good"

[[rules]]
name = "short-ones-stay-fast"
when = { labels = ["interactive"] }
route = "fast"
"""


def mode_of(made: Fleet) -> float:
    """Returns 1 while the gateway limits by itself."""
    return made.gateways[0].metrics().total("lanewise_ratelimit_degraded")


async def frozen(stage: Stage) -> list[str]:
    """Plays F1: SIGSTOP for five seconds."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (server, made), watching(server, made) as watch:
        load = steady_load(stage, lambda: made.urls)
        run = asyncio.create_task(load.run(stage.seconds))
        await asyncio.sleep((stage.seconds - FROZEN_S) / 2)
        server.send(signal.SIGSTOP)
        began_s = time.monotonic()
        await until(lambda: mode_of(made) == 1, timeout_s=FROZEN_S)
        degraded_s = time.monotonic() - began_s
        await asyncio.sleep(max(0.0, FROZEN_S - degraded_s))
        server.send(signal.SIGCONT)
        began_s = time.monotonic()
        await until(lambda: mode_of(made) == 0)
        back_s = time.monotonic() - began_s
        tally = await run
        print(f"  {tally}")
        name = "lanewise_ratelimit_redis_seconds"
        longest_s = quantile_s(made.gateways[0].metrics(), name, 1.0, REDIS_S)
        checks.that(longest_s <= 0.1, f"the longest wait for Redis: {longest_s} s (its bucket)")
        checks.below(degraded_s, 1.0, "seconds until it went on alone")
        checks.below(back_s, 2.0, "seconds until it was back")
        checks.that(tally.num_errors + tally.lost == 0, f"errors: {tally.num_errors + tally.lost}")
        await watch.at_the_end([tally])
    checks.no_violation(watch)
    return checks.failures


async def killed_and_empty(stage: Stage) -> list[str]:
    """Plays F2: SIGKILL, and an empty server two seconds later."""
    checks = Checks()
    async with redis_and_fleet(stage.folder) as (server, made):
        # Turns that last, so that some are under way at every moment.
        load = steady_load(stage, lambda: made.urls, model="lanewise-deep", num_tokens=100)
        run = asyncio.create_task(load.run(3_600))
        await asyncio.sleep(stage.seconds / 4)
        server.send(signal.SIGKILL)
        await asyncio.sleep(AWAY_S)
        server.start()
        server.ask("PING")
        is_back = await until(lambda: mode_of(made) == 0)
        watch = Watch(server.ask, made)
        looking = asyncio.create_task(watch.run())
        await asyncio.sleep(stage.seconds / 2)
        load.stop()
        tally = await run
        await watch.at_the_end([tally], ledger=False)  # it was in the Redis that died
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        print(f"  {tally}")
        checks.that(is_back, "the gateway meets the shared pools again")
        checks.that(max(watch.leases) > 0, f"leases adopted: {max(watch.leases)} seen at most")
        checks.that(tally.num_errors + tally.lost == 0, f"errors: {tally.num_errors + tally.lost}")
    checks.no_violation(watch)
    return checks.failures


async def not_there_yet(stage: Stage) -> list[str]:
    """Plays F20: gateways start while Redis is down."""
    checks = Checks()
    server = Server(stage.folder)
    with running(server):
        server.ask("PING")
        server.stop()
        url = f"redis://127.0.0.1:{server.port}"
        policy = stage.folder / "policy.toml"
        policy.write_text(POLICY)
        for on_blind in ("closed", "local"):
            more = f'\n[redis]\non_blind = "{on_blind}"\n'
            top = f'policy_path = "{policy}"\n'
            folder = stage.folder / on_blind
            folder.mkdir()
            async with fleet(folder, url, top=top, more=more) as made:
                await _ask_blind(checks, made, on_blind)
                if on_blind == "local":
                    await _comes_back(checks, server, made)
    return checks.failures


async def _ask_blind(checks: Checks, made: Fleet, on_blind: str) -> None:
    (gateway,) = made.gateways
    body = {"model": "lanewise-fast", "input": "Hi.", "max_output_tokens": 16, "store": False}
    headers = {"authorization": f"Bearer {STEADY_KEY}"}
    async with httpx.AsyncClient(timeout=60) as client:
        ready = (await client.get(f"{gateway.url}/readyz")).status_code
        alive = (await client.get(f"{gateway.url}/healthz")).status_code
        answer = await client.post(f"{gateway.base_url}/responses", json=body, headers=headers)
    checks.that(alive == 200, f"{on_blind}: /healthz answers {alive} without Redis")
    wanted = 503 if on_blind == "closed" else 200
    told = f"{on_blind}: a task gets {answer.status_code}, /readyz {ready}"
    checks.that(answer.status_code == wanted, told)
    if wanted == 200:
        version = answer.json()["routing"]["policy_version"]
        checks.that(version == "last-good", f"the policy of its file is in force: {version}")


async def _comes_back(checks: Checks, server: Server, made: Fleet) -> None:
    server.start()
    server.ask("PING")
    is_back = await until(lambda: mode_of(made) == 0)
    checks.that(is_back, "it meets the shared pools once Redis is there")


async def exact_quotas(stage: Stage) -> list[str]:
    """Plays L7: four gateways are at five times the limits of a tenant."""
    server = Server(stage.folder)
    with running(server):
        server.ask("PING")
        held = await late_redis.held(
            server, stage.folder, stage.seed, seconds=stage.seconds, late_share=0.0
        )
    return [] if held else ["a limit was exceeded, or something failed: see above"]
