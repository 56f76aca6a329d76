"""Shows what engines say of their requests, as vLLM's metrics.

A task hands over one record; the histograms are filled at the next scrape, so that none of it is
on a task's way.
"""

from typing import NamedTuple

from backends.contract import EngineTimes, FinishReason
from gateway.metrics.counters import Counters

MAX_WAITING = 4_096  # records until the next scrape; then they are counted at once

_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


class EngineRequest(NamedTuple):
    """Describes a request as its engine had it."""

    model: str
    backend: str
    num_prompt_tokens: int
    num_output_tokens: int
    reason: FinishReason | None  # None: cancelled
    times: EngineTimes | None  # None where it was cancelled


class EngineRequests:
    """Gathers requests, and counts them when asked."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._waiting: list[EngineRequest] = []

    def add(self, request: EngineRequest) -> None:
        """Takes a request that ended."""
        self._waiting.append(request)
        if len(self._waiting) >= MAX_WAITING:
            self.count()

    def count(self) -> None:
        """Counts what was gathered."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._count(request)

    def _count(self, request: EngineRequest) -> None:
        counts, histograms = self._counters.counts, self._counters.histograms
        key = (request.model, request.backend)
        reason = "abort" if request.reason is None else _REASONS.get(request.reason, "abort")
        counts["vllm:request_success_total"][*key, reason].inc()
        times, num_tokens = request.times, request.num_output_tokens
        if times is None:
            return
        queue_s, prefill_s, decode_s = (each / 1e6 for each in times_of(times))
        histograms["vllm:request_queue_time_seconds"][key].observe(queue_s)
        histograms["vllm:request_prefill_time_seconds"][key].observe(prefill_s)
        histograms["vllm:request_decode_time_seconds"][key].observe(decode_s)
        histograms["vllm:time_to_first_token_seconds"][key].observe(queue_s + prefill_s)
        whole_s = queue_s + prefill_s + decode_s
        histograms["vllm:e2e_request_latency_seconds"][key].observe(whole_s)
        if num_tokens > 1:
            mean_s = decode_s / (num_tokens - 1)
            between = histograms["vllm:inter_token_latency_seconds"][key]
            between.observe_times(mean_s, num_tokens - 1)
        histograms["vllm:request_prompt_tokens"][key].observe(request.num_prompt_tokens)
        histograms["vllm:request_generation_tokens"][key].observe(num_tokens)
        histograms["vllm:request_max_num_generation_tokens"][key].observe(num_tokens)


def times_of(times: EngineTimes) -> tuple[int, int, int]:
    """Returns the three phases in order; none is negative, whatever an engine says."""
    return max(0, times.queue_us), max(0, times.prefill_us), max(0, times.decode_us)
