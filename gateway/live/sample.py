"""Defines what the console is told of a gateway: one worker's sample, and all workers' together."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from backends.contract import BackendStats
from router.record.recording import DecisionRecord

MAX_DECISIONS = 40  # of one worker, in a sample: what a quarter of a second may bring to a page


class BackendSample(msgspec.Struct, frozen=True, kw_only=True):
    """Samples one backend; its counts of tokens grow from the start of its process."""

    name: str
    group: str
    model: str
    simulated: bool
    healthy: bool
    drained: bool = False
    running: int
    waiting: int
    max_num_seqs: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    generated_tokens: int
    prompt_tokens: int


class WorkerSample(msgspec.Struct, frozen=True, kw_only=True):
    """Samples one process at one instant."""

    at: float  # Unix time
    draining: bool
    pools: str  # redis, or degraded while it is away
    num_gateways: int  # that Redis heard from just now
    keys_current: bool
    keys_lost: bool = False  # Redis came back without them, and this is a copy
    policy: str
    policy_source: str
    shadow: int
    running: int  # tasks
    connections: int
    ended: dict[str, int]  # "route outcome" -> tasks since the start
    backends: list[BackendSample]
    decisions: list[DecisionRecord]  # the latest


def backend_sample(stats: BackendStats) -> BackendSample:
    """Takes of a backend's snapshot what is shown."""
    return BackendSample(
        name=stats.info.name,
        group=stats.info.group,
        model=stats.info.model,
        simulated=stats.info.simulated,
        healthy=stats.healthy and not stats.ejected,
        drained=stats.drained,
        running=stats.num_running,
        waiting=stats.num_waiting,
        max_num_seqs=stats.max_num_seqs,
        kv_used_tokens=stats.kv_used_tokens,
        kv_capacity_tokens=stats.kv_capacity_tokens,
        generated_tokens=stats.num_generated_tokens,
        prompt_tokens=stats.num_prompt_tokens,
    )


class GatewaySample(WorkerSample, frozen=True, kw_only=True):
    """Joins the samples of all workers that answered; the latest decisions come first."""

    workers: int


def together(workers: Sequence[WorkerSample]) -> GatewaySample:
    """Adds up the samples of one gateway's workers, of which there is one at least."""
    newest = max(workers, key=lambda worker: worker.at)
    ended: Counter[str] = Counter()
    for worker in workers:
        ended.update(worker.ended)
    decisions = [record for worker in workers for record in worker.decisions]
    return GatewaySample(
        at=newest.at,
        workers=len(workers),
        draining=all(worker.draining for worker in workers),
        pools=next((each.pools for each in workers if each.pools != "redis"), "redis"),
        num_gateways=max(worker.num_gateways for worker in workers),
        keys_current=all(worker.keys_current for worker in workers),
        keys_lost=any(worker.keys_lost for worker in workers),
        policy=newest.policy,
        policy_source=newest.policy_source,
        shadow=newest.shadow,
        running=sum(worker.running for worker in workers),
        connections=sum(worker.connections for worker in workers),
        ended=dict(ended),
        backends=_backends([worker.backends for worker in workers]),
        decisions=sorted(decisions, key=lambda record: record.at, reverse=True)[:MAX_DECISIONS],
    )


def _backends(of_workers: Sequence[list[BackendSample]]) -> list[BackendSample]:
    """Joins what workers say of each backend.

    Workers share an engine over links, and each of them sees its whole load; an upstream's load is
    what this worker sent. The larger figure is right for the one and a lower bound for the other.
    """
    found: dict[str, BackendSample] = {}
    for backends in of_workers:
        for each in backends:
            known = found.get(each.name)
            found[each.name] = each if known is None else _joined(known, each)
    return list(found.values())


def _joined(a: BackendSample, b: BackendSample) -> BackendSample:
    return msgspec.structs.replace(
        a,
        healthy=a.healthy and b.healthy,
        drained=a.drained or b.drained,
        running=max(a.running, b.running),
        waiting=max(a.waiting, b.waiting),
        kv_used_tokens=max(a.kv_used_tokens, b.kv_used_tokens),
        generated_tokens=max(a.generated_tokens, b.generated_tokens),
        prompt_tokens=max(a.prompt_tokens, b.prompt_tokens),
    )


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Is one instant of the charts."""

    at: float
    tokens_per_s: Mapping[str, float]  # by backend
    tasks_per_s: Mapping[str, float]  # by route
    running: int


def point_between(before: GatewaySample, now: GatewaySample) -> Point:
    """Returns the rates between two samples; a process that began anew counts from nothing."""
    seconds = max(now.at - before.at, 1e-3)
    generated = {each.name: each.generated_tokens for each in before.backends}
    tasks: Counter[str] = Counter()
    for name, num_ended in now.ended.items():
        tasks[name.partition(" ")[0]] += max(0, num_ended - before.ended.get(name, 0))
    return Point(
        at=now.at,
        tokens_per_s={
            each.name: round(max(0, each.generated_tokens - generated.get(each.name, 0)) / seconds)
            for each in now.backends
        },
        tasks_per_s={route: round(number / seconds, 2) for route, number in tasks.items()},
        running=now.running,
    )
