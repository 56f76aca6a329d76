"""Run a strategy: start the generations it wants, merge what they push, cancel losers.

The token path: a backend's push runs through here into the response writer in one synchronous
call, with no await, queue or task between. What to do is the strategy's decision; its timer, and
nothing else, is kept here.

An edge: it uses the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from backends.contract import (
    NO_USAGE,
    Backend,
    BackendError,
    ContextItem,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from gateway.run.branch import Branch, Branches, TokenTimes
from gateway.run.side_reservations import SideReservation, SideReservations
from gateway.wire.errors import ProtocolError
from gateway.wire.response import ResponseWriter
from gateway.wire.routing import RoutedDelegation
from router.decide.decision import RankedRoute
from router.decide.failover import replacement
from router.strategies.actions import (
    Action,
    CancelBranch,
    EndRun,
    Forward,
    Machine,
    StartBranch,
    WakeAt,
)
from router.strategies.delegate import Delegate
from router.strategies.items import PATIENCE_US
from router.strategies.part_requests import branch_request, shows_commentary
from router.strategies.single import Single
from router.strategies.subtasks import Subtask

MAX_EXPECTED_TOKENS = 1 << 30  # where nothing is expected: what may be generated


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run ended: `finish` is None where it was stopped from outside."""

    finish: Finish | None
    errors: tuple[BackendError, ...] = ()


class Failover(msgspec.Struct, frozen=True):
    """A backend failed before its first token, and another took its place."""

    to: str
    error: BackendError  # names the one that failed


class Run:
    """One task's generations. `ended` resolves once; `close` may be called at any time."""

    def __init__(
        self,
        chosen: RankedRoute,
        writer: ResponseWriter,
        clock_us: Callable[[], int],
        apart: SideReservations | None = None,
        expected_output_tokens: int = MAX_EXPECTED_TOKENS,
    ) -> None:
        """`apart` reserves for branches that the task's own reservation is not for."""
        self._expected_output_tokens = expected_output_tokens
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[RunOutcome] = self._loop.create_future()
        self.first: TokenTimes | None = None  # of the branch whose token the client saw first
        self.answerer = len(chosen.backends) - 1  # whose words came last: the answer's
        self._clock_us = clock_us
        self._writer = writer
        self._chosen = chosen
        self._failed: set[str] = set()  # backends that did not begin
        self._names = list(chosen.backends)  # as failovers have left them
        self._answered_by: str | None = None
        self.failovers: list[Failover] = []
        self.on_failover: Callable[[], None] | None = None
        self._apart = apart
        self._machine: Machine = Single()
        self._shows_commentary = True
        self._hidden: list[Forward] = []  # commentary that is not shown
        self._delegate: Delegate | None = None
        self._delegations: list[str] = []  # their states, as last told of
        self.on_delegations: Callable[[], None] | None = None  # called when one changes its state
        # Called with a place of the route when nothing runs there any more, and nothing will, that
        # the task's own reservation is for.
        self.on_through: Callable[[int], None] | None = None
        self._through: set[int] = set()
        self._one_over = False  # a branch, since the last look
        self._silences: tuple[BackendError, ...] = ()  # of branches that were given up
        self._num_acting = 0  # depth: a backend that refuses is a finish within a start
        self.branches = Branches()
        self._first_branch: Branch | None = None
        self._speaker: Branch | None = None  # whose item is open
        self._has_text = False  # the client has seen words
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._used: dict[str, Usage] | None = None  # by backend, once nothing is added to it
        self._backends: Mapping[str, Backend] = {}
        self._request: GenerateRequest | None = None

    def start(self, backends: Mapping[str, Backend], request: GenerateRequest) -> None:
        """Start what the strategy begins with; a backend that refuses counts as failed.

        Raises:
            BackendError: None would start.
        """
        self._backends = backends
        self._request = request
        self._shows_commentary = shows_commentary(request)
        self._machine = self._chosen.record.machine(self._chosen.options, request)
        if isinstance(self._machine, Delegate):
            self._delegate = self._machine
        self._act(self._machine.start(self._clock_us()))
        if self.ended.done():  # backends push later, so this can only be refusals
            finish = self.ended.result().finish
            assert finish is not None
            assert finish.error is not None
            raise finish.error

    def stop(self) -> None:
        """End from outside: a steer or a cancel. What was pushed so far stays."""
        self.close()
        if not self.ended.done():
            self.ended.set_result(RunOutcome(None))

    def break_off(self, error: Exception) -> None:
        """End for a fault of ours; whoever waits for the end gets it."""
        self.close()
        if not self.ended.done():
            self.ended.set_exception(error)

    def close(self) -> None:
        """Cancel whatever still generates, at once and synchronously; nothing begins after it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for branch in self.branches.values():
            branch.cancel()

    def let_go(self) -> None:
        """Drop what holds it and is held by it, once all is known; call it last, after `close`.

        What a task leaves is then freed at once. Otherwise it waits for the garbage collector,
        which took 8 % of a short task's CPU to find it.
        """
        self.on_failover = self.on_delegations = self.on_through = None
        for branch in self.branches.values():
            branch.generation = None
        self.branches.clear()
        self._first_branch = self._speaker = None

    @property
    def backends(self) -> tuple[str, ...]:
        """The route's backends, as failovers have left them."""
        return tuple(self._names)

    @property
    def first_backend(self) -> str | None:
        """Whose token the client saw first."""
        return self._first_branch.backend if self._first_branch else None

    @property
    def answered_by(self) -> str:
        """The backend whose words came last: the answer's."""
        return self._answered_by or self._names[self.answerer]

    def usage_by_backend(self) -> Mapping[str, Usage]:
        """`usages` by name: of the route's backends, and of others that worked in their places."""
        if self._used is not None:
            return self._used
        used = dict.fromkeys(self._names, NO_USAGE)
        for branch in self.branches.values():
            spent = branch.usage or NO_USAGE
            used[branch.backend] = used.get(branch.backend, NO_USAGE) + spent
        if self._closed:
            self._used = used
        return used

    @property
    def usages(self) -> list[Usage]:
        """What was used in each place of the route; whole after `close`."""
        totals = [NO_USAGE] * len(self._chosen.backends)
        for branch in self.branches.values():
            totals[branch.backend_index] += branch.usage or NO_USAGE
        return totals

    def own_usages(self) -> list[Usage]:
        """What was used so far of the task's own reservation, in each place of the route.

        Without the branches that have one of their own. What is cached is known of what has ended.
        """
        totals = [NO_USAGE] * len(self._chosen.backends)
        for branch in self.branches.values():
            if not branch.own_reservation:
                totals[branch.backend_index] += branch.usage_so_far()
        return totals

    @property
    def first_tpot_us(self) -> float | None:
        """Mean time between the tokens of the branch that was seen first."""
        branch = self._first_branch
        if branch is None or branch.pace is None:
            return None
        return branch.pace.tpot_us(branch.usage or Usage())

    # -- sub-tasks -------------------------------------------------------------------------

    def redirect(self, number: int, items: tuple[ContextItem, ...] | None) -> None:
        """Steer one sub-task, or cancel it (None); harmless where it does not run."""
        if self._delegate is None or self._closed:
            return
        if items is None:
            self._act(self._delegate.cancel_delegation(number))
        else:
            self._act(self._delegate.steer_delegation(number, items))

    def delegations(self) -> tuple[RoutedDelegation, ...]:
        """The sub-tasks and how they stand."""
        if self._delegate is None or self._request is None:
            return ()
        return tuple(
            RoutedDelegation(
                f"{self._request.id}-d{each.number}",
                each.task,
                # Whoever stops the run stops them all, and the strategy is asked no more.
                "cancelled" if self._closed and each.state == "running" else each.state,
            )
            for each in self._delegate.delegations
        )

    @property
    def running_delegations(self) -> frozenset[int]:
        """The numbers of the sub-tasks under way."""
        if self._delegate is None or self._closed:
            return frozenset()
        return frozenset(d.number for d in self._delegate.delegations if d.state == "running")

    def _tell_of_delegations(self, delegate: Delegate) -> None:
        states: list[str] = [delegation.state for delegation in delegate.delegations]
        if states != self._delegations:
            self._delegations = states
            if self.on_delegations is not None:
                self.on_delegations()

    # -- what engines push -----------------------------------------------------------------

    def on_delta(self, branch: Branch, delta: Delta) -> None:
        pace = branch.pace
        if pace is None:
            branch.pace = pace = TokenTimes(branch.backend_index, delta.at_us, delta.at_us)
        pace.last_at_us = delta.at_us
        branch.num_streamed_tokens += delta.num_tokens
        if self._machine.transparent:
            if self.first is None:
                self._see(branch)
            self._writer.push(delta, None)
        else:
            self._act(self._machine.on_delta(branch.number, delta))

    def on_finish(self, branch: Branch, finish: Finish) -> None:
        if branch.usage is not None:
            return  # cancelled: what comes too late counts no more
        if finish.error is not None and self._fail_over(branch, finish.error):
            return
        branch.over(finish.usage)
        branch.failed = finish.error is not None
        self._one_over = True
        if not self._closed:
            self._act(self._machine.on_finish(branch.number, finish, self._clock_us()))
            self._end_item_of(branch)

    def _fail_over(self, branch: Branch, error: BackendError) -> bool:
        """Begin a branch again elsewhere, if it can be; what the failed one used is not charged."""
        never_began = branch.own_reservation and branch.reservation is None  # the pools refused it
        place = branch.backend_index
        if self._closed or never_began or place >= len(self._chosen.spares):
            return False
        self._failed.add(branch.backend)
        name = replacement(
            self._chosen.spares[place],
            self._failed,
            error,
            has_tokens=branch.pace is not None,
            healthy=lambda name: self._backends[name].stats().healthy,
        )
        if name is None:
            return False
        self.failovers.append(Failover(name, error))
        self._names[place] = branch.backend = name
        branch.generation = None
        branch.started_us = self._clock_us()
        self._start_branch(branch, self._backends[name], self._asked(branch))
        if self.on_failover is not None:
            self.on_failover()
        return True

    def _see(self, branch: Branch) -> None:
        """The client gets its first token, from this branch."""
        self._first_branch = branch
        self.first = branch.pace
        if self.first is not None:
            self.first.seen_us = self._clock_us()

    def _show_hidden(self) -> None:
        """What was to be improved stands after all: show one such, as the answer."""
        whole = (f.branch for f in self._hidden if self.branches[f.branch].state == "finished")
        number = next(whole, None)
        for hidden in self._hidden:
            if hidden.branch == number:
                branch = self.branches[hidden.branch]
                if self.first is None:
                    self._see(branch)
                self._answers(branch)
                self._writer.push(hidden.delta, "final_answer")

    def _answers(self, branch: Branch) -> None:
        self.answerer, self._answered_by = branch.backend_index, branch.backend

    def _end_item_of(self, branch: Branch) -> None:
        """Close the item in hand if it is a branch's that says no more, while others go on."""
        if self._speaker is branch and not self.ended.done():
            self._speaker = None
            self._writer.end_item()

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
        if self._delegate is not None:
            self._tell_of_delegations(self._delegate)
        if self._one_over and not self._num_acting:
            self._one_over = False
            self._look_through()

    def _give_up(self, branch: Branch) -> None:
        """A branch of which nothing was heard is cancelled, and has failed."""
        branch.failed = True
        message = f"silent for {PATIENCE_US // 1_000_000} s, so the answer goes on without it"
        self._silences += (BackendError(branch.backend, "server_error", message, retryable=True),)

    def _look_through(self) -> None:
        """Tell of the places that it is through with, while others go on."""
        if self._closed or self.ended.done() or self.on_through is None:
            return  # then all of it is given back
        own = (branch for branch in self.branches.values() if not branch.own_reservation)
        busy = {branch.backend_index for branch in own if branch.usage is None}
        for place in range(len(self._names)):
            if place in busy or place in self._through or self._machine.may_start(place):
                continue
            self._through.add(place)
            self.on_through(place)

    def _do(self, action: Action) -> None:
        if isinstance(action, Forward):
            if action.phase == "commentary" and not self._shows_commentary:
                self._hidden.append(action)
                return
            branch = self.branches[action.branch]
            if self.first is None:
                self._see(branch)
            self._speaker = branch
            self._answers(branch)
            self._has_text = self._has_text or action.phase is not None
            self._writer.push(action.delta, action.phase)
        elif isinstance(action, StartBranch):
            self._start(action)
        elif isinstance(action, CancelBranch):
            branch = self.branches[action.branch]
            if action.is_silent:
                self._give_up(branch)
            else:
                branch.gives_way = True
            branch.cancel()
            self._one_over = True
            self._end_item_of(branch)
        elif isinstance(action, WakeAt):
            self._set_timer(action.at_us)
        else:
            self._end(action)

    def _start(self, start: StartBranch) -> None:
        name = self._names[start.backend_index]
        backend = self._backends[name]
        branch = self.branches[start.branch] = Branch(self, start, name, self._clock_us())
        asked = self._asked(branch)
        if start.own_reservation:
            self._reserve(branch, backend, asked)
        else:
            self._start_branch(branch, backend, asked)

    def _asked(self, branch: Branch) -> GenerateRequest:
        """What the branch's backend is asked."""
        assert self._request is not None
        info = self._backends[branch.backend].info
        alone = len(self._names) == 1
        asked = branch_request(self._request, branch.number, branch.part, info, alone=alone)
        branch.num_prompt_tokens = asked.num_prompt_tokens
        return asked

    def _start_branch(self, branch: Branch, backend: Backend, asked: GenerateRequest) -> None:
        try:
            branch.generation = backend.start(asked, branch)
        except BackendError as error:
            self._refuse(branch, error)

    def _refuse(self, branch: Branch, error: BackendError) -> None:
        self.on_finish(branch, Finish(FinishReason.ERROR, Usage(), self._clock_us(), error))

    def _reserve(self, branch: Branch, backend: Backend, asked: GenerateRequest) -> None:
        """Start it once it has its own reservation; the rest of the response goes on meanwhile."""
        assert self._apart is not None

        def granted(reservation: SideReservation) -> None:
            if branch.usage is not None:  # cancelled in the meantime
                reservation.settle(Usage())
                return
            branch.reservation = reservation
            branch.started_us = self._clock_us()
            try:
                self._start_branch(branch, backend, asked)
            except Exception as error:
                self.break_off(error)

        def refused(error: ProtocolError) -> None:
            if branch.usage is None:
                name = backend.info.name
                branch.finish(
                    Finish(
                        FinishReason.ERROR,
                        Usage(),
                        self._clock_us(),
                        BackendError(name, error.code, error.message, retryable=True),
                    )
                )

        branch.pending = self._apart.take(
            asked.id,
            backend.info.group,
            Usage(asked.num_prompt_tokens, 0, self._expected_tokens(branch, asked)),
            branch.usage_so_far,
            granted,
            refused,
        )

    def _expected_tokens(self, branch: Branch, asked: GenerateRequest) -> int:
        """What a branch is likely to say: as the task's own reservation is made."""
        if isinstance(branch.part, Subtask):
            return asked.max_output_tokens  # nothing is known of it
        return min(asked.max_output_tokens, self._expected_output_tokens)

    def _set_timer(self, at_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, at_us - self._clock_us()) / 1e6
        self._timer = self._loop.call_later(delay_s, self._on_time)

    def _end(self, end: EndRun) -> None:
        if self._hidden and end.finish.error is None and not self._has_text:
            self._show_hidden()
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(RunOutcome(end.finish, (*self._silences, *end.errors)))
