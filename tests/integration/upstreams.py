"""An upstream as a test needs one, and a sink that keeps what it is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backends.contract import (
    Delta,
    Finish,
)
from backends.upstream.backend import UpstreamBackend
from backends.upstream.options import UpstreamOptions

WAIT_S = 60.0  # bounds a hang


class RecordingSink:
    """Keeps what it is given; `ended` resolves with the first finish."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.finishes: list[Finish] = []
        self.first = asyncio.Event()
        self.ended = asyncio.Event()

    def push(self, delta: Delta) -> None:
        assert not self.finishes, "a delta behind the finish"
        self.deltas.append(delta)
        self.first.set()

    def finish(self, finish: Finish) -> None:
        self.finishes.append(finish)
        self.ended.set()

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


@asynccontextmanager
async def upstream(
    base_url: str, protocol: str, **options: object
) -> AsyncIterator[UpstreamBackend]:
    settings = {
        "base_url": base_url,
        "protocol": protocol,
        "upstream_model": "told",
        "model": "told-here",
        "group": "fast",
        "probe_path": None,
        "retry_pause_s": 0.01,
        **options,
    }
    backend = UpstreamBackend(name="told", options=UpstreamOptions(**settings))  # type: ignore[arg-type]
    try:
        yield backend
    finally:
        await backend.close()
