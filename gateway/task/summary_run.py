"""Runs the compaction before one answer, on an engine of the task's own route.

It runs under the task's reservation, and its usage is settled with the task. This is an edge.
"""

import msgspec

from backends.contract import BackendError, Compaction, FinishReason, Message, Usage
from backends.prompt import overflow_words, parts_text
from gateway.core.gateway import Gateway
from gateway.metrics.labels import CompactionKind, CompactionOutcome
from gateway.run.dispatch import Run
from gateway.wire.compaction import Plan, Skipped, compacted_task, folded_of, opened_item
from gateway.wire.errors import ProtocolError
from gateway.wire.output_items import usage_by_name
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending, unheard
from gateway.wire.routing import CompactionState, RoutedCompaction
from router.classify.task import Route, Task
from router.decide.decision import RankedRoute

STOPPED = "it was stopped"


class SummaryRun:
    """Runs one compaction. `close` may be called at any time, and ends the generation."""

    def __init__(
        self, gw: Gateway, chosen: RankedRoute, parsed: ParsedCreate, plan: Plan | Skipped
    ) -> None:
        """Prepares the compaction; a skipped one only reports itself."""
        self.plan = plan
        self.error: str | None = None  # why there is no summary
        self.item: Compaction | None = None  # once it is made
        self._gw = gw
        self._parsed = parsed
        self._index = chosen.record.prepared_by
        self._num_tokens_after: int | None = None
        self._is_counted = False
        self._said = unheard(parsed)
        self._run = Run(_alone(chosen, self._index), self._said, gw.clock_us)
        self.stop = self._run.stop  # ends it from outside

    def start(self) -> None:
        """Starts the generation; if no backend takes it, `compact` fails."""
        if not isinstance(self.plan, Plan) or self.plan.request is None:
            return
        try:
            self._run.start(self._gw.backends, self.plan.request)
        except BackendError as error:
            self._run.stop()
            self.error = str(error)
            self._gw.metrics.failed(error)

    async def compact(self, task: Task) -> tuple[Task, Compaction] | None:
        """Returns the task with its compacted context, and the compaction, which is `item` then.

        Returns None if it failed or was stopped.
        """
        assert isinstance(self.plan, Plan)
        summary = await self._summary() if self.plan.request is not None else ""
        if summary is None:
            return None
        folded = folded_of(self.plan, summary)
        item = Compaction(
            self._gw.seals.seal(task.tenant.id, folded),
            f"cmp_{self._parsed.id.removeprefix('resp_')}{0:04x}",
        )
        self.item = opened_item(item, folded)
        compacted = compacted_task(task, self.plan, self.item)
        self._num_tokens_after = compacted.request.num_prompt_tokens
        return compacted, self.item

    async def _summary(self) -> str | None:
        if self.error is not None:
            return None
        outcome = await self._run.ended
        finish = outcome.finish
        if finish is None:
            self.error = STOPPED
            return None
        if finish.error is not None:
            self.error = str(finish.error)
            self._gw.metrics.failed(finish.error)
            return None
        self._said.close_items(Ending(status="completed", usage=finish.usage))
        messages = (item for item in self._said.output if isinstance(item, Message))
        text = "\n".join(parts_text(message.content) for message in messages).strip()
        # A summary that reached its limit is still used.
        if not text or finish.reason is FinishReason.CONTENT_FILTER:
            self.error = (
                f"backend {self._run.shown.answered_by} gave no summary ({finish.reason.value})"
            )
            return None
        return text

    def check_fits(self, task: Task, backends: tuple[str, ...]) -> None:
        """Checks that the context fits without a compaction.

        Raises `ProtocolError` if it does not fit.
        """
        infos = self._gw.infos
        num_tokens = task.request.num_prompt_tokens
        window_tokens = min(infos[name].window_tokens for name in backends)
        if num_tokens >= window_tokens:
            message = (
                f"{overflow_words(num_tokens, window_tokens)} Its compaction for "
                f"{' and '.join(backends)} failed: {self.error}."
            )
            raise ProtocolError("context_length_exceeded", message, param="input")

    def close(self) -> None:
        """Cancels the generation, and counts the outcome once."""
        self._run.close()
        if self._is_counted:
            return
        self._is_counted = True
        kind: CompactionKind = "automatic" if self._parsed.answers else "requested"
        self._gw.metrics.counts["lanewise_compactions_total"][kind, self._outcome()].inc()
        if self._num_tokens_after is not None:
            tokens = self._gw.metrics.histograms["lanewise_compaction_tokens"]
            tokens[kind, "before"].observe(self.plan.num_tokens)
            tokens[kind, "after"].observe(self._num_tokens_after)

    def added_to(self, usages: list[Usage]) -> list[Usage]:
        """Adds its usage so far to the route's `usages`."""
        usages[self._index] += self._run.branches.own_usages()[0]
        return usages

    def usage_by_backend(self) -> dict[str, Usage]:
        """Returns the usage of the backends that worked for it."""
        used = self._run.branches.usage_by_backend()
        return {name: usage for name, usage in used.items() if usage != Usage()}

    def used(self) -> list[tuple[str, Usage]]:
        """Returns each generation's usage with its backend; complete after `close`."""
        return self._run.branches.used()

    def view(self) -> RoutedCompaction:
        """Builds the current `routing.compaction`."""
        return RoutedCompaction(
            state=self._state(),
            number=self.plan.number,
            max_per_conversation=self._gw.max_compactions,
            threshold_tokens=self.plan.threshold_tokens,
            tokens_before=self.plan.num_tokens,
            tokens_after=self._num_tokens_after,
            error=self.error,
            usage=usage_by_name(self.usage_by_backend()) or None,
        )

    def _outcome(self) -> CompactionOutcome:
        if isinstance(self.plan, Skipped):
            return self.plan.state
        if self.item is not None:
            return "done"
        return "failed" if self.error not in (None, STOPPED) else "stopped"

    def _state(self) -> CompactionState:
        if isinstance(self.plan, Skipped):
            return self.plan.state
        if self.error is not None:
            return "failed"
        return "running" if self.item is None else "done"


def _alone(chosen: RankedRoute, index: int) -> RankedRoute:
    """Returns one backend of a route, with its spares, as a route."""
    return msgspec.structs.replace(
        chosen,
        route=Route(chosen.route.groups[index]),
        backends=(chosen.backends[index],),
        strategy=None,
        spares=chosen.spares[index : index + 1],
    )
