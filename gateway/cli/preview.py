"""Where a prompt would go, and why, without running it: `lanewise route`.

An edge: it uses the event loop and the clock.
"""

import asyncio
import time
from typing import Any

import msgspec

from backends.contract import BackendStats, ContextItem
from gateway.config.config import Config
from gateway.config.sections import ConfigError
from gateway.process.app import load_policy, make_backends
from gateway.task.routing import decided_routing
from gateway.transport.ids import new_id
from gateway.wire.events import CreateBody
from gateway.wire.requests import make_task, parse_create
from router.classify.classify import classify, features
from router.classify.task import Task, Tenant
from router.decide.admission import decide, demands, explain
from router.decide.decision import Refusal, RouteDecision
from router.decide.ranking import rank
from router.decide.weighing import weigh
from router.policy.policy import Policy
from router.pools.pools import MemoryPools


def preview(
    config: Config, prompt: str, *, model: str = "auto", tenant_id: str | None = None
) -> tuple[list[str], dict[str, Any]]:
    """The decision in sentences, and as an object; with idle engines and full pools.

    Raises:
        ConfigError: The tenant is unknown, or the policy cannot be read.
    """
    tenant = find_tenant(config, tenant_id)
    parsed = parse_create(CreateBody(model=model, input=prompt), f"resp_{new_id()}")
    items = tuple(item for item in parsed.input.items if isinstance(item, ContextItem))
    task = make_task(
        parsed, items, tenant, last_backend=None, arrived_us=0, arrived_unix_s=time.time()
    )
    return asyncio.run(_decide(config, load_policy(config.policy_path), tenant, task))


def find_tenant(config: Config, tenant_id: str | None) -> Tenant:
    """The tenant of this id; without one, the first.

    Raises:
        ConfigError: There is none.
    """
    tenants = {tenant.id: tenant.tenant(config.tiers) for tenant in config.tenants}
    tenant = tenants.get(tenant_id) if tenant_id else next(iter(tenants.values()))
    if tenant is None:
        raise ConfigError(f"--tenant {tenant_id!r}: expected one of {', '.join(tenants)}")
    return tenant


async def idle_stats(config: Config) -> list[BackendStats]:
    """The configured backends as they are when all are up and nothing runs."""
    backends = make_backends(config.backends)
    try:
        stats = [backend.stats() for backend in backends.values()]
    finally:
        for backend in backends.values():
            await backend.close()
    return [msgspec.structs.replace(one, healthy=True) for one in stats]


async def _decide(
    config: Config, policy: Policy, tenant: Tenant, task: Task
) -> tuple[list[str], dict[str, Any]]:
    policy = policy.for_tenant(tenant.id)
    stats = await idle_stats(config)
    task_class = classify(features(task), policy.band)
    task_class = weigh(policy.tradeoff, policy.band, task, task_class, stats)
    ranked = rank(policy, task, task_class, stats)
    if isinstance(ranked, Refusal):
        return [f"Refused ({ranked.code}): {ranked.message}"], msgspec.to_builtins(ranked)
    asked = demands(task, task_class, ranked)
    grant = MemoryPools().reserve_first(tenant, task.id, asked, now_us=0)
    decision: RouteDecision = decide(task, task_class, ranked, grant, policy)
    infos = {stat.info.name: stat.info for stat in stats}
    return explain(decision), msgspec.to_builtins(decided_routing(task, decision, infos))
