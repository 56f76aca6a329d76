"""Makes the engines of a back-test: simulated ones as configured, servers as a log measured them.

This is an edge.
"""

from array import array
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from backends.contract import BackendInfo
from backends.simulated.backend import in_cache
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from router.backtest.fleet import EngineFleet, EngineMachine, MeasuredCost
from router.record.recording import DecisionRecord, EngineSettings
from wafer_engine.batching.cost_model import EngineLimits

MIN_MEASURED = 5  # generations of a server
_KV_BLOCK_TOKENS = 16
# Assumed of a server that does not tell: how many places it has, and tokens of cache for each.
_NUM_SEQS, _KV_PER_SEQ = 64, 32_768
_SIMULATED = ("wafer", "gpu")  # kinds


class Speeds:
    """Collects how long servers took, for those whose engine is not known."""

    def __init__(self) -> None:
        self._tpot_us: dict[str, array[float]] = {}
        self._ttft_us: dict[str, array[float]] = {}
        self._prompts: dict[str, array[int]] = {}  # tokens, one for each of `_ttft_us`

    def take(self, record: DecisionRecord) -> None:
        """Takes the generations of a record."""
        for each in record.generations:
            if each.state != "finished" or each.first_ms is None or each.last_ms is None:
                continue
            ttft_us = (each.first_ms - each.started_ms) * 1e3
            prompt = each.input_tokens - each.cached_tokens
            self._prompts.setdefault(each.backend, array("q")).append(prompt)
            self._ttft_us.setdefault(each.backend, array("d")).append(ttft_us)
            if each.output_tokens > 1:
                tpot_us = (each.last_ms - each.first_ms) * 1e3 / (each.output_tokens - 1)
                self._tpot_us.setdefault(each.backend, array("d")).append(tpot_us)

    def cost(self, name: str, max_num_seqs: int) -> MeasuredCost | None:
        """Returns what an engine's steps take; None if too few were measured."""
        tpots, prompts = self._tpot_us.get(name, ()), self._prompts.get(name, ())
        if len(tpots) < MIN_MEASURED or len(prompts) < MIN_MEASURED:
            return None
        ttfts = list(zip(prompts, self._ttft_us[name], strict=True))
        per_token_us = _slope(ttfts)
        overhead_us = median(us - tokens * per_token_us for tokens, us in ttfts)
        limits = EngineLimits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(8_192, 2 * max_num_seqs),
            kv_capacity_tokens=max_num_seqs * _KV_PER_SEQ,
            kv_block_tokens=_KV_BLOCK_TOKENS,
        )
        return MeasuredCost(median(tpots), per_token_us, max(0, round(overhead_us)), limits)


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """Returns the time per prompt token, by the median of the slopes between two halves."""
    ordered = sorted(points)
    half = len(ordered) // 2
    pairs = zip(ordered[:half], ordered[-half:], strict=True)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
    return max(0.0, median(slopes)) if slopes else 0.0


def has_servers(described: Iterable[BackendConfig | EngineSettings]) -> bool:
    """Says whether one of these is a server, whose steps take what a log measured."""
    return any(
        each.kind not in _SIMULATED or not each.options
        if isinstance(each, EngineSettings)
        else not isinstance(each, SimulatedConfig)
        for each in described
    )


def fleet_of(configs: Iterable[BackendConfig], speeds: Speeds) -> EngineFleet:
    """Makes the engines of a configuration. Raises ValueError for one that is not known."""
    machines = []
    for config in configs:
        if isinstance(config, SimulatedConfig):
            machines.append(_simulated(config))
            continue
        options: Any = config.options
        flags = ("accepts_images", "accepts_files")
        takes = {flag: bool(getattr(options, flag, False)) for flag in flags}
        info = options.info(config.name, options.group, **takes)
        machines.append(_measured(info, getattr(options, "max_num_seqs", _NUM_SEQS), speeds))
    return EngineFleet(tuple(machines))


def fleet_of_settings(settings: Iterable[EngineSettings], speeds: Speeds) -> EngineFleet:
    """Makes the engines that a log says it was made with. Raises ValueError, as above."""
    machines = []
    for each in settings:
        if each.kind in _SIMULATED and each.options:
            described = {"kind": each.kind, "name": each.name, "options": each.options}
            machines.append(_simulated(msgspec.convert(described, SimulatedConfig)))
        else:
            machines.append(_measured(each.info, _NUM_SEQS, speeds))
    return EngineFleet(tuple(machines))


def _simulated(config: SimulatedConfig) -> EngineMachine:
    info, cost = config.machine()
    return EngineMachine(
        info=in_cache(info, cost),
        cost=cost,
        power_w=cost.power_w,
        max_num_waiting=config.options.max_num_waiting,
    )


def _measured(info: BackendInfo, max_num_seqs: int, speeds: Speeds) -> EngineMachine:
    cost = speeds.cost(info.name, max_num_seqs)
    if cost is None:
        raise ValueError(
            f"backend {info.name!r} is a server whose engine is not known, and the log has fewer "
            f"than {MIN_MEASURED} of its answers: take a longer log, or --without {info.name}"
        )
    return EngineMachine(info=info, cost=cost)
