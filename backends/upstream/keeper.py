"""Keeps an upstream ready for its next request: probes it, and closes and opens its connections.

This is an edge.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Protocol

from backends.drive.driver import monotonic_us
from backends.upstream.answer.errors import Failure
from backends.upstream.health import Health
from backends.upstream.http_exchange import HttpTransport, Probe
from backends.upstream.options import UpstreamOptions
from backends.upstream.socket_exchange import SocketTransport

logger = logging.getLogger("lanewise")


class KeptUpstream(Protocol):
    """Is the upstream, as far as its keeper knows it."""

    name: str
    options: UpstreamOptions
    health: Health
    transport: HttpTransport | SocketTransport
    chance: random.Random
    hidden: Callable[[str], str]  # takes our keys out of the server's words

    def failed(self, failure: Failure) -> None: ...


class Keeper:
    """Looks after an upstream from time to time. Must be made inside the event loop."""

    def __init__(self, kept: KeptUpstream, probe: Probe | None) -> None:
        """Begins at once; without a `probe` the upstream counts as alive."""
        self._kept = kept
        self._probe = probe
        self._wakes = asyncio.Event()  # before the next probe
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def wake(self) -> None:
        """Lets it look at once."""
        self._wakes.set()

    def stop(self) -> None:
        self._task.cancel()

    async def close(self) -> None:
        """Waits until it has stopped, and closes the probe's connection."""
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._probe is not None:
            await self._probe.close()

    async def _keep(self) -> None:
        kept, was_alive = self._kept, None
        while True:
            self._wakes.clear()
            if self._probe is not None:
                was_alive = await self._is_alive(self._probe, was_alive)
            kept.transport.close_idle()
            if kept.health.healthy(monotonic_us()):
                try:
                    await kept.transport.warm()
                except Failure as failure:
                    kept.failed(failure.hiding(kept.hidden))
                    self._wakes.clear()
            interval_s = kept.options.probe_interval_s
            await asyncio.sleep(min(1.0, interval_s / 10))
            with contextlib.suppress(TimeoutError):
                # Jitter, so that many gateways do not probe in step.
                async with asyncio.timeout(interval_s * kept.chance.uniform(0.7, 1.0)):
                    await self._wakes.wait()

    async def _is_alive(self, probe: Probe, was_alive: bool | None) -> bool:
        """Probes the upstream once, and logs what is new."""
        trouble = await probe.trouble()
        self._kept.health.on_probe(trouble is None, monotonic_us())
        if trouble is None and not was_alive:
            logger.info("upstream %s answers", self._kept.name)
        elif trouble is not None and was_alive is not False:
            logger.warning("upstream %s is not to be used: %s", self._kept.name, trouble)
        return trouble is None
