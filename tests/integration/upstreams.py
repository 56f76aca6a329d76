"""Offers an upstream as a test needs one, and a sink that keeps what it is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from backends.contract import Delta, Finish, GenerateRequest, Message, TextFormat, TextPart
from backends.prompt import measure, prompt_size
from backends.upstream.backend import UpstreamBackend
from backends.upstream.options import UpstreamOptions

WAIT_S = 60.0  # bounds a hang


def make_request(
    text: str = "Count to three.", *, max_output_tokens: int = 100, **fields: Any
) -> GenerateRequest:
    """Returns a request of one message."""
    items = (measure(Message("user", (TextPart(text),))),)
    num_tokens, prefix = prompt_size(None, (), TextFormat(), items)
    return GenerateRequest(
        id="resp_test",
        model="told-here",
        items=items,
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        max_output_tokens=max_output_tokens,
        **fields,
    )


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
