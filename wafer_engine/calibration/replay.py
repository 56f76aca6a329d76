"""Replays requests through the production engine on virtual time, from event to event."""

import math
import statistics
from collections.abc import Callable, Collection, Iterable
from itertools import islice

import msgspec

from wafer_engine.batching.cost_model import CostModel
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.sequence import Sequence
from wafer_engine.calibration.prefix_blocks import Prefix


class Request(msgspec.Struct, frozen=True):
    """Is one request of a trace."""

    arrived_us: int
    num_prompt_tokens: int
    num_output_tokens: int
    prefix: Prefix = ()


class RequestTimes(msgspec.Struct, frozen=True):
    """Holds the times of a request's arrival and of its first and last tokens."""

    request: Request
    first_token_us: int
    last_token_us: int
    num_cached_tokens: int = 0  # of its prompt, found in the KV cache

    @property
    def ttft_us(self) -> int:
        return self.first_token_us - self.request.arrived_us

    @property
    def tpot_us(self) -> float:
        """Returns the mean time per output token after the first; 0 if there is only one."""
        further = self.request.num_output_tokens - 1
        return (self.last_token_us - self.first_token_us) / further if further else 0.0

    @property
    def latency_us(self) -> int:
        return self.last_token_us - self.request.arrived_us


class ReplaySummary(msgspec.Struct, frozen=True):
    """Holds means over a replay, as benchmark reports give them."""

    num_requests: int
    mean_ttft_us: float
    mean_tpot_us: float  # over requests with two tokens or more
    mean_latency_us: float
    output_tokens_per_s: float  # from the first arrival to the last token

    @property
    def means_us(self) -> dict[str, float]:
        """Returns the means by name; no TPOT where every answer is one token."""
        means = {
            "mean TTFT": self.mean_ttft_us,
            "mean TPOT": self.mean_tpot_us,
            "mean latency": self.mean_latency_us,
        }
        return {name: mean_us for name, mean_us in means.items() if not math.isnan(mean_us)}

    @staticmethod
    def of(times: Collection[RequestTimes]) -> "ReplaySummary":
        first_us = min(time.request.arrived_us for time in times)
        last_us = max(time.last_token_us for time in times)
        num_tokens = sum(time.request.num_output_tokens for time in times)
        tpots = [time.tpot_us for time in times if time.request.num_output_tokens > 1]
        return ReplaySummary(
            len(times),
            statistics.fmean(time.ttft_us for time in times),
            statistics.fmean(tpots) if tpots else math.nan,
            statistics.fmean(time.latency_us for time in times),
            num_tokens / (last_us - first_us) * 1e6,
        )


def replay(
    cost: CostModel,
    requests: Iterable[Request],
    *,
    max_run_steps: int = 2**31,
    num_needed: int | None = None,
) -> list[RequestTimes]:
    """Runs requests through a fresh engine, each arriving at its own time.

    Requests are given in order of arrival, and so are their times. `max_run_steps` 1 computes every
    step by itself, for comparison. With `num_needed` only the times of so many, the first, come
    back, and the run ends when they do; the others are load. Raises ValueError if a request exceeds
    the KV cache by itself.
    """
    run = _Run(Engine(cost, max_run_steps=max_run_steps))
    for request in requests:
        run.add(request)
    return run.drain(num_needed)


def replay_closed(
    cost: CostModel, template: Request, num_users: int, num_requests: int, stagger_us: int = 0
) -> list[RequestTimes]:
    """Keeps `num_users` requests of one shape under way until `num_requests` were sent.

    Users start evenly spread over `stagger_us`; each sends its next request when the last one ends.
    """
    run = _Run(Engine(cost))
    left = num_requests - num_users

    def next_request(at_us: int) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            run.add(msgspec.structs.replace(template, arrived_us=at_us))

    run.on_finish = next_request
    for user in range(min(num_users, num_requests)):
        arrived_us = template.arrived_us + stagger_us * user // num_users
        run.add(msgspec.structs.replace(template, arrived_us=arrived_us))
    return run.drain()


class _Run:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests: list[Request] = []
        self._first_us: list[int] = []
        self._last_us: list[int] = []
        self._num_cached: list[int] = []
        self._running: dict[int, Sequence] = {}  # those with a prefix
        self.on_finish: Callable[[int], None] | None = None

    def add(self, request: Request) -> None:
        if self.on_finish is not None:  # the next request depends on it; other output waits
            self._fetch_until(request.arrived_us)
        sequence = Sequence(
            id=len(self._requests),
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            prefix=request.prefix,
        )
        if request.prefix:
            self._running[sequence.id] = sequence
        self._num_cached.append(0)
        self._requests.append(request)
        self._first_us.append(-1)
        self._last_us.append(-1)
        self._engine.add(sequence, request.arrived_us)

    def drain(self, num_needed: int | None = None) -> list[RequestTimes]:
        if num_needed is None:
            self._fetch_until(math.inf)
        else:
            while any(ended_us < 0 for ended_us in self._last_us[:num_needed]):
                self._fetch_until(math.inf, once=True)
        columns = self._requests, self._first_us, self._last_us, self._num_cached
        times = map(RequestTimes, *columns)
        return list(islice(times, num_needed))

    def _fetch_until(self, now_us: float, once: bool = False) -> None:
        while (event_us := self._engine.next_event_us()) is not None and event_us < now_us:
            output = self._engine.advance(event_us, progress=False)
            ended: list[int] = []
            for number, _, at_us, finished in output:
                if self._first_us[number] < 0:
                    self._first_us[number] = at_us
                if finished:
                    self._last_us[number] = at_us
                    if number in self._running:
                        self._num_cached[number] = self._running.pop(number).num_cached_tokens
                    ended.append(at_us)
            if self.on_finish is not None:
                for at_us in ended:
                    self.on_finish(at_us)
            if once:
                return
