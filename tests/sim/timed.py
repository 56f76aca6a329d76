"""Engines and wake-ups for the tests that run in their engines' own time."""

import random

import msgspec

from backends.contract import (
    BackendError,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    Sink,
)
from backends.simulated.backend import SimulatedBackend


class Punctual(random.Random):
    """Wakes nobody late."""

    def randint(self, a: int, b: int) -> int:
        return a


class Muffled(msgspec.Struct):
    """Hears of so many deltas, and then of nothing more."""

    sink: Sink
    num_left: int

    def push(self, delta: Delta) -> None:
        if self.num_left:
            self.num_left -= 1
            self.sink.push(delta)

    def finish(self, finish: Finish) -> None:
        """An engine that hangs does not say so."""


class HangingBackend(SimulatedBackend):
    """Falls silent after so many deltas."""

    num_deltas = 0

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        return super().start(request, Muffled(sink, self.num_deltas))


class Broken(msgspec.Struct):
    """Hears of so many deltas, and then that the engine broke."""

    sink: Sink
    num_left: int
    generation: Generation | None = None

    def push(self, delta: Delta) -> None:
        self.sink.push(delta)
        self.num_left -= 1
        if not self.num_left and self.generation is not None:
            error = BackendError("wafer", "server_error", "it broke", retryable=True)
            used = self.generation.cancel()
            self.sink.finish(Finish(FinishReason.ERROR, used, delta.at_us, error))

    def finish(self, finish: Finish) -> None:
        self.sink.finish(finish)


class BreakingBackend(SimulatedBackend):
    """Fails behind a hundred deltas."""

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        broken = Broken(sink, 100)
        broken.generation = super().start(request, broken)
        return broken.generation
