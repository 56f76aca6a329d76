"""Engines and wake-ups for the tests that run in their engines' own time."""

import random

import msgspec

from backends.contract import Delta, Finish, GenerateRequest, Generation, Sink
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
