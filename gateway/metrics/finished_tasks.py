"""Counts tasks that have ended: by route, outcome, model and tenant.

A task hands over one record, and the next look at the event loop's lag or the next scrape counts it
with the others, so that none of it is on a task's way. What cannot be counted is logged.
This is an edge.
"""

import logging
from collections import deque
from collections.abc import Mapping

import msgspec

from backends.contract import Usage
from gateway.metrics import labels
from gateway.metrics.busiest import BusiestTenants
from gateway.metrics.counters import Counters
from router.classify.task import Route
from router.record.recording import TaskOutcome

logger = logging.getLogger("lanewise")

MAX_WAITING = 4_096  # records; then they are counted at once


class FinishedTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Describes a task that ended."""

    tenant_id: str
    route: Route | None  # None: it was refused
    ended: TaskOutcome
    usage_by_model: Mapping[str, Usage]  # cancelled backends' included
    first_model: str | None = None  # the model whose token came first, if any did
    arm: labels.Arm | None = None  # whether a canary took it, or left it for its control
    wanted: Route | None = None  # where a refused one was to run


class FinishedTasks:
    """Gathers tasks, and counts them when asked."""

    def __init__(self, counters: Counters, tenants: BusiestTenants) -> None:
        self._counters = counters
        self._tenants = tenants
        self._waiting: deque[FinishedTask] = deque()

    def add(self, task: FinishedTask) -> None:
        """Takes a task that ended."""
        self._waiting.append(task)
        if len(self._waiting) >= MAX_WAITING:
            self.count()

    def count(self) -> None:
        """Counts what was gathered; a record that cannot be counted is logged."""
        while self._waiting:
            try:
                self._count(self._waiting.popleft())
            except Exception:  # others wait for nothing
                logger.exception("a task that has ended is not counted")

    def _count(self, task: FinishedTask) -> None:
        counts, histograms = self._counters.counts, self._counters.histograms
        where, ended, first_model = task.route or "none", task.ended, task.first_model
        outcome = ended.outcome
        counts["lanewise_tasks_running"][()].value -= 1
        counts["lanewise_requests_total"][where, outcome].value += 1
        duration_s = ended.duration_us / 1e6
        histograms["lanewise_request_duration_seconds"][where, outcome].observe(duration_s)
        if first_model is not None and ended.ttft_us is not None:
            histograms["lanewise_ttft_seconds"][where, first_model].observe(ended.ttft_us / 1e6)
        if first_model is not None and ended.tpot_us is not None:
            tpot = histograms["lanewise_time_per_output_token_seconds"]
            tpot[where, first_model].observe(ended.tpot_us / 1e6)
        num_tokens = 0
        tokens = counts["lanewise_tokens_total"]
        for model, usage in task.usage_by_model.items():
            tokens[where, model, "input"].value += usage.num_input_tokens
            tokens[where, model, "cached_input"].value += usage.num_cached_tokens
            tokens[where, model, "output"].value += usage.num_output_tokens
            tokens[where, model, "reasoning"].value += usage.num_reasoning_tokens
            num_tokens += usage.num_input_tokens + usage.num_output_tokens
        tenant = self._tenants.label(task.tenant_id, num_tokens)
        counts["lanewise_tenant_tokens_total"][tenant, where].value += num_tokens
        if outcome == "rate_limited":
            counts["lanewise_tenant_rejected_total"][tenant, task.wanted or where].inc()
        if task.arm is not None:
            self._count_arm(task, task.arm)

    def _count_arm(self, task: FinishedTask, arm: labels.Arm) -> None:
        counts, histograms = self._counters.counts, self._counters.histograms
        counts["lanewise_canary_tasks_total"][arm, task.ended.outcome].inc()
        tokens = counts["lanewise_canary_tokens_total"]
        for usage in task.usage_by_model.values():
            tokens[arm, "input"].inc(usage.num_input_tokens)
            tokens[arm, "output"].inc(usage.num_output_tokens)
        if task.ended.ttft_us is not None:
            ttft = histograms["lanewise_canary_ttft_seconds"]
            ttft[(arm,)].observe(task.ended.ttft_us / 1e6)
