"""Knows the generations of a run: each one's part, tokens, usage and end. This is an edge."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from backends.contract import (
    NO_USAGE,
    BackendError,
    Delta,
    Finish,
    FinishReason,
    Generation,
    More,
    Usage,
)
from gateway.run.side_reservations import PendingReservation, Settle
from gateway.wire.routing import RoutedGeneration, RoutedVariations
from router.strategies.breadth import Vary
from router.strategies.part_requests import TaskPart
from router.strategies.subtasks import Subtask

logger = logging.getLogger("lanewise")

WriteMore = Callable[[str], None]
Write = Callable[[Delta, str | None], WriteMore | None]


class Listener(Protocol):
    """Is the run of a branch; exceptions of `on_delta` and `on_finish` go to `break_off`."""

    def on_delta(self, branch: "Branch", delta: Delta) -> None: ...

    def on_finish(self, branch: "Branch", finish: Finish) -> None: ...

    def break_off(self, error: Exception) -> None: ...


class TokenTimes(msgspec.Struct, gc=False):
    """Times a branch's first token, by its engine's clock, and holds its latest delta."""

    first_at_us: int
    last: Delta  # but for text that only went on with it
    seen_us: int = 0  # by the gateway's clock


class Branch(msgspec.Struct, eq=False):
    """Is one generation of a run, and takes its backend's deltas."""

    run: Listener
    number: int
    backend_index: int
    part: TaskPart
    own_reservation: bool
    backend: str  # changes with a failover
    started_us: int
    generation: Generation | None = None  # None: not started, or refused
    pending: PendingReservation | None = None  # its own, until it is decided
    ended: Finish | None = None  # as its engine ended it
    settle: Settle | None = None  # its own reservation, once it has that
    usage: Usage | None = None  # once it is over
    tpot_us: float | None = None  # then: the mean time between its tokens, if it has two
    times: TokenTimes | None = None  # once it has a token
    num_prompt_tokens: int = 0
    num_streamed_tokens: int = 0
    num_pieces: int = 0  # that they came in, of a token or more each
    last_at_us: int = 0  # the time of the last of them, by its engine's clock
    cancelled: bool = False
    failed: bool = False
    gives_way: bool = False  # cancelled by its strategy, not from outside
    gave_way_us: int = 0  # then
    said: list[Delta] = []  # unless its deltas go straight to the client
    # Of an answer that broke off elsewhere:
    last_before: Delta | None = None
    num_tokens_before: int = 0
    num_continuations: int = 0
    broken_by: BackendError | None = None
    answers: bool = False  # some of its words are the answer
    is_shown: bool = False  # something of it is, its reasoning maybe
    # Takes its deltas as they come, once its run has seen the first; None: its run takes them.
    write: Write | None = None
    write_more: WriteMore | None = None  # takes text that only goes on with the latest delta

    def push(self, delta: Delta) -> More | None:
        try:
            times = self.times
            if self.write is None or times is None:
                self.run.on_delta(self, delta)
            else:
                times.last = delta
                self.last_at_us = delta.at_us
                self.num_pieces += 1
                self.num_streamed_tokens += delta.num_tokens
                self.write_more = self.write(delta, None)
        except Exception as error:  # must not reach the engine
            self.run.break_off(error)
        return None if self.write_more is None else self.more

    def more(self, text: str, num_tokens: int, at_us: int) -> None:
        try:
            self.last_at_us = at_us
            self.num_pieces += 1
            self.num_streamed_tokens += num_tokens
            assert self.write_more is not None
            self.write_more(text)
        except Exception as error:
            self.run.break_off(error)

    def finish(self, finish: Finish) -> None:
        try:
            self.run.on_finish(self, finish)
        except Exception as error:
            self.run.break_off(error)

    def fail(self, error: BackendError, at_us: int) -> None:
        """Ends the generation with an error of its backend or of the pools."""
        self.finish(Finish(FinishReason.ERROR, NO_USAGE, at_us, error))

    def cancel(self) -> None:
        """Cancels the generation; harmless once it is over, and whatever its backend does."""
        if self.usage is not None:
            return
        self.cancelled = True
        try:
            usage = Usage() if self.generation is None else self.generation.cancel()
        except Exception:  # what it holds is given back, and others are cancelled
            logger.exception("%s failed to cancel a generation", self.backend)
            usage = self.usage_so_far()
        self.over(usage)

    def over(self, usage: Usage) -> None:
        """Notes its final usage, and settles its own reservation."""
        self.usage, times = usage, self.times
        num_tokens = usage.num_output_tokens - usage.num_rejected_tokens
        if times is not None and num_tokens >= 2:
            self.tpot_us = (self.last_at_us - times.first_at_us) / (num_tokens - 1)
        if self.settle is not None:
            self.settle(self.backend, usage)
        elif self.pending is not None:
            self.pending.withdraw()

    def usage_so_far(self) -> Usage:
        """Returns its usage so far; the cached part is known once it has ended."""
        return self.usage or Usage(
            num_input_tokens=self.num_prompt_tokens, num_output_tokens=self.num_streamed_tokens
        )

    def context_read_tokens(self, context_tokens: int) -> int:
        """Returns its input as its engine counts it, without what its part added to the context."""
        usage = self.usage or NO_USAGE
        if self.num_prompt_tokens <= context_tokens:
            return usage.num_input_tokens
        return -(-usage.num_input_tokens * context_tokens // self.num_prompt_tokens)

    @property
    def last_delta(self) -> Delta | None:
        """Returns the latest delta of the answer, whichever generation said it."""
        return self.last_before if self.times is None else self.times.last

    @property
    def waits(self) -> bool:
        """Says whether its own reservation is still pending."""
        return self.own_reservation and self.settle is None and self.usage is None

    @property
    def state(self) -> str:
        if self.failed:
            return "failed"
        if self.cancelled:
            return "cancelled"
        return "running" if self.usage is None else "finished"


class Branches(dict[int, Branch]):
    """Holds the branches of a run by number, in the order they started."""

    def __init__(self, backends: Sequence[str]) -> None:
        super().__init__()
        self.backends = list(backends)  # of the route, after failovers, and those that joined it
        self.past: list[Branch] = []  # that broke off, and that another goes on with
        self._all: list[Branch] = []  # those first, and then the others
        self.final_usage: Mapping[str, Usage] | None = None  # by backend, once all is over

    def add(self, branch: Branch) -> None:
        """Takes a branch with a number of its own, before it starts."""
        self[branch.number] = branch
        self._all.append(branch)

    def all(self) -> Sequence[Branch]:
        """Returns every generation, those that broke off included."""
        return self._all

    def replace(self, branch: Branch, successor: Branch) -> None:
        """Puts a branch in the place of another, which is over."""
        self.past.append(branch)
        self[branch.number] = successor
        self._all = [*self.past, *self.values()]

    def release(self) -> None:
        """Drops the branches, which refer to their run, and what their engines would write to."""
        for branch in self._all:
            branch.generation = branch.write = branch.write_more = None
        self.clear()
        self.past, self._all = [], []

    def index_of(self, backend: str) -> int:
        """Returns a backend's index, which is a new one if it joins."""
        if backend not in self.backends:
            self.backends.append(backend)
        return self.backends.index(backend)

    def cancel(self) -> None:
        """Cancels all branches; harmless when repeated."""
        for branch in self.values():
            if branch.usage is None:
                branch.cancel()
        self.final_usage = self.usage_by_backend()

    def own_usages(self) -> list[Usage]:
        """Returns the usage so far of the task's own reservation, by backend index."""
        totals = [NO_USAGE] * len(self.backends)
        for branch in self._all:
            if not branch.own_reservation:
                index, usage = branch.backend_index, branch.usage or branch.usage_so_far()
                before = totals[index]
                totals[index] = usage if before is NO_USAGE else before + usage
        return totals

    def own_by_backend(self) -> list[tuple[str, Usage]]:
        """Returns the usage so far of the task's own reservation, by the backends that served."""
        return [
            (branch.backend, branch.usage_so_far())
            for branch in self._all
            if not branch.own_reservation
        ]

    def used(self) -> list[tuple[str, Usage]]:
        """Returns each generation's usage with its backend; complete after `cancel`."""
        return [(branch.backend, branch.usage or NO_USAGE) for branch in self._all]

    def usage_by_backend(self) -> Mapping[str, Usage]:
        """Returns the usage by backend, those that failed over included."""
        if self.final_usage is not None:
            return self.final_usage
        used = dict.fromkeys(self.backends, NO_USAGE)
        for branch in self._all:
            before, usage = used.get(branch.backend, NO_USAGE), branch.usage or NO_USAGE
            used[branch.backend] = usage if before is NO_USAGE else before + usage
        return used

    def answer_usage(self, context_tokens: int) -> Usage:
        """Returns the conversation's usage: the context once, and what its answer generated.

        `context_tokens` is the size of the task's prompt, which a strategy's parts add to.
        Predicted tokens that were rejected are no words of the answer: only the bill has them.
        """
        answering = self._answering()
        if not answering:  # nothing of the answer has come
            return Usage(num_input_tokens=context_tokens if self else 0)
        latest = answering[-1].usage or NO_USAGE
        if len(answering) == 1 and answering[0].num_prompt_tokens <= context_tokens:
            num_in_cache = latest.num_cached_tokens + latest.num_cache_write_tokens
            if num_in_cache <= latest.num_input_tokens and not latest.num_rejected_tokens:
                return latest  # as most often
        usage = sum([branch.usage or NO_USAGE for branch in answering], NO_USAGE)
        num_input_tokens = max([each.context_read_tokens(context_tokens) for each in answering])
        num_cached_tokens = min(usage.num_cached_tokens, num_input_tokens)
        return msgspec.structs.replace(
            usage,
            num_input_tokens=num_input_tokens,
            num_cached_tokens=num_cached_tokens,
            num_cache_write_tokens=min(
                usage.num_cache_write_tokens, num_input_tokens - num_cached_tokens
            ),
            num_output_tokens=usage.num_output_tokens - usage.num_rejected_tokens,
            service_tier=latest.service_tier,
        )

    def _answering(self) -> list[Branch]:
        """Returns the generations that the answer is of, those that broke off in it included.

        What an engine only reasoned, and another answered, is none of them.
        """
        if len(self) == 1 and not self.past:  # as most often
            only = next(iter(self.values()))
            return [only] if only.answers or only.is_shown or only.part.is_sent else []
        running = list(self.values())
        heard = [each for each in running if each.answers]
        heard = heard or [each for each in running if each.is_shown]
        if not heard and len(self) == 1:  # no word of it has come yet
            heard = [each for each in running if each.part.is_sent]
        if not self.past:
            return heard
        went_on = {each.number for each in heard if each.num_tokens_before}
        return [each for each in self.past if each.answers or each.number in went_on] + heard

    def timings(self) -> list[tuple[str, int, float]]:
        """Returns backend, TTFT and TPOT of each finished generation."""
        found: list[tuple[str, int, float]] = []
        for branch in self.values():
            times, tpot_us = branch.times, branch.tpot_us
            if times is None or tpot_us is None or branch.failed or branch.cancelled:
                continue  # it has no such times, or is not finished
            ttft_us = max(0, times.first_at_us - branch.started_us)
            found.append((branch.backend, ttft_us, tpot_us))
        return found

    def generations(self) -> tuple[RoutedGeneration, ...]:
        """Returns the state of each branch, for `routing`."""
        return tuple(
            RoutedGeneration(
                branch.backend,
                branch.part.name,
                branch.state,
                usage.num_input_tokens,
                usage.num_cached_tokens,
                usage.num_output_tokens,
                usage.num_reasoning_tokens,
            )
            for branch in self._all
            for usage in [branch.usage or NO_USAGE]
        )

    def wasted(self) -> Iterator[tuple[int, Usage]]:
        """Yields backend index and usage of each branch that lost, except sub-tasks.

        A sub-task was redirected by its client, and its text stays in the context.
        """
        for branch in self.values():
            if branch.gives_way and not isinstance(branch.part, Subtask):
                yield branch.backend_index, branch.usage or Usage()

    def variations(self) -> RoutedVariations:
        """Counts the variations that started and finished."""
        rows = [branch for branch in self.values() if isinstance(branch.part, Vary)]
        whole = sum(branch.state == "finished" for branch in rows)
        return RoutedVariations(len(rows), whole)
