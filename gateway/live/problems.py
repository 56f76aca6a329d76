"""Decides what counts as wrong on the console: one table, from a sample to words and what to do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from gateway.live.sample import GatewaySample

GATEWAY_REMEMBERED_S = 600.0  # how long one that is gone is missed

Severity = Literal["bad", "warn"]


class StandingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Says that something is wrong, since when, and what to do."""

    name: str  # of the condition, with what it is about
    severity: Severity
    since: float  # Unix time at which it was first seen
    is_older: bool  # it was there when watching began
    words: str
    todo: str
    runbook: str  # in docs/


@dataclass(frozen=True)
class Condition:
    """Is one thing that may be wrong; `find` yields what it is about, and the words for it."""

    name: str
    severity: Severity
    find: Callable[["Expected", GatewaySample], Iterator[tuple[str, str]]]
    todo: str
    runbook: str


class Expected(msgspec.Struct, frozen=True):
    """Says how many there should be."""

    workers: int = 1
    gateways: int = 1


def _redis(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.pools != "redis":
        yield "", "Redis does not answer: this gateway limits tasks by itself."


def _engines(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    for each in now.backends:
        if not each.healthy and not each.drained:
            yield each.name, f"The backend {each.name} does not answer."


def _drained(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    for each in now.backends:
        if each.drained:
            yield each.name, f"{each.name} is drained: it gets no new tasks, {each.running} run."


def _full(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    for each in now.backends:
        if each.waiting and each.max_num_seqs and each.running >= each.max_num_seqs:
            words = f"{each.name} is full: {each.running} run, {each.waiting} wait for a place."
            yield each.name, words


def _workers(expected: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.workers < expected.workers:
        yield "", f"{now.workers} of {expected.workers} workers answer."


def _gateways(expected: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.pools == "redis" and now.num_gateways < expected.gateways:
        yield "", f"{now.num_gateways} of {expected.gateways} gateways on this Redis are alive."


def _draining(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.draining:
        yield "", "This gateway drains: it takes no new tasks."


def _keys(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if not now.keys_current:
        yield (
            "",
            "Keys cannot be read from Redis: those made at run time get 503 or a copy's answer.",
        )


def _lost(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.keys_lost:
        yield "", "Redis has lost the keys, tenants and tiers made at run time: a copy holds."


def _policy(_: Expected, now: GatewaySample) -> Iterator[tuple[str, str]]:
    if now.policy_source == "last_good":
        yield "", f"The policy store cannot be read: {now.policy} holds, the last good one."


CONDITIONS = (
    Condition(
        "redis_away",
        "bad",
        _redis,
        "See whether Redis runs and answers from this host; limits hold per gateway meanwhile.",
        "operations.md#without-redis",
    ),
    Condition(
        "engine_away",
        "bad",
        _engines,
        "See the engine's own log. Tasks go to the other engines of its group, or are refused.",
        "operations.md",
    ),
    Condition(
        "worker_missing",
        "bad",
        _workers,
        "The supervisor starts it again; its log says why it ended.",
        "operations.md#start-and-stop",
    ),
    Condition(
        "gateway_gone",
        "bad",
        _gateways,
        "Start it again; if it was taken out on purpose, this goes after ten minutes.",
        "operations.md#start-and-stop",
    ),
    Condition(
        "keys_stale", "bad", _keys, "See whether Redis answers.", "operations.md#without-redis"
    ),
    Condition(
        "keys_lost",
        "bad",
        _lost,
        "Restore Redis; make none before, since the first that is made anew ends the copy.",
        "tenants.md#when-redis-is-away",
    ),
    Condition("policy_last_good", "warn", _policy, "See whether Redis answers.", "policies.md"),
    Condition(
        "engine_full",
        "warn",
        _full,
        "Add an engine, or lower the limits of who sends so much.",
        "operations.md",
    ),
    Condition(
        "engine_drained",
        "warn",
        _drained,
        "An admin took it out: lanewise backends resume NAME lets it have tasks again.",
        "operations.md#taking-a-backend-out",
    ),
    Condition(
        "draining", "warn", _draining, "It was told to stop; start another.", "operations.md"
    ),
)


class ProblemWatch:
    """Remembers since when each problem stands, and how many gateways there were."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, bool]] = {}
        self._seen: list[tuple[float, int]] = []  # (until when it counts, gateways)
        self._began = False

    def problems(self, num_workers: int, now: GatewaySample) -> list[StandingProblem]:
        """Returns what is wrong, the worst first and then the oldest."""
        expected = Expected(workers=num_workers, gateways=self._gateways(now))
        found: list[StandingProblem] = []
        since: dict[str, tuple[float, bool]] = {}
        for condition in CONDITIONS:
            for subject, words in condition.find(expected, now):
                name = f"{condition.name} {subject}".strip()
                since[name] = self._since.get(name, (now.at, not self._began))
                found.append(
                    StandingProblem(
                        name=name,
                        severity=condition.severity,
                        since=since[name][0],
                        is_older=since[name][1],
                        words=words,
                        todo=condition.todo,
                        runbook=condition.runbook,
                    )
                )
        self._since, self._began = since, True
        return sorted(found, key=lambda problem: (problem.severity, problem.since))

    def _gateways(self, now: GatewaySample) -> int:
        """Returns the most gateways that were alive lately; one entry for each number seen."""
        alive = {number: until for until, number in self._seen if until > now.at}
        if now.pools == "redis":
            alive[now.num_gateways] = now.at + GATEWAY_REMEMBERED_S
        self._seen = [(until, number) for number, until in alive.items()]
        return max(alive, default=1)
