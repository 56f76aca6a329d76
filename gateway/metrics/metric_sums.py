"""The metrics of several workers as those of one gateway.

Counters and histograms add up, those of workers that ended included: a sum that fell would read as
a restart. Gauges are of workers that live; each says below whether they add up or whether every
worker sees the same thing. Series are bounded by what each worker bounds, times their number.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

Labels = tuple[tuple[str, str], ...]
Rule = Literal["sum", "max", "min"]


class Family(msgspec.Struct, array_like=True):
    """One metric as a worker has it: samples by name and sorted labels."""

    name: str
    kind: str  # counter, gauge, histogram or info
    text: str
    samples: dict[str, list[tuple[Labels, float]]]


Snapshot = list[Family]

# What all workers see alike, as it is told by Redis or by an engine that they share. Others add up.
_SEEN_ALIKE: dict[str, Rule] = {
    "lanewise_gateways": "max",
    "lanewise_policy_version": "max",
    "lanewise_ratelimit_degraded": "max",
    "lanewise_ledger_entries": "max",
    "lanewise_learning_tenants": "max",
    "lanewise_learning_distance": "max",
    "lanewise_drift_alarms": "max",
    "lanewise_drift_psi": "max",
    "lanewise_backend_up": "min",  # down for one is down
    "lanewise_backend_ejected": "max",
    "lanewise_backend_kv_usage_ratio": "max",
    "vllm:kv_cache_usage_perc": "max",
    "process_start_time_seconds": "min",
    "process_max_fds": "min",
    "python_info": "max",
    "lanewise_build": "max",
}
# An engine behind a link tells each worker its own totals; an upstream's are counted by each.
_OF_ENGINES = frozenset(
    {
        *("lanewise_backend_inflight", "lanewise_backend_waiting", "lanewise_backend_max_seqs"),
        *("vllm:num_requests_running", "vllm:num_requests_waiting"),
        *("vllm:prompt_tokens", "vllm:generation_tokens"),
        *("vllm:prefix_cache_queries", "vllm:prefix_cache_hits"),
    }
)


def rule_of(family: str, labels: Labels, linked: Collection[str]) -> Rule:
    """How values of several workers become one. `linked`: names of backends behind a link."""
    if family in _OF_ENGINES:
        backend = next((value for name, value in labels if name in ("backend", "engine")), "")
        return "max" if backend in linked else "sum"
    return _SEEN_ALIKE.get(family, "sum")


def merged(snapshots: Sequence[Snapshot], linked: Collection[str]) -> Snapshot:
    """One snapshot for all of them. A series' time of creation is that of the oldest."""
    families: dict[str, Family] = {}
    found: dict[tuple[str, str], dict[Labels, list[float]]] = {}
    for family in (family for snapshot in snapshots for family in snapshot):
        families.setdefault(family.name, Family(family.name, family.kind, family.text, {}))
        for name, samples in family.samples.items():
            values = found.setdefault((family.name, name), {})
            for labels, value in samples:
                values.setdefault(labels, []).append(value)
    for (family_name, name), values in found.items():
        families[family_name].samples[name] = [
            (labels, _one(each, "min" if name.endswith("_created") else rule))
            for labels, each in values.items()
            for rule in (rule_of(family_name, labels, linked),)
        ]
    return list(families.values())


def _one(values: list[float], rule: Rule) -> float:
    if rule == "sum":
        return sum(values)
    return max(values) if rule == "max" else min(values)


def lasting(snapshot: Iterable[Family], linked: Collection[str]) -> Snapshot:
    """What of a worker's metrics outlives it: counts of its own, and no gauges."""
    kept: Snapshot = []
    for family in snapshot:
        if family.kind not in ("counter", "histogram"):
            continue
        samples = {
            name: [
                (labels, value)
                for labels, value in series
                if rule_of(family.name, labels, linked) == "sum"
            ]
            for name, series in family.samples.items()
        }
        kept.append(Family(family.name, family.kind, family.text, samples))
    return kept
