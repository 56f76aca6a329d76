"""Decides a log's tasks again, from the facts that each decision saw, and counts the same."""

from collections.abc import Mapping

import msgspec

from backends.contract import BackendInfo, BackendStats
from router.backtest.arrivals import Arrival
from router.classify.task import Tenant
from router.decide.backend_speed import BackendSpeed, BackendSpeeds
from router.decide.continuity import conversation_state
from router.decide.decision import Reason, Refusal
from router.decide.ranking import rank
from router.decide.weighing import Facts, weigh
from router.policy.policy import Policy
from router.record.recording import DecisionRecord
from router.record.seen import SeenRecord


class Redecided(msgspec.Struct):
    """Counts decisions."""

    num_tasks: int = 0
    num_same: int = 0

    @property
    def share(self) -> float | None:
        """Returns the share that came out the same; None if no line has the facts."""
        return self.num_same / self.num_tasks if self.num_tasks else None


class Redecider:
    """Decides again what a policy of the log's has decided."""

    def __init__(self, policy: Policy, infos: Mapping[str, BackendInfo]) -> None:
        self._policy = policy
        self._infos = infos
        self.found = Redecided()

    def take(self, record: DecisionRecord, arrival: Arrival) -> None:
        """Decides one record's task again, if its policy is this one and its facts are there."""
        seen = record.seen
        if seen is None or not seen.engines or not record.ranked or not record.limits:
            return
        if record.policy != self._policy.version:
            return
        if any(engine.name not in self._infos for engine in seen.engines):
            return
        self.found.num_tasks += 1
        self.found.num_same += self._is_same(record, arrival, seen)

    def _is_same(self, record: DecisionRecord, arrival: Arrival, seen: SeenRecord) -> bool:
        tenant = Tenant(id=record.tenant, tier=record.tier, limits=record.limits)
        context = record.context
        also_held = {} if context is None else context.also_held
        task = arrival.task(tenant, arrival.at_us, arrival.last_backend, also_held)
        policy = self._policy.for_tenant(tenant.id)
        stats, speeds = stats_of(seen, self._infos), speeds_of(seen)
        facts = Facts(
            conversation=conversation_state(task, stats),
            gain_correction=seen.gain_correction,
            num_outcomes=seen.outcomes,
            explicit=seen.explicit,
            shares_left=seen.pools_left,
            backend_speeds=speeds,
            alarms=seen.drift,
        )
        task_class = arrival.task_class(policy.band)
        task_class = weigh(policy.tradeoff, policy.band, task, task_class, stats, facts)
        ranked = rank(policy, task, task_class, stats)
        if isinstance(ranked, Refusal):
            return False
        logged = record.ranked[0]
        # Routes of a group without capacity are left out of a log: what was tried next comes first.
        tried = ranked if logged.reason == Reason.FALLBACK else ranked[:1]
        return (logged.route, logged.strategy, logged.backends) in [
            (each.route.value, each.strategy, each.backends) for each in tried
        ]


def stats_of(seen: SeenRecord, infos: Mapping[str, BackendInfo]) -> list[BackendStats]:
    """Returns the backends as a decision saw them."""
    return [
        BackendStats(
            info=infos[engine.name],
            healthy=engine.healthy,
            num_running=engine.running,
            num_waiting=engine.waiting,
            max_num_seqs=engine.max_num_seqs,
            kv_used_tokens=engine.kv_used_tokens,
            kv_capacity_tokens=engine.kv_capacity_tokens,
        )
        for engine in seen.engines
    ]


def speeds_of(seen: SeenRecord) -> BackendSpeeds:
    """Returns the backends' speeds as a decision saw them."""
    speeds = BackendSpeeds()
    for engine in seen.engines:
        if engine.samples:
            speed = BackendSpeed(
                engine.ttft_us,
                engine.tpot_us,
                engine.quick_ttft_us,
                engine.quick_tpot_us,
                engine.samples,
            )
            speeds.remember(engine.name, speed)
    return speeds
