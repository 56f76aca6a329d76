"""Twenty minutes of ordinary load with a change of policy and a rolling restart raise no alert."""

import asyncio
import contextlib
import os
import time

from tests.accept.alerting import Watched, ask_for_ever, missing, put_in_force, watched

LIMIT_S = 1_800
SECONDS = float(os.environ.get("LANEWISE_QUIET_S", "1200"))
POLICY = """
version = "quiet"

[[rules]]
name = "short-ones-stay-fast"
when = { labels = ["interactive"] }
route = "fast"
"""


def main() -> bool:
    """Prints what was told, which should be nothing."""
    if lacking := missing():
        print(f"not on this machine: {lacking} (make setup unpacks Debian's)")
        return False
    return asyncio.run(_quiet())


async def _quiet() -> bool:
    async with watched(1) as here:
        asking = [
            asyncio.create_task(ask_for_ever(lambda name=name: here.gateways[name].base_url, model))  # type: ignore[misc]
            for name in here.gateways
            for model in ("lanewise-fast", "lanewise-deep", "auto")
        ]
        began_s = time.monotonic()
        await asyncio.sleep(SECONDS / 4)
        await put_in_force(here.gateways["upstreams"], POLICY)
        await asyncio.sleep(SECONDS / 4)
        for name in tuple(here.gateways):
            await asyncio.to_thread(_restart, here, name)
        await asyncio.sleep(max(0.0, SECONDS - (time.monotonic() - began_s)))
        for task in asking:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*asking, return_exceptions=True)
        alerts = sorted({told.name for told in here.webhook.told if told.is_firing})
        print(f"{SECONDS:.0f} s, {here.webhook.num_beats} heartbeats, alerts: {alerts or 'none'}")
        return not alerts and here.webhook.num_beats > 0


def _restart(here: Watched, name: str) -> None:
    """Drains a gateway and starts it again on its port, as a rolling update does."""
    port = here.gateways[name].port
    here.gateways[name].stop()
    here.start(name, port)


if __name__ == "__main__":
    raise SystemExit(not main())
