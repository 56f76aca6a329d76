"""Computes what benchmarks report: means and percentiles of requests' times, and speeds.

A name is a quantity and a statistic (`ttft_p99`, `tpot_mean`); without a statistic it is the mean.
A replayed row has requests of one length; with real lengths, tails are longer.
"""

import re
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from wafer_engine.calibration.replay import RequestTimes
from wafer_engine.calibration.rows import NotModelledError

# quantity -> a request's own, in microseconds. ITL is taken as TPOT, as we know only steps.
_TIMES: dict[str, Callable[[RequestTimes], float]] = {
    "ttft": lambda times: times.ttft_us,
    "tpot": lambda times: times.tpot_us,
    "itl": lambda times: times.tpot_us,
    "latency": lambda times: times.latency_us,
}
_PER_TOKEN = ("tpot", "itl")  # of requests with two tokens or more
_SPEEDS = ("output_speed_per_user", "decode_speed_per_user")
_NAME = re.compile(r"(ttft|tpot|itl|latency)(?:_(mean|p\d{1,2}))?")


def value_alone(
    metric: str, prompt: float, output: float, prefill_us: float, decode_us: float
) -> float | None:
    """Computes a metric of identical requests (one user, or one batch), in milliseconds.

    None if the times of a prefill and of a decode step do not determine it.
    """
    named = _NAME.fullmatch(metric)
    match named[1] if named else metric:
        case "ttft":
            return prefill_us / 1e3
        case "tpot" | "itl":
            return decode_us / 1e3
        case "latency":
            return (prefill_us + (output - 1) * decode_us) / 1e3
        case "decode_speed_per_user" | "output_speed_per_user":
            return 1e6 / decode_us
        case "prefill_speed":
            return prompt / prefill_us * 1e6
        case "e2e_output_speed":
            return output / (prefill_us + output * decode_us) * 1e6
        case _:
            return None


def value_of_run(metric: str, times: Sequence[RequestTimes]) -> float:
    """Computes a metric of a run: times in milliseconds, speeds and requests per second.

    Raises `NotModelledError` if it is unknown, or the requests have too few tokens for it.
    """
    if metric == "request_throughput":
        first_us = min(one.request.arrived_us for one in times)
        return len(times) / (max(one.last_token_us for one in times) - first_us) * 1e6
    if metric in _SPEEDS:
        return 1e3 / value_of_run("tpot_mean", times)
    named = _NAME.fullmatch(metric)
    if named is None:
        raise NotModelledError(f"no model for {metric} under this load")
    quantity, statistic = named[1], named[2] or "mean"
    counted = [
        one for one in times if quantity not in _PER_TOKEN or one.request.num_output_tokens > 1
    ]
    if not counted:
        raise NotModelledError("a request of one token has no time per further token")
    values_us = [_TIMES[quantity](one) for one in counted]
    if statistic == "mean":
        return statistics.fmean(values_us) / 1e3
    return float(np.percentile(values_us, int(statistic[1:]))) / 1e3
