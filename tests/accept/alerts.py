"""Six faults on a real Prometheus and Alertmanager: each is told in time, and cleared in time.

kill -9 of an engine, a gateway and Redis, and a full pool: told within 90 s, cleared within 60 s.
30 % errors, and a canary that fails: told within 90 s, cleared within 150 s.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from tests.accept.alerting import (
    KEY,
    NARROW_KEY,
    PAUSE_S,
    Watched,
    ask_for_ever,
    missing,
    put_in_force,
    until_told,
    watched,
)

LIMIT_S = 1_800
TOLD_S, CLEARED_S, RATIO_CLEARED_S = 90.0, 60.0, 150.0
GIVE_UP_S = 240.0  # on an alert that does not come
WARM_S = 20.0  # of ordinary load, before the first fault

CANARY = """
version = "canary"

[[rules]]
name = "half-go-deep"
when = { labels = ["interactive", "uncertain", "deep"] }
percent = 50
route = "deep"

[[rules]]
name = "the-rest-stays"
when = { labels = ["interactive", "uncertain", "deep"] }
route = "fast"
"""


class Fault(NamedTuple):
    """Is a fault that begins and ends, and the alert that tells of it."""

    alert: str
    begin: Callable[[], None]
    end: Callable[[], None]
    cleared_s: float = CLEARED_S


def main() -> bool:
    """Prints how long each alert took to come and to go."""
    if lacking := missing():
        print(f"not on this machine: {lacking} (make setup unpacks Debian's)")
        return False
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    return asyncio.run(_all(seed))


async def _all(seed: int) -> bool:
    async with watched(seed) as here, contextlib.AsyncExitStack() as stack:
        for name in here.gateways:
            for model in ("lanewise-fast", "lanewise-deep"):
                await stack.enter_async_context(_asking(here, name, model, 2))
        await asyncio.sleep(WARM_S)
        held = await asyncio.gather(*(_told(here, fault) for fault in _killed(here)))
        async with _asking(here, "own", "lanewise-fast", 4, NARROW_KEY, pause_s=0.05) as load:
            held.append(await _told(here, Fault("LanewisePoolFull", _nothing, load.end)))
        held.append(await _told(here, _redis_away(here)))
        async with _asking(here, "upstreams", "lanewise-deep", 6):
            held.append(await _told(here, _failing(here, "LanewiseErrorsNow", 0.6)))
        await put_in_force(here.gateways["upstreams"], CANARY)
        async with _asking(here, "upstreams", "auto", 4):
            await asyncio.sleep(WARM_S)
            held.append(await _told(here, _failing(here, "LanewiseCanaryFailsNow", 0.5)))
        print(f"{here.webhook.num_beats} heartbeats")
        return all(held) and here.webhook.num_beats > 0


def _killed(here: Watched) -> tuple[Fault, ...]:
    """Returns two faults to begin at once, which have nothing to do with each other."""

    def kill_engine() -> None:
        assert here.engine is not None
        here.engine.process.kill()
        here.engine.process.wait()

    def kill_gateway() -> None:
        here.gateways["own"].process.kill()
        here.gateways["own"].process.wait()

    return (
        Fault("LanewiseGroupDown", kill_engine, here.start_engine),
        Fault(
            "LanewiseTargetDown",
            kill_gateway,
            lambda: here.start("own", here.gateways["own"].port),
        ),
    )


def _redis_away(here: Watched) -> Fault:
    return Fault(
        "LanewisePoolsUnreachable", lambda: here.redis.send(signal.SIGKILL), here.redis.start
    )


def _failing(here: Watched, alert: str, share: float) -> Fault:
    """Lets a share of the deep group's answers break off: half of all, or of `auto`."""

    def fail(share: float) -> None:
        here.flaky.failing = share

    return Fault(alert, lambda: fail(share), lambda: fail(0.0), RATIO_CLEARED_S)


def _nothing() -> None:
    """Does nothing: the load that is there is the fault."""


async def _told(here: Watched, fault: Fault) -> bool:
    """Lets a fault begin and end; prints and returns whether both were told in time."""
    begun_s = time.monotonic()
    await asyncio.to_thread(fault.begin)
    came_s = await until_told(
        here.webhook, fault.alert, firing=True, since_s=begun_s, limit_s=GIVE_UP_S
    )
    await asyncio.to_thread(fault.end)
    ended_s = time.monotonic()
    went_s = None
    if came_s is not None:
        went_s = await until_told(
            here.webhook, fault.alert, firing=False, since_s=ended_s, limit_s=GIVE_UP_S
        )
    held = (
        came_s is not None and came_s <= TOLD_S and went_s is not None and went_s <= fault.cleared_s
    )
    came, went = (f"{each:.0f} s" if each is not None else "never" for each in (came_s, went_s))
    print(
        f"{fault.alert}: told after {came} (at most {TOLD_S:.0f}), cleared after {went} "
        f"(at most {fault.cleared_s:.0f}): {'held' if held else 'FAILED'}",
        flush=True,
    )
    return held


class _Load:
    """Runs clients that ask, until they are told to end."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.loop = asyncio.get_running_loop()

    def end(self) -> None:
        """Ends them; may be called from any thread."""
        for task in self.tasks:
            self.loop.call_soon_threadsafe(task.cancel)


@contextlib.asynccontextmanager
async def _asking(
    here: Watched,
    name: str,
    model: str,
    num: int,
    key: str = KEY,
    pause_s: float = PAUSE_S,
) -> AsyncIterator[_Load]:
    load = _Load()
    words = 400 if key == NARROW_KEY else 20  # long ones hold their place

    def where() -> str:
        return here.gateways[name].base_url

    for _ in range(num):
        asking = ask_for_ever(where, model, key, pause_s, words)
        load.tasks.append(asyncio.create_task(asking))
    try:
        yield load
    finally:
        load.end()
        await asyncio.gather(*load.tasks, return_exceptions=True)


if __name__ == "__main__":
    raise SystemExit(not main())
