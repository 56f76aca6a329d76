"""Runs one task's strategy in virtual time: the same machines as in production, driven by a heap.

It is the twin of the gateway's `PlayedRun`, which drives them on asyncio.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from backends.contract import (
    NO_USAGE,
    BackendError,
    BackendGroup,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from backends.delegation import DELEGATE_TOOL
from router.backtest.branch import PlayedBranch
from router.backtest.engines import RACE_TICK_US, WATCH_TICK_US, EngineClock
from router.backtest.lengths import Guess
from router.classify.task import Task
from router.decide.decision import RankedRoute, Reason
from router.decide.failover import MAX_CONTINUATIONS, replacement
from router.strategies.actions import Action, CancelBranch, Forward, StartBranch, WakeAt
from router.strategies.machine import Machine
from router.strategies.part_requests import TaskPart, WholeAnswer, branch_request
from router.strategies.subtasks import Subtask
from router.strategies.verify import AskVerdict, OneOfMany
from wafer_engine.batching.sequence import Sequence as EngineSequence

_WHOLE = WholeAnswer()


class RunWorld(Protocol):
    """Offers what a run needs of the simulation around it."""

    now_us: int
    engines: dict[str, EngineClock]

    def at(self, time_us: int, call: Callable[[], None]) -> None: ...

    def reserve_part(self, run: "PlayedRun", branch: PlayedBranch, expected: Usage) -> None: ...

    def settle_part(self, branch: PlayedBranch) -> None: ...

    def group_done(self, run: "PlayedRun", group: BackendGroup) -> None: ...

    def run_over(self, run: "PlayedRun", finish: Finish | None) -> None: ...


class PlayedRun:
    """Holds the generations of one task. It ends once, with `RunWorld.run_over`."""

    __slots__ = (
        "_competes",
        "_failed",
        "_groups_done",
        "_guess",
        "_machine",
        "_num_acting",
        "_one_over",
        "_request",
        "_wake_number",
        "_world",
        "answered_by",
        "backends",
        "branches",
        "chosen",
        "ended",
        "first_branch",
        "first_us",
        "owner",
        "past",
        "task",
    )

    def __init__(
        self, world: RunWorld, owner: object, task: Task, chosen: RankedRoute, guess: Guess
    ) -> None:
        self._world = world
        self.owner = owner
        self.task = task
        self._request: GenerateRequest = task.request
        self.chosen = chosen
        self._guess = guess
        self.backends: Sequence[str] = chosen.backends
        self.branches: dict[int, PlayedBranch] = {}
        self.past: tuple[PlayedBranch, ...] = ()
        self.first_branch: PlayedBranch | None = None
        self.first_us = -1
        self.answered_by = ""
        self.ended = False
        self._machine: Machine | None = None  # None: one engine alone
        self._competes = False
        self._groups_done: frozenset[int] = frozenset()
        self._num_acting = 0
        self._one_over = False
        self._wake_number = 0
        self._failed: frozenset[str] = frozenset()

    def start(self) -> None:
        """Starts the first generations."""
        chosen = self.chosen
        if chosen.strategy is None:
            where = self._world.engines[chosen.backends[0]]
            branch = PlayedBranch(self, 0, 0, where, self._world.now_us)
            self.branches[0] = branch
            self._generate(branch, self._request)
            return
        record = chosen.record
        self._competes = record.competes
        self._machine = record.machine(chosen.options, self._request)
        self._act(self._machine.start(self._world.now_us))

    def close(self) -> None:
        """Cancels what still runs, and settles the parts' own reservations."""
        self.ended = True
        for branch in self.branches.values():
            if not branch.is_over:
                self._cancel(branch)

    def forget(self) -> None:
        """Drops the generations, which refer back here, once the task's result is known."""
        self.branches.clear()
        self.past = ()
        self.first_branch = None

    def all(self) -> list[PlayedBranch]:
        """Lists every generation, those that broke off included."""
        return [*self.past, *self.branches.values()]

    def used(self) -> list[tuple[BackendGroup, Usage]]:
        """Returns what the task's own reservation has used so far."""
        return [
            (branch.where.info.group, branch.usage or branch.usage_so_far())
            for branch in self.all()
            if not branch.own_reservation
        ]

    # What branches tell.

    def on_tokens(self, branch: PlayedBranch, num_tokens: int, at_us: int) -> None:
        if self._machine is None:
            if self.first_branch is None:
                self._see_first(branch)
            return
        for delta in branch.deltas(num_tokens, at_us):
            self._act(self._machine.on_delta(branch.number, delta))
            if branch.is_over:
                return
        self._watch(branch)

    def on_end(self, branch: PlayedBranch, at_us: int) -> None:
        assert branch.usage is not None
        machine = self._machine
        if machine is not None and branch.call is not None:
            self._act(machine.on_delta(branch.number, branch.call))
        reason = FinishReason.LENGTH if branch.limited else FinishReason.STOP
        self._finished(branch, Finish(reason, branch.usage, at_us))

    def on_break(self, branch: PlayedBranch, now_us: int) -> None:
        name = branch.where.name
        error = BackendError(name, "server_error", f"backend {name} is out", retryable=True)
        if self._go_on(branch, error):
            return
        self._finished(branch, Finish(FinishReason.ERROR, branch.usage or NO_USAGE, now_us, error))

    def _finished(self, branch: PlayedBranch, finish: Finish) -> None:
        branch.is_over = True
        if branch.usage is None:
            branch.usage = finish.usage
        self._world.settle_part(branch)
        if self.ended:
            return
        if self._machine is None:
            self.answered_by = branch.where.name
            self._end(finish)
            return
        self._one_over = True
        self._act(self._machine.on_finish(branch.number, finish, self._world.now_us))

    # What the machine wants.

    def _act(self, actions: list[Action]) -> None:
        self._num_acting += 1
        for action in actions:
            if self.ended:  # by a start that failed at once; nothing may start behind the end
                break
            if isinstance(action, Forward):
                branch = self.branches[action.branch]
                if self.first_branch is None:
                    self._see_first(branch)
                if action.phase != "commentary":
                    self.answered_by = branch.where.name
            elif isinstance(action, StartBranch):
                self._begin(action)
            elif isinstance(action, CancelBranch):
                self._cancel(self.branches[action.branch])
                self._one_over = True
            elif isinstance(action, WakeAt):
                self._wake_at(action.at_us)
            else:
                self._end(action.finish)
        self._num_acting -= 1
        if self._one_over and not self._num_acting:
            self._one_over = False
            self._release_done_groups()

    def _begin(self, action: StartBranch) -> None:
        world, name = self._world, self.backends[action.backend_index]
        branch = PlayedBranch(
            self, action.branch, action.backend_index, world.engines[name], world.now_us
        )
        branch.part, branch.own_reservation = action.part, action.own_reservation
        self.branches[action.branch] = branch
        request = self._request_of(branch)
        if not branch.own_reservation:
            self._generate(branch, request)
            return
        self._reserve(branch, request)

    def _reserve(self, branch: PlayedBranch, request: GenerateRequest) -> None:
        num_output_tokens = request.max_output_tokens
        if not isinstance(branch.part, Subtask):  # a sub-task's length is unknown
            num_output_tokens = min(num_output_tokens, self._guess.expected_tokens)
        self._world.reserve_part(
            self, branch, Usage(request.num_prompt_tokens, 0, num_output_tokens)
        )

    def granted(self, branch: PlayedBranch) -> None:
        """Starts a branch whose own reservation was granted."""
        branch.started_us = self._world.now_us
        self._generate(branch, self._request_of(branch))

    def refused(self, branch: PlayedBranch) -> None:
        """Fails a branch whose own reservation was refused."""
        if branch.is_over:
            return
        branch.usage = NO_USAGE
        name = branch.where.name
        error = BackendError(name, "rate_limit_exceeded", "the pools are full", retryable=True)
        self._finished(branch, Finish(FinishReason.ERROR, NO_USAGE, self._world.now_us, error))

    def _wake_at(self, at_us: int) -> None:
        self._wake_number += 1
        number = self._wake_number

        def wake() -> None:
            if self.ended or number != self._wake_number or self._machine is None:
                return
            waiting = frozenset(
                n
                for n, branch in self.branches.items()
                if branch.own_reservation and branch.reservation is None and not branch.is_over
            )
            self._act(self._machine.on_time(self._world.now_us, waiting))

        self._world.at(max(at_us, self._world.now_us), wake)

    def _end(self, finish: Finish) -> None:
        if not self.ended:
            self.ended = True
            self._world.run_over(self, finish)

    def _cancel(self, branch: PlayedBranch) -> None:
        if not branch.is_over:
            branch.cancel(self._world.now_us)
            self._world.settle_part(branch)

    def _release_done_groups(self) -> None:
        machine = self._machine
        if self.ended or machine is None:
            return
        own = [branch for branch in self.branches.values() if not branch.own_reservation]
        busy = {branch.index for branch in own if not branch.is_over}
        for index, name in enumerate(self.chosen.backends):
            if not (index in busy | self._groups_done or machine.may_start(index)):
                self._groups_done |= {index}
                self._world.group_done(self, self._world.engines[name].info.group)

    # Generations.

    def _request_of(self, branch: PlayedBranch) -> GenerateRequest:
        info, alone = branch.where.info, len(self.chosen.backends) == 1
        part = branch.part or _WHOLE
        request = branch_request(self._request, branch.number, part, info, alone=alone)
        if request.prefix is self._request.prefix:
            return request
        return msgspec.structs.replace(request, prefix=self._request.prefix)

    def _generate(self, branch: PlayedBranch, request: GenerateRequest) -> None:
        where = branch.where
        info, guess = where.info, self._guess
        prompt_tokens = request.num_prompt_tokens + branch.num_before
        room_tokens = min(
            request.max_output_tokens, info.max_output_tokens, info.window_tokens - prompt_tokens
        )
        length = guess.of(info.group, branch.part)
        tokens = max(1, length.output_tokens - branch.num_before)
        branch.prompt_tokens = prompt_tokens
        if tokens > room_tokens:
            branch.limited, tokens = True, max(1, room_tokens)
        if length.reasoning_tokens:
            branch.reasoning_tokens = max(0, length.reasoning_tokens - branch.num_before)
        if branch.part is not None:
            self._say(branch, branch.part)
        sequence = EngineSequence(
            id=0,
            num_prompt_tokens=max(1, prompt_tokens),
            num_output_tokens=tokens if request.generate else 0,
            prefix=request.prefix,
            end_prefix=guess.end_prefix if branch.part is None else None,
        )
        branch.sequence = sequence
        if not where.is_open or where.is_full or room_tokens <= 0:
            branch.sequence = None
            branch.usage = NO_USAGE
            self.on_break(branch, self._world.now_us)
            return
        try:
            where.submit(sequence, branch, self._world.now_us)
        except ValueError:  # longer than its whole cache
            branch.sequence = None
            branch.usage = NO_USAGE
            self.on_break(branch, self._world.now_us)
            return
        if self._machine is not None:
            self._watch(branch)

    def _say(self, branch: PlayedBranch, part: TaskPart) -> None:
        """Puts words into a branch's mouth that a strategy decides by."""
        guess = self._guess
        if isinstance(part, OneOfMany) and not guess.agrees(part.number):
            branch.word = f" other{part.number}"
        elif isinstance(part, AskVerdict):
            branch.word = " yes" if guess.says_yes() else " no"
        elif part.name == "converse" and branch.number == 0 and guess.hands_on():
            arguments = '{"task":"said"}'
            branch.call = Delta(
                2, DeltaKind.FUNCTION_CALL, arguments, 1, 0, call_id="call_1", name=DELEGATE_TOOL
            )

    def _watch(self, branch: PlayedBranch) -> None:
        """Asks an engine for as much of a stream as the strategy decides by."""
        if branch.is_over or branch.sequence is None:
            return
        tick_us = WATCH_TICK_US
        if self._competes:
            reasons = branch.num_tokens <= branch.reasoning_tokens and branch.reasoning_tokens > 0
            tick_us = RACE_TICK_US if reasons or self._races() else 0
        branch.where.watch(branch.sequence, tick_us)

    def _races(self) -> bool:
        """Returns whether more than one generation runs."""
        branches = self.branches
        return len(branches) > 1 and sum([not each.is_over for each in branches.values()]) > 1

    def _go_on(self, branch: PlayedBranch, error: BackendError) -> bool:
        """Goes on elsewhere with a branch that broke, if another engine may take it."""
        if self.ended or branch.num_continuations >= MAX_CONTINUATIONS:
            return False
        if branch.own_reservation and branch.reservation is None:
            return False
        num_said = branch.num_before + max(0, branch.num_tokens - branch.reasoning_tokens)
        if num_said and branch.part is not None and not branch.part.goes_on:
            return False
        to = self._replacement(branch, error, num_said)
        if to is None:
            return False
        engine = self._world.engines[to]
        same_group = engine.info.group == branch.where.info.group
        successor = PlayedBranch(self, branch.number, branch.index, engine, self._world.now_us)
        successor.part = branch.part
        successor.num_before = num_said
        successor.num_continuations = branch.num_continuations + 1
        if branch.num_tokens == 0:
            branch.usage = NO_USAGE  # a failed start is not charged
        self._world.settle_part(branch)
        self.past += (branch,)
        self.branches[branch.number] = successor
        if same_group and branch.index < len(self.chosen.backends):
            at = branch.index
            self.backends = (*self.backends[:at], to, *self.backends[at + 1 :])
        successor.own_reservation = branch.own_reservation or not same_group
        if successor.own_reservation:
            self._reserve(successor, self._request_of(successor))
        else:
            self._generate(successor, self._request_of(successor))
        return True

    def _replacement(self, branch: PlayedBranch, error: BackendError, num_said: int) -> str | None:
        chosen, engines = self.chosen, self._world.engines
        group = branch.where.info.group
        spares = chosen.spares[branch.index] if branch.index < len(chosen.spares) else ()
        is_refused = branch.sequence is None and chosen.reason is Reason.HINT
        is_free = len(chosen.backends) == 1 and not is_refused
        others = chosen.stand_ins if num_said or is_free else ()
        failed = self._failed | {branch.where.name}
        if num_said:
            failed = frozenset((branch.where.name,))
        else:
            self._failed = failed
        of_group = [name for name in chosen.stand_ins if engines[name].info.group == group]
        names = tuple(dict.fromkeys((*(spares or of_group), *others)))
        num_tokens = self._request.num_prompt_tokens + num_said

        def usable(name: str) -> bool:
            engine = engines[name]
            return engine.is_open and num_tokens < engine.info.window_tokens

        return replacement(names, failed, error, usable=usable)

    def _see_first(self, branch: PlayedBranch) -> None:
        self.first_branch = branch
        self.first_us = self._world.now_us
