"""Offers a sink that keeps what a simulated engine says."""

import asyncio

from backends.contract import Delta, DeltaKind, Finish


class RecordingSink:
    """Keeps what is pushed and checks the contract's order."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.finished: Finish | None = None
        self.ended = asyncio.Event()

    def push(self, delta: Delta) -> None:
        assert self.finished is None
        if self.deltas:
            assert delta.index in (self.deltas[-1].index, self.deltas[-1].index + 1)
            assert delta.at_us >= self.deltas[-1].at_us
        assert delta.num_tokens > 0
        self.deltas.append(delta)

    def finish(self, finish: Finish) -> None:
        assert self.finished is None
        self.finished = finish
        self.ended.set()

    @property
    def text(self) -> str:
        return "".join(d.text for d in self.deltas if d.kind is DeltaKind.TEXT)

    @property
    def num_tokens(self) -> int:
        return sum(delta.num_tokens for delta in self.deltas)
