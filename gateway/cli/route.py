"""`lanewise route` says where prompts would go with idle engines and full pools, and why.

This is an edge.
"""

import argparse
import asyncio
import os
import sys
import time
from typing import Any

import msgspec

from backends.contract import BackendStats, ContextItem
from gateway.cli.command import Command, argument, one_of
from gateway.cli.output import show
from gateway.config.config import Config, load_config, read_config
from gateway.config.policy_file import load_policy
from gateway.config.sections import ConfigError
from gateway.core.backends import Backends
from gateway.task.routing import decided_routing
from gateway.transport.ids import new_id
from gateway.wire.events import CreateBody
from gateway.wire.requests import make_task, parse_create
from router.classify.task import Hints, Task, Tenant
from router.decide.admission import decide, demands, explain
from router.decide.decision import Refusal
from router.decide.ranking import classify_and_rank
from router.pools.memory_pools import MemoryPools
from router.record.batch import Desk, decide_lines


def _route(arguments: argparse.Namespace) -> int:
    name = arguments.config or "configuration"
    config = load_config(read_config(arguments.config), os.environ, name=name)
    tenant = _find_tenant(config, arguments.tenant)
    if arguments.batch is not None:
        return _route_batch(config, arguments.batch, tenant, arguments.model)
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    parsed = parse_create(CreateBody(model=arguments.model, input=prompt), f"resp_{new_id()}")
    items = tuple(item for item in parsed.input.items if isinstance(item, ContextItem))
    task = make_task(
        parsed, items, tenant, last_backend=None, arrived_us=0, arrived_unix_s=time.time()
    )
    lines, decision = asyncio.run(_decide(config, tenant, task))
    return show(arguments, decision, "\n".join(lines), 0 if "route" in decision else 1)


def _find_tenant(config: Config, tenant_id: str | None) -> Tenant:
    """Finds the tenant; without an id, the first."""
    tenants = {tenant.id: tenant.tenant(config.tiers) for tenant in config.tenants}
    tenant = tenants.get(tenant_id) if tenant_id else next(iter(tenants.values()))
    if tenant is None:
        raise ConfigError(f"--tenant {tenant_id!r}: expected one of {', '.join(tenants)}")
    return tenant


async def _idle_stats(config: Config) -> list[BackendStats]:
    """Returns the configured backends' stats as if all were up and idle."""
    backends = Backends(config.backends)
    try:
        stats = [backend.stats() for backend in backends.values()]
    finally:
        await backends.close()
    return [msgspec.structs.replace(one, healthy=True) for one in stats]


async def _decide(config: Config, tenant: Tenant, task: Task) -> tuple[list[str], dict[str, Any]]:
    """Returns the decision in sentences, and as an object."""
    policy = load_policy(config).for_tenant(tenant.id)
    stats = await _idle_stats(config)
    task_class, ranked = classify_and_rank(policy, task, stats)
    if isinstance(ranked, Refusal):
        return [f"Refused ({ranked.code}): {ranked.message}"], msgspec.to_builtins(ranked)
    asked = demands(task, task_class, ranked)
    grant = MemoryPools().reserve_first(tenant, task.id, asked, now_us=0)
    decision = decide(task, task_class, ranked, grant, policy)
    infos = {stat.info.name: stat.info for stat in stats}
    return explain(decision), msgspec.to_builtins(decided_routing(task, decision, infos))


def _route_batch(config: Config, path: str, tenant: Tenant, model: str) -> int:
    """Decides every line of a JSONL file (`-`: standard input) to standard output.

    Returns 1 if there is no ask among them, as where it is another file.
    """
    num_lines = num_errors = 0
    desk = Desk(
        policy=load_policy(config),
        tenant=tenant,
        stats=asyncio.run(_idle_stats(config)),
        hints=Hints(model=model),
        unix_s=time.time(),
    )
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as lines:
            for decision in decide_lines(lines, desk, time.perf_counter_ns):
                sys.stdout.buffer.write(decision + b"\n")
                num_lines += 1
                num_errors += b',"error":' in decision  # a text's own quotes are escaped
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(f"--batch {path}: {error.strerror}") from error
    sys.stdout.buffer.flush()
    if num_errors or not num_lines:
        said = f"{num_errors} of {num_lines} lines got an error" if num_lines else "no line"
        print(f"--batch {path}: {said}", file=sys.stderr)
    return int(0 < num_lines == num_errors)


COMMAND = Command(
    'lanewise route "Find the race condition in our lock manager"',
    (
        one_of(
            argument("prompt", nargs="?", help="the prompt; - reads it from standard input"),
            argument(
                "--batch", metavar="FILE", help='JSONL of {"id", "text"}, or -: one decision a line'
            ),
            required=True,
        ),
        argument("--config", metavar="FILE", help="TOML; without it, development defaults"),
        argument("--model", default="auto", help="a model id (default: auto)"),
        argument("--tenant", help="decide for this tenant (default: the first)"),
        argument("--json", action="store_true", help="print the decision as JSON"),
    ),
    run=_route,
)
