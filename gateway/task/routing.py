"""The `routing` field of a response: where it ran and why, for people and consoles."""

from collections.abc import Mapping
from typing import Any

from backends.contract import BackendInfo, Usage
from gateway.wire.context_usage import context_view
from gateway.wire.response_json import usage_json
from router.classify.task import Task
from router.decide.decision import RouteDecision


def routing_view(
    task: Task, decision: RouteDecision, backends: Mapping[str, BackendInfo]
) -> dict[str, Any]:
    """A decision as an object; standard clients ignore the field."""
    chosen = decision.chosen
    assert chosen is not None
    infos = [backends[name] for name in chosen.backends]
    task_class = decision.task_class
    view: dict[str, Any] = {
        "route": chosen.route,
        "strategy": chosen.strategy,
        "backends": [
            {
                "name": info.name,
                "group": info.group,
                "model": info.model,
                "simulated": info.simulated,
            }
            for info in infos
        ],
        "class": {
            "label": task_class.label,
            "p_deep": round(task_class.p_deep, 4),
            "p_security": round(task_class.p_security, 4),
            "signals": task_class.signals,
        },
        "reason": chosen.reason,
        "why": chosen.why,
        "policy_version": decision.policy_version,
        "pools": [
            {
                "group": balance.group,
                "unit": balance.unit,
                "limit": balance.limit,
                "remaining": balance.remaining,
                "reset_s": balance.reset_us / 1e6,
            }
            for balance in decision.balances
            if balance.group in chosen.route.groups
        ],
        "ratelimit_mode": decision.mode,
        "context": context_view(task, 0, min([info.window_tokens for info in infos])),
    }
    if task.last_backend is not None and task.last_backend not in chosen.backends:
        view["moved_from"] = task.last_backend
    return view


def ended_view(view: Mapping[str, Any], task: Task, usages: Mapping[str, Usage]) -> dict[str, Any]:
    """The same once it is over and what each backend used is known."""
    num_output = max([usage.num_output_tokens for usage in usages.values()], default=0)
    return {
        **view,
        "context": context_view(task, num_output, view["context"]["window_tokens"]),
        "usage": {name: usage_json(usage) for name, usage in usages.items()},
    }
