"""Fits an engine's constants to requests that it really served, in seconds of one core.

Three constants are fitted, each within what physics allows: the shares of arithmetic and of memory
bandwidth that are reached, and the time per sequence and step. A fourth is taken in only if it
foretells parts of the log that were left out better than three do.

A log may be a part of a day: its last requests then ran among others that it does not show. Each
log is fitted twice, as if traffic had stopped with it and as if the same traffic had gone on, and
what comes nearer to the measured times is kept.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from backends.gpu_engine.constants import GpuConstants
from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.fit import Vector, fit_positive, jacobian, rounded, soft_l1
from wafer_engine.calibration.replay import Request, RequestTimes, replay

FITTED = ("compute", "memory", "seq_us")
MORE = ("step_us", "kv", "link")  # each tried alone as a fourth
MOST = {"compute": 1.0, "memory": 1.0, "kv": 1.0, "link": 1.0}  # shares
LEAST = {"seq_us": 5.0, "step_us": 20.0}  # where a fit in logarithms can start
GROUPS = 6  # of consecutive requests, whose means are compared
LEAST_REQUESTS = 12
MAX_FITTED = 400  # requests of a log: the first, which a fit of 5 CPU-seconds can replay
MAX_REPEATS = 4  # of a log's traffic, after its end
MAX_STEPS = 12  # of a fit, each of so many replays as there are constants, and one or more
GUESSED = 8.0  # how much less a time counts under a guessed load: by the lengths' scatter; assumed
DIFFERENCE = 0.03  # of a derivative, in log space: a scheduler's times jump
# How much a constant leans on its set: a constant e times as large costs as much as a group that is
# so far off. More on a set of the same card and release than on one that was taken over. Assumed.
LEANING_OWN = 0.2
LEANING_OTHER = 0.04
GAIN = 0.7  # a fourth constant must bring the loss of what was left out below this share
STOPPED = 0.7  # share of the loss below which a log's traffic is taken to have stopped with it
INTERVAL = 1.645  # standard errors on both sides: 90 %

MakeCost = Callable[[GpuConstants], GpuCost]


class ServedRequest(msgspec.Struct, frozen=True):
    """Is one request of a log; without times it is load only."""

    request: Request
    times: RequestTimes | None


class FittedConstant(msgspec.Struct, frozen=True):
    """Is one constant with its interval of 90 %."""

    name: str
    value: float
    low: float
    high: float


class FittedSet(msgspec.Struct, frozen=True):
    """Holds what a fit found, and how far from the log it still is."""

    constants: GpuConstants
    fitted: tuple[FittedConstant, ...]
    mean_error: float  # of the groups' means, absolute
    num_requests: int  # with times
    goes_on: bool = False  # whether the same traffic is taken to have gone on after the log
    unit: str = "requests"  # of what the number is


class _Problem:
    """Compares a set of constants with logs; every comparison is a replay, and made once."""

    def __init__(
        self,
        logs: Sequence[Sequence[ServedRequest]],
        start: GpuConstants,
        make_cost: MakeCost,
        goes_on: bool,
    ) -> None:
        self.start = start
        self.leaning = LEANING_OTHER if start.basis else LEANING_OWN
        self._make_cost = make_cost
        self._loads = [_load(log, goes_on) for log in logs]
        self._counts = [len(log) for log in logs]
        measured = [[one.times for one in log] for log in logs]
        self._groups = [_groups(times) for times in measured]
        self._weights = np.concatenate(
            [
                _weights(times, groups, _known_until_us(log))
                for log, times, groups in zip(logs, measured, self._groups, strict=True)
            ]
        )
        self._real = [
            _log_means(times, groups) for times, groups in zip(measured, self._groups, strict=True)
        ]
        self._known: dict[GpuConstants, Vector] = {}

    def errors(self, names: Sequence[str], values: Vector) -> Vector:
        """Returns the log error of each group's mean, all logs' in a row."""
        changed = dict(zip(names, map(float, values), strict=True))
        constants = msgspec.structs.replace(self.start, **changed)
        if constants not in self._known:
            cost = self._make_cost(constants)
            self._known[constants] = self._weights * np.concatenate(
                [
                    _log_means(replay(cost, load, num_needed=count), groups) - real
                    for load, count, groups, real in zip(
                        self._loads, self._counts, self._groups, self._real, strict=True
                    )
                ]
            )
        return self._known[constants]

    def own(self, names: Sequence[str]) -> Vector:
        return np.array([getattr(self.start, name) for name in names])

    def fit(self, names: Sequence[str], first: Vector) -> Vector:
        own = self.own(names)

        def errors(values: Vector) -> Vector:
            return np.concatenate([self.errors(names, values), self.leaning * np.log(values / own)])

        most = np.array([MOST.get(name, np.inf) for name in names])
        return fit_positive(errors, first, DIFFERENCE, most, MAX_STEPS)

    def loss(self, names: Sequence[str], values: Vector) -> float:
        return soft_l1(self.errors(names, values))

    def slopes(self, names: Sequence[str], values: Vector) -> Vector:
        return jacobian(lambda at: self.errors(names, np.exp(at)), np.log(values), DIFFERENCE)


def fit_requests(
    logs: Sequence[Sequence[ServedRequest]], start: GpuConstants, make_cost: MakeCost
) -> FittedSet:
    """Fits constants to logs of one server, each in order of arrival, from a set to start with.

    Raises ValueError if too few requests have times to tell anything.
    """
    logs = [log[:MAX_FITTED] for log in logs]
    num_measured = sum(one.times is not None for log in logs for one in log)
    if num_measured < LEAST_REQUESTS:
        raise ValueError(
            f"{num_measured} requests with the times of their first and last token: "
            f"at least {LEAST_REQUESTS} are needed"
        )
    start = startable(start)
    names = list(FITTED)
    # Requests without times at the end of a log are the load that came after those fitted to.
    is_known = all(log[-1].times is None for log in logs)
    tried = [_Problem(logs, start, make_cost, goes_on) for goes_on in (False, True)[: 2 - is_known]]
    found = [problem.fit(names, problem.own(names)) for problem in tried]
    losses = [problem.loss(names, values) for problem, values in zip(tried, found, strict=True)]
    best = len(losses) - 1  # that traffic went on, unless the log clearly says that it stopped
    if losses[0] < STOPPED * losses[best]:
        best = 0
    problem, values = tried[best], found[best]
    extra = _fourth(problem, names, values)
    if extra is not None:
        longer = [*names, extra]
        more = problem.fit(longer, np.append(values, getattr(start, extra)))
        names, values = longer, more
    fitted = _intervals(problem, names, values)
    return FittedSet(
        msgspec.structs.replace(start, **{one.name: one.value for one in fitted}),
        fitted,
        float(np.abs(np.expm1(problem.errors(names, values))).mean()),
        num_measured,
        best == 1,
    )


def startable(start: GpuConstants) -> GpuConstants:
    """Returns a set with its constants moved to where a fit in logarithms can start."""
    values = {name: min(getattr(start, name), most) for name, most in MOST.items()}
    values |= {name: max(getattr(start, name), least) for name, least in LEAST.items()}
    return msgspec.structs.replace(start, **values)


def _load(log: Sequence[ServedRequest], goes_on: bool) -> list[Request]:
    """Returns a log's requests, and, if it goes on, the same ones until the last has ended."""
    requests = [one.request for one in log]
    if not goes_on or len(requests) < 2:
        return requests
    first_us, last_us = requests[0].arrived_us, requests[-1].arrived_us
    span_us = max(1, round((last_us - first_us) * len(requests) / (len(requests) - 1)))
    ended_us = max(one.times.last_token_us for one in log if one.times is not None)
    repeats = min(MAX_REPEATS, (ended_us - last_us) // span_us + 1)
    return requests + [
        msgspec.structs.replace(one, arrived_us=one.arrived_us + number * span_us)
        for number in range(1, repeats + 1)
        for one in requests
    ]


def _groups(measured: Sequence[RequestTimes | None]) -> list[list[int]]:
    """Divides the requests with times into groups of consecutive ones."""
    known = [at for at, times in enumerate(measured) if times is not None]
    parts = np.array_split(np.array(known, dtype=int), min(GROUPS, max(1, len(known) // 4)))
    return [part.tolist() for part in parts if len(part)]


def _log_means(times: Sequence[RequestTimes | None], groups: Sequence[Sequence[int]]) -> Vector:
    """Returns the logs of each group's mean TTFT, TPOT and latency."""
    means = []
    for group in groups:
        members = [one for at in group if (one := times[at]) is not None]
        tpots = [one.tpot_us for one in members if one.request.num_output_tokens > 1]
        means += [
            statistics.fmean(one.ttft_us for one in members),
            statistics.fmean(tpots) if tpots else 1.0,
            statistics.fmean(one.latency_us for one in members),
        ]
    return np.log(np.maximum(means, 1.0))


def _known_until_us(log: Sequence[ServedRequest]) -> float:
    """Returns until when a log has all that ran: till its last request began, or longer.

    Engines start requests in order of arrival. Requests without times show that the log goes on
    after those that are fitted to.
    """
    last = log[-1]
    return math.inf if last.times is None else last.times.first_token_us


def _weights(
    times: Sequence[RequestTimes | None], groups: Sequence[Sequence[int]], known_until_us: float
) -> Vector:
    """Returns how much each group's mean TTFT, TPOT and latency count.

    A short time to the first token is mostly noise; a time after the end of the log depends on
    what ran then, which is guessed.
    """
    weights = []
    for group in groups:
        members = [one for at in group if (one := times[at]) is not None]
        total_us = max(1, sum(one.latency_us for one in members))
        ttft = sum(one.ttft_us for one in members) / total_us
        after = sum(max(0.0, one.last_token_us - known_until_us) for one in members) / total_us
        known = 1.0 / (1.0 + GUESSED * min(1.0, after))
        weights += [math.sqrt(max(0.0, ttft)), known, known]
    return np.array(weights)


def _fourth(problem: _Problem, names: Sequence[str], values: Vector) -> str | None:
    """Returns the constant that foretells left-out groups clearly better than none, if any does.

    The fits without a third of the groups are made on the errors' tangent: they need no replays.
    """
    candidates = [name for name in MORE if getattr(problem.start, name) > 0]
    errors = problem.errors(names, values)
    longer = [*names, *candidates]
    slopes = problem.slopes(longer, np.append(values, problem.own(candidates)))
    plain = _left_out(errors, slopes[:, : len(names)], problem.leaning)
    losses = {
        name: _left_out(errors, slopes[:, [*range(len(names)), len(names) + at]], problem.leaning)
        for at, name in enumerate(candidates)
    }
    best = min(losses, key=lambda name: losses[name], default=None)
    return best if best is not None and losses[best] < GAIN * plain else None


def _left_out(errors: Vector, slopes: Vector, leaning: float) -> float:
    """Returns the loss of each third of the groups under a fit to the others."""
    loss = 0.0
    for part in range(3):
        left = (np.arange(len(errors)) // 3) % 3 == part
        kept = slopes[~left]
        normal = kept.T @ kept + leaning**2 * np.eye(slopes.shape[1])
        step = np.linalg.solve(normal, -kept.T @ errors[~left])
        loss += soft_l1(errors[left] + slopes[left] @ np.clip(step, -0.5, 0.5))
    return loss


def _intervals(
    problem: _Problem, names: Sequence[str], values: Vector
) -> tuple[FittedConstant, ...]:
    slopes, left = problem.slopes(names, values), problem.errors(names, values)
    variance = float(left @ left) / max(1, len(left) - len(names))
    return intervals(names, values, slopes, problem.leaning, variance)


def intervals(
    names: Sequence[str], values: Vector, slopes: Vector, leaning: float, variance: float
) -> tuple[FittedConstant, ...]:
    """Returns each constant's interval, by its slopes and how much errors scatter about the fit."""
    normal = slopes.T @ slopes + leaning**2 * np.eye(len(names))
    spread = INTERVAL * np.sqrt(variance * np.diag(np.linalg.inv(normal)))
    return tuple(
        FittedConstant(
            name,
            rounded(float(value)),
            rounded(float(value * math.exp(-min(wide, 5.0)))),
            rounded(min(MOST.get(name, math.inf), float(value * math.exp(min(wide, 5.0))))),
        )
        for name, value, wide in zip(names, values, spread, strict=True)
    )
