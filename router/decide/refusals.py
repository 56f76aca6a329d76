"""Words the refusals of tasks that ask for what cannot be, whichever engines are up."""

from collections.abc import Iterable

from router.classify.task import Task
from router.decide.decision import Refusal
from router.policy.policy import AUTO


def no_such_model(model: str, known: Iterable[str]) -> Refusal:
    """Refuses a model that is neither a backend's nor an alias."""
    message = f"The model {model!r} does not exist. Models here: {', '.join(sorted(known))}."
    return Refusal(code="model_not_found", message=message, param="model")


def no_strategy(strategy: str, alone: str) -> Refusal:
    """Refuses a strategy beside a wish for one engine, which `alone` says in words."""
    message = (
        f"The strategy {strategy!r} uses both engines, but {alone} alone. "
        f"Leave one of the two out, or ask for route 'parallel' of model {AUTO!r}."
    )
    return Refusal(code="invalid_value", message=message, param="metadata.strategy")


def no_access(task: Task, target: str, param: str) -> Refusal:
    """Refuses what the tenant has no limits for."""
    message = (
        f"This key's tenant has no access to {target}; "
        f"it may use: {', '.join(sorted(task.tenant.limits)) or 'nothing'}."
    )
    return Refusal(code="insufficient_permissions", message=message, param=param)
