"""Runs a strategy: starts its generations, merges their deltas, cancels losers.

On the token path, a backend's push goes through here into the response writer in one synchronous
call, without await, queue or task. The strategy decides what to do; its timer is kept here.
This is an edge.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from backends.contract import (
    Backend,
    BackendError,
    ContextItem,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Generation,
    Usage,
)
from gateway.run.branch import Branch, Branches, TokenTimes
from gateway.run.branch_starter import BranchStarter, Failover
from gateway.run.client_view import ClientView
from gateway.run.continuation import Continued, Reason, Said, refusal_to_go_on, said_by
from gateway.run.side_reservations import SideReservations
from gateway.run.stall_watch import StallWatch
from gateway.wire.response import ResponseWriter
from gateway.wire.routing import RoutedDelegation
from router.decide.decision import RankedRoute
from router.strategies.actions import Action, CancelBranch, EndRun, Forward, StartBranch
from router.strategies.delegate import Delegate
from router.strategies.machine import Machine
from router.strategies.single import Single
from router.strategies.subtasks import Delegation

MAX_EXPECTED_TOKENS = 1 << 30  # for no expectation
WAKES_US = 900_000  # beyond its limit, for a stalled stream that nobody could go on with

_NOT_STARTED = Single()  # stands for the strategy until the run starts


class RunOutcome(msgspec.Struct, frozen=True):
    """Says how a run ended; `finish` is None if it was stopped from outside."""

    finish: Finish | None
    errors: tuple[BackendError, ...] = ()


class Run:
    """Runs one task's generations. `ended` resolves once; `close` may come at any time."""

    on_failover: Callable[[], None] | None = None
    on_delegations: Callable[[], None] | None = None  # when one changes its state
    # Called with a backend index once no branch needs the task's own reservation there, while
    # others go on.
    on_group_done: Callable[[int], None] | None = None
    _groups_done: frozenset[int] = frozenset()
    _machine: Machine = _NOT_STARTED
    _starter: BranchStarter  # since `start`
    _stalls: StallWatch | None = None  # from `start` to the end
    _is_paused = False
    _delegations: Sequence[Delegation] = ()
    _delegation_states: Sequence[str] = ()  # as last reported
    _task_id = ""
    _num_acting = 0  # depth: a backend that refuses is a finish within a start
    _one_over = False  # whether a branch ended since the last check
    _timer: asyncio.TimerHandle | None = None
    _closed = False
    _silences: tuple[BackendError, ...] = ()  # of branches cancelled for silence

    def __init__(
        self,
        chosen: RankedRoute,
        writer: ResponseWriter,
        clock_us: Callable[[], int],
        reservations: SideReservations | None = None,
        expected_output_tokens: int = MAX_EXPECTED_TOKENS,
        late_words_us: Callable[[str], float | None] = lambda _backend: None,
    ) -> None:
        """Takes `reservations` for branches outside the task's own reservation.

        `late_words_us` says in which time 95 % of a backend's latest answers had words.
        """
        self._chosen = chosen
        self._writer = writer
        self._clock_us = clock_us
        self._reservations = reservations
        self._expected_output_tokens = expected_output_tokens
        self._late_words_us = late_words_us
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[RunOutcome] = self._loop.create_future()
        self.branches = Branches(chosen.backends)
        self.shown = ClientView(self.branches, writer, clock_us)
        self.failovers: list[Failover] = []
        self.continued: list[Continued] = []

    def start(self, backends: Mapping[str, Backend], request: GenerateRequest) -> None:
        """Starts the strategy's first generations; a backend that refuses counts as failed.

        Raises `BackendError` if no backend would start.
        """
        clock_us = self._clock_us
        self._starter = starter = BranchStarter(
            self._chosen,
            self._reservations,
            self._expected_output_tokens,
            clock_us,
            self._late_words_us,
            backends,
            request,
        )
        self._task_id = request.id
        self._writer.source = self
        machine = self._machine = self._chosen.record.machine(self._chosen.options, request)
        if isinstance(machine, Delegate):
            self._delegations = machine.delegations
        now_us = clock_us()
        self._act(machine.start(now_us))
        if self.ended.done():  # backends push later, so this can only be refusals
            finish = self.ended.result().finish
            assert finish is not None
            assert finish.error is not None
            raise finish.error
        self._stalls = StallWatch(self.branches, clock_us, self._on_stall, starter.silence_us)
        self._stalls.begin(now_us)

    def stop(self) -> None:
        """Ends the run for a steer or a cancel; keeps what was pushed so far."""
        self.close()
        if not self.ended.done():
            self.ended.set_result(RunOutcome(None))

    def break_off(self, error: Exception) -> None:
        """Ends the run with an internal error, which `ended` raises."""
        self.close()
        if not self.ended.done():
            self.ended.set_exception(error)

    def close(self) -> None:
        """Cancels all generations synchronously; none starts afterwards."""
        self._closed = True
        if self._stalls is not None or self._timer is not None:
            self._stop_timers()
        self.branches.cancel()

    def release(self) -> None:
        """Breaks reference cycles, so that it is freed at once; call it last, after `close`.

        Otherwise the garbage collector took 8 % of a short task's CPU.
        """
        self.on_failover = self.on_delegations = self.on_group_done = None
        self._writer.source = None
        self.branches.release()
        self.shown.release()

    def pause(self) -> bool:
        """Pauses its generations; returns false if one cannot pause."""
        self._is_paused = True
        if self._stalls is not None:
            self._stalls.pause()
        paused = [generation.pause() for generation in self._generations()]
        return all(paused)

    def resume(self) -> None:
        """Lets its generations go on."""
        self._is_paused = False
        if self._stalls is not None:
            self._stalls.resume()
        for generation in self._generations():
            generation.resume()

    def _generations(self) -> list[Generation]:
        running = (branch for branch in self.branches.values() if branch.usage is None)
        return [branch.generation for branch in running if branch.generation is not None]

    def redirect(self, number: int, items: tuple[ContextItem, ...] | None) -> None:
        """Steers one sub-task, or cancels it (None); harmless if it does not run."""
        if isinstance(self._machine, Delegate) and not self._closed:
            self._act(self._machine.redirect(number, items))

    def delegations(self) -> tuple[RoutedDelegation, ...]:
        """Returns the sub-tasks' states; closing the run cancels those under way."""
        return tuple(
            RoutedDelegation(
                f"{self._task_id}-d{each.number}",
                each.task,
                "cancelled" if self._closed and each.state == "running" else each.state,
            )
            for each in self._delegations
        )

    @property
    def explanation(self) -> str:
        """Says what its strategy has decided, in whole sentences."""
        return self._machine.explanation

    @property
    def running_delegations(self) -> frozenset[int]:
        """Returns the numbers of the running sub-tasks."""
        running = (d.number for d in self._delegations if d.state == "running")
        return frozenset() if self._closed else frozenset(running)

    def on_delta(self, branch: Branch, delta: Delta) -> None:
        if branch.times is None:
            branch.times = TokenTimes(delta.at_us, delta)
        else:
            branch.times.last = delta
        branch.last_at_us = delta.at_us
        branch.num_pieces += 1
        branch.num_streamed_tokens += delta.num_tokens
        if self._machine.transparent:
            if self.shown.first_branch is None:
                self.shown.see_first(branch)
                branch.answers = True
            branch.write = write = self._writer.push
            branch.write_more = write(delta, None)
        else:
            branch.said.append(delta)
            self._act(self._machine.on_delta(branch.number, delta))

    def on_finish(self, branch: Branch, finish: Finish) -> None:
        if branch.usage is not None:
            return  # cancelled before
        if finish.error is not None:
            finish = refusal_to_go_on(branch, finish)
            assert finish.error is not None
            whole = self._whole(branch, finish)
            if whole is None and self._go_on(branch, finish.error, "broke", finish.usage):
                return
            finish = whole or finish
        branch.ended = finish
        branch.over(finish.usage)
        branch.failed = finish.error is not None
        self._one_over = True
        if not self._closed:
            if branch.failed:
                self.shown.end_item_of(branch)  # before others' words
            self._act(self._machine.on_finish(branch.number, finish, self._clock_us()))
            if not self.ended.done():
                self.shown.end_item_of(branch)  # others go on

    def first_words(self) -> list[tuple[str, int]]:
        """Returns how long each backend took to its first words, or was waited for in vain."""
        found: list[tuple[str, int]] = []
        for branch in self.branches.all():
            if self._machine.transparent:
                at_us = self._writer.words_at_us
            else:
                words = (each.at_us for each in branch.said if each.kind is not DeltaKind.REASONING)
                at_us = next(words, branch.gave_way_us)
            was_left = branch.failed and branch.times is None
            if at_us and not (branch.num_continuations or was_left):
                found.append((branch.backend, max(0, at_us - branch.started_us)))
        return found

    def _said(self, branch: Branch) -> Said:
        return said_by(branch, self._writer if self._machine.transparent else None)

    def _whole(self, branch: Branch, finish: Finish) -> Finish | None:
        """Returns the end of an answer that broke off when it was as long as it may be."""
        num_tokens = branch.num_tokens_before + branch.num_streamed_tokens
        if num_tokens < self._starter.max_output_tokens(branch):
            return None
        return Finish(FinishReason.LENGTH, finish.usage, finish.at_us)

    def _go_on(
        self, branch: Branch, error: BackendError, reason: Reason, usage: Usage | None = None
    ) -> bool:
        """Goes on with a branch on another backend, if possible.

        `usage` is of the generation that failed; None: it runs still, and is cancelled.
        """
        said = self._said(branch)
        if self._closed:
            return False
        to = self._starter.replacement(branch, error, said, may_wait=usage is None)
        if to is None:
            return False
        is_of_group = self._starter.is_of_group(to, branch)
        if said.words:
            num_chars = len(said.words)
            self.continued.append(Continued(to, error, num_chars, said.num_tokens, reason))
        else:
            self.failovers.append(Failover(to, error))
        if is_of_group and branch.backend_index < len(self._chosen.backends):
            self.branches.backends[branch.backend_index] = to
        if is_of_group and said.last is None and usage is not None:
            self._starter.start_again(branch, to)
        else:
            branch.failed = True
            if usage is None:
                assert branch.generation is not None
                usage = branch.generation.cancel(is_silent=said.last is None)
            self._succeed(branch, to, said, error, usage, is_of_group=is_of_group)
        if self.on_failover is not None:
            self.on_failover()
        return True

    def _succeed(
        self,
        branch: Branch,
        to: str,
        said: Said,
        error: BackendError,
        usage: Usage,
        *,
        is_of_group: bool,
    ) -> None:
        """Ends a branch, and starts another in its place, which goes on with what it said."""
        successor = Branch(
            self,
            branch.number,
            branch.backend_index if is_of_group else self.branches.index_of(to),
            branch.part,
            branch.own_reservation or not is_of_group,
            to,
            self._clock_us(),
            said=branch.said,
            last_before=said.last,
            num_tokens_before=said.num_tokens if said.words else 0,
            num_continuations=branch.num_continuations + 1,
            broken_by=error,
        )
        self.branches.replace(branch, successor)
        branch.over(usage)
        if self._machine.transparent:
            self.shown.goes_on_at(to)
        self._one_over = True
        self._starter.start(successor, said)
        if self._is_paused and successor.generation is not None:
            successor.generation.pause()

    def _on_stall(self, branch: Branch, silent_us: int, overdue_us: int) -> bool:
        """Goes on with a stalled stream elsewhere, or fails it; false: it may still wake."""
        try:
            is_begun = branch.last_delta is not None
            what = "silent amid its words" if is_begun else "without a first word"
            message = f"{what} for {silent_us / 1e6:.1f} s"
            error = BackendError(branch.backend, "server_error", message, retryable=True)
            if self._go_on(branch, error, "stalled"):
                if self._one_over:
                    self._release_done_groups()
                return True
            if branch.times is None:  # and nobody else can go on
                return not is_begun and self._does_without(branch, error)
            actions = self._machine.on_stall(branch.number)
            self._act(actions)
            if actions or overdue_us < WAKES_US or self._starter.may_call(branch):
                return bool(actions)
            assert branch.generation is not None
            usage = branch.generation.cancel()
            self.on_finish(branch, Finish(FinishReason.ERROR, usage, self._clock_us(), error))
            return True
        except Exception as fault:
            self.break_off(fault)
            return True

    def _does_without(self, branch: Branch, error: BackendError) -> bool:
        """Fails a branch that has said nothing, if its strategy has an answer without it."""
        if not self._machine.does_without(branch.number):
            return False
        assert branch.generation is not None
        usage = branch.generation.cancel(is_silent=True)
        self.on_finish(branch, Finish(FinishReason.ERROR, usage, self._clock_us(), error))
        return True

    def _on_time(self) -> None:
        self._timer = None
        if self._closed:
            return
        try:
            waiting = frozenset(n for n, branch in self.branches.items() if branch.waits)
            self._act(self._machine.on_time(self._clock_us(), waiting))
        except Exception as error:
            self.break_off(error)

    def _act(self, actions: list[Action]) -> None:
        self._num_acting += 1
        for action in actions:
            self._do(action)
        self._num_acting -= 1
        if self._delegations:
            states: list[str] = [delegation.state for delegation in self._delegations]
            before, self._delegation_states = self._delegation_states, states
            if states != before and self.on_delegations is not None:
                self.on_delegations()
        if self._one_over and not (self._num_acting or self.ended.done()):
            self._release_done_groups()

    def _release_done_groups(self) -> None:
        """Reports each group that needs the task's own reservation no more."""
        self._one_over = False
        if self._closed or self.ended.done() or self.on_group_done is None:
            return  # then all of it is released
        own = (branch for branch in self.branches.values() if not branch.own_reservation)
        busy = {branch.backend_index for branch in own if branch.usage is None}
        for index in range(len(self._chosen.backends)):
            if not (index in busy | self._groups_done or self._machine.may_start(index)):
                self._groups_done |= {index}
                self.on_group_done(index)

    def _do(self, action: Action) -> None:
        if isinstance(action, Forward):
            self.shown.forward(action)
        elif isinstance(action, StartBranch):
            index, now_us = action.backend_index, self._clock_us()
            name, own = self.branches.backends[index], action.own_reservation
            branch = Branch(self, action.branch, index, action.part, own, name, now_us)
            self.branches.add(branch)
            self._starter.start(branch)
        elif isinstance(action, EndRun):
            self._stop_timers()
            if not self.ended.done():
                errors = (*self._silences, *action.errors)
                self.ended.set_result(RunOutcome(action.finish, errors))
        elif isinstance(action, CancelBranch):
            self._cancel(self.branches[action.branch], is_silent=action.is_silent)
        else:
            if self._timer is not None:
                self._timer.cancel()
            delay_s = max(0, action.at_us - self._clock_us()) / 1e6
            self._timer = self._loop.call_later(delay_s, self._on_time)

    def _cancel(self, branch: Branch, *, is_silent: bool) -> None:
        if is_silent:
            branch.failed = True
            heard_us = branch.last_at_us if branch.times else branch.started_us
            silent_us = max(0, self._clock_us() - heard_us)
            message = f"silent for {silent_us / 1e6:.0f} s, so the answer goes on without it"
            error = BackendError(branch.backend, "server_error", message, retryable=True)
            self._silences += (error,)
        else:
            branch.gives_way = True
            branch.gave_way_us = self._clock_us()
        branch.cancel()
        self._one_over = True
        if not self.ended.done():
            self.shown.end_item_of(branch)

    def _stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stalls is not None:
            self._stalls.close()
            self._stalls = None
