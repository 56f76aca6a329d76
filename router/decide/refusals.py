"""Finds what keeps a task from a backend, and words the refusals of tasks that none can serve."""

from collections.abc import Iterable, Sequence

from backends.contract import BackendStats
from backends.prompt import overflow_words
from router.classify.durations import LEAST_WAIT_US, in_words
from router.classify.task import Task
from router.decide.decision import Reason, Refusal
from router.policy.policy import AUTO


def obstacle_to(stats: BackendStats, task: Task, least_tokens: int) -> Reason | None:
    """Returns what keeps the task from this backend; `FALLBACK`: that it takes none now.

    `least_tokens` are those of the prompt, and those that its window must have room for besides.
    """
    info = stats.info
    if info.group not in task.tenant.limits:
        return Reason.ACCESS
    if task.has_images and not info.accepts_images:
        return Reason.IMAGES
    if task.has_files and not info.accepts_files:
        return Reason.IMAGES
    if least_tokens > info.window_tokens:
        return Reason.WINDOW
    if not stats.takes_tasks:
        return Reason.FALLBACK
    return None


def unserved(task: Task, served: Sequence[BackendStats], target: str, cause: str) -> Refusal:
    """Refuses a task that none of these backends, which `target` says in words, can serve."""
    obstacles = [obstacle_to(each, task, task.max_prompt_tokens + 1) for each in served]
    if Reason.FALLBACK not in obstacles and Reason.WINDOW in obstacles:
        fitting = [s for s, o in zip(served, obstacles, strict=True) if o is Reason.WINDOW]
        window_tokens = max(s.info.window_tokens for s in fitting)
        words = overflow_words(task.max_prompt_tokens, window_tokens)
        message = f"{words} That is the window of {target}; another model's may be larger."
        return Refusal(code="context_length_exceeded", message=message, param="input")
    if Reason.FALLBACK not in obstacles and Reason.IMAGES in obstacles:
        kind = "Files" if task.has_files else "Images"
        message = f"{kind} cannot be taken by {target}; send text only, or ask for another model."
        return Refusal(code="invalid_value", message=message, param="input")
    if obstacles and all(obstacle is Reason.ACCESS for obstacle in obstacles):
        return no_access(task, target, "model")
    out = [s for s, o in zip(served, obstacles, strict=True) if o is Reason.FALLBACK]
    in_use = [s for s in out if not s.drained]
    if in_use and all(s.out_for == "limit" for s in in_use):
        wait_us = min(s.out_us for s in in_use)
        message = (
            f"{cause}, but {target} is at its server's rate limit. "
            f"Please try again in {in_words(wait_us)}."
        )
        return Refusal(code="rate_limit_exceeded", message=message, retry_after_us=wait_us)
    wait_us = max(LEAST_WAIT_US, min((s.out_us for s in out), default=0))
    message = (
        f"{cause}, but {target} is down at the moment. Please try again in {in_words(wait_us)}."
    )
    return Refusal(code="server_is_overloaded", message=message, retry_after_us=wait_us)


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
