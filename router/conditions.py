"""Conditions of a policy's rules: typed, finite, and cheap; no expressions, so nothing can loop."""

import msgspec

from router.task import Label, Task, TaskClass


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a task. All that are given must hold; a list holds if it has the value."""

    tenants: tuple[str, ...] | None = None
    tiers: tuple[str, ...] | None = None
    labels: tuple[Label, ...] | None = None
    p_deep_from: float | None = None
    p_deep_below: float | None = None
    security_sensitive: bool | None = None
    reasoning_effort: tuple[str, ...] | None = None
    service_tier: tuple[str, ...] | None = None
    context_tokens_from: int | None = None
    context_tokens_below: int | None = None
    turns_from: int | None = None
    deadline_ms_below: int | None = None  # the client gave a deadline, and it is shorter
    has_tools: bool | None = None
    has_images: bool | None = None

    def holds(self, task: Task, task_class: TaskClass) -> bool:
        return self._fits_client(task) and self._fits_work(task, task_class)

    def _fits_client(self, task: Task) -> bool:
        hints = task.hints
        deadline_us = hints.deadline_us
        return (
            _among(self.tenants, task.tenant.id)
            and _among(self.tiers, task.tenant.tier)
            and _among(self.reasoning_effort, hints.reasoning_effort)
            and _among(self.service_tier, hints.service_tier)
            and (
                self.deadline_ms_below is None
                or (deadline_us is not None and deadline_us < self.deadline_ms_below * 1_000)
            )
        )

    def _fits_work(self, task: Task, task_class: TaskClass) -> bool:
        num_tokens = task.request.num_prompt_tokens
        return (
            _among(self.labels, task_class.label)
            and _within(task_class.p_deep, self.p_deep_from, self.p_deep_below)
            and _within(num_tokens, self.context_tokens_from, self.context_tokens_below)
            and _within(task.num_turns, self.turns_from, None)
            and self.security_sensitive in (None, task_class.security_sensitive)
            and self.has_tools in (None, bool(task.request.tools))
            and self.has_images in (None, task.has_images)
        )


def _among(allowed: tuple[str, ...] | None, value: str | None) -> bool:
    return allowed is None or value in allowed


def _within(value: float, low: float | None, below: float | None) -> bool:
    return (low is None or value >= low) and (below is None or value < below)
