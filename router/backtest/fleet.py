"""Describes the engines that a back-test runs on, and when each is out."""

from collections.abc import Mapping

import msgspec

from backends.contract import BackendInfo
from wafer_engine.batching.cost_model import CostModel, EngineLimits, StepShape

MAX_NUM_WAITING = 4_096  # as a simulated backend's default


class EngineMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one backend: what it is, and how long its steps take."""

    info: BackendInfo
    cost: CostModel
    power_w: float = 0.0  # rated, of the whole machine
    max_num_waiting: int = MAX_NUM_WAITING  # sequences not yet running; more are refused


class Outage(msgspec.Struct, frozen=True):
    """Takes a backend out. Times are in microseconds of Unix time."""

    backend: str
    from_us: int
    until_us: int
    breaks: bool = True  # what runs there fails; else it only takes nothing new


class EngineFleet(msgspec.Struct, frozen=True):
    """Holds all backends of a back-test."""

    machines: tuple[EngineMachine, ...]
    outages: tuple[Outage, ...] = ()

    def without(self, names: frozenset[str]) -> "EngineFleet":
        """Returns the fleet without these backends. Raises ValueError if one is unknown."""
        self._check(names)
        kept = tuple(each for each in self.machines if each.info.name not in names)
        if not kept:
            raise ValueError("no backend would be left")
        return msgspec.structs.replace(self, machines=kept)

    def slowed(self, speeds: Mapping[str, float]) -> "EngineFleet":
        """Returns the fleet with some backends at a share of their speed, above 0.

        Raises ValueError for an unknown backend or another share.
        """
        self._check(frozenset(speeds))
        for name, speed in speeds.items():
            if not 0 < speed <= 100:
                raise ValueError(f"{name}={speed:g}: expected a speed above 0, 0.5 for half")
        machines = tuple(
            msgspec.structs.replace(each, cost=SlowedCost(each.cost, speeds[each.info.name]))
            if each.info.name in speeds
            else each
            for each in self.machines
        )
        return msgspec.structs.replace(self, machines=machines)

    def _check(self, names: frozenset[str]) -> None:
        known = {each.info.name for each in self.machines}
        if names - known:
            unknown = ", ".join(sorted(names - known))
            raise ValueError(f"no backend {unknown}; there are {', '.join(sorted(known))}")


class SlowedCost:
    """Makes a machine's steps take longer, or less long, by one factor."""

    def __init__(self, cost: CostModel, speed: float) -> None:
        self._cost = cost
        self._speed = speed
        self.limits = cost.limits

    def step_us(self, shape: StepShape) -> float:
        """Returns one step's duration."""
        return self._cost.step_us(shape) / self._speed

    def growth_us(self, num_decode_seqs: int) -> float:
        """Returns by how much each decode step is longer than the one before it."""
        return self._cost.growth_us(num_decode_seqs) / self._speed


class MeasuredCost:
    """Stands for an engine of unknown make by what its answers were measured to take.

    A step takes the measured time per output token whatever the batch, and each prompt token its
    own; so it says nothing of a load that the measurements did not see.
    """

    def __init__(
        self, token_us: float, prompt_token_us: float, overhead_us: int, limits: EngineLimits
    ) -> None:
        self._token_us = token_us
        self._prompt_token_us = prompt_token_us
        self.limits = msgspec.structs.replace(limits, overhead_us=overhead_us)

    def step_us(self, shape: StepShape) -> float:
        """Returns one step's duration."""
        prefill_us = self._prompt_token_us * shape.num_prefill_tokens
        decode_us = self._token_us if shape.num_decode_seqs else 0.0
        return max(1.0, prefill_us + decode_us)

    def growth_us(self, num_decode_seqs: int) -> float:
        """Returns 0: the steps do not grow."""
        return 0.0
