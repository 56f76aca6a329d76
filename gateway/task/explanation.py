"""Explains where a prompt would go: every rule, and why it fires or not."""

from collections.abc import Iterator, Sequence

import msgspec

from backends.contract import BackendStats
from router.classify.task import Task
from router.decide.decision import RankedRoute, Reason, Refusal
from router.decide.ranking import classify_and_rank
from router.policy.conditions import Situation
from router.policy.policy import Policy
from router.policy.rules import RuleTrace, trace_rules

# These decide before the rules do.
_WITHOUT_RULES = (Reason.SECURITY, Reason.HINT, Reason.MODEL)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a decision that was not taken, with all its reasons."""

    policy_version: str
    tenant: str
    label: str
    kind: str | None  # of work, by the prompt's words
    p_deep: float
    p_security: float
    signals: tuple[str, ...]
    rules: tuple[RuleTrace, ...]
    rules_asked: bool  # false: a hint, a pinned model or the security rule came before them
    routes: tuple[RankedRoute, ...]  # best first; which of them is taken is up to the pools
    refusal: Refusal | None = None
    text: tuple[str, ...] = ()  # all of it in sentences

    def lines(self) -> list[str]:
        """Writes the explanation as sentences."""
        signals = "; ".join(self.signals) or "none"
        lines = [
            f"Class: {self.label}; p_deep {self.p_deep:.2f}, p_security {self.p_security:.2f}.",
            f"Signals: {signals}. Kind of work: {self.kind or 'none named'}.",
            f"Rules of policy {self.policy_version} for tenant {self.tenant}:",
        ]
        for rule in self.rules:
            verdict = "fires" if rule.fired else "no: " + "; ".join(rule.why)
            lines.append(f"  {rule.name}: {verdict}")
        if not self.rules:
            lines.append("  (none)")
        if not self.rules_asked:
            lines.append("The rules were not asked: what is said below comes before them.")
        for position, route in enumerate(self.routes, start=1):
            how = f", {route.strategy}" if route.strategy else ""
            lines.append(f"{position}. {route.route.value}{how} [{route.reason.value}] {route.why}")
        if self.refusal is not None:
            lines.append(f"Refused ({self.refusal.code}): {self.refusal.message}")
        return lines


def explain_task(policy: Policy, task: Task, stats: Sequence[BackendStats]) -> Explanation:
    """Decides a task by a policy, without pools and without the tenant's learned outcomes."""
    policy = policy.for_tenant(task.tenant.id)
    task_class, ranked = classify_and_rank(policy, task, stats)
    situation = Situation(task, task_class, stats)
    routes = () if isinstance(ranked, Refusal) else tuple(_with_all_options(policy, ranked))
    # An alias is the policy's, but no rule.
    asked = not routes or routes[0].rule is not None or routes[0].reason not in _WITHOUT_RULES
    explanation = Explanation(
        policy_version=policy.version,
        tenant=task.tenant.id,
        label=task_class.by_words,
        kind=situation.kind,
        p_deep=task_class.p_deep,
        p_security=task_class.p_security,
        signals=task_class.signals,
        rules=tuple(trace_rules(policy, situation)),
        rules_asked=asked,
        routes=routes,
        refusal=ranked if isinstance(ranked, Refusal) else None,
    )
    return msgspec.structs.replace(explanation, text=tuple(explanation.lines()))


def _with_all_options(policy: Policy, ranked: Sequence[RankedRoute]) -> Iterator[RankedRoute]:
    """Shows the options of every strategy with each route, its own as they would be used."""
    for route in ranked:
        known = msgspec.structs.asdict(policy.strategies)
        own = msgspec.structs.asdict(route.options)
        seen = {name: own.get(name, value) for name, value in known.items()}
        options = msgspec.structs.replace(policy.strategies, **seen)
        yield msgspec.structs.replace(route, options=options)
