"""Starts the branches of a run, and finds who goes on with one that fails. This is an edge."""

from collections.abc import Callable, Mapping

import msgspec

from backends.contract import (
    NO_USAGE,
    Backend,
    BackendError,
    BackendGroup,
    GenerateRequest,
    Sink,
    Usage,
)
from backends.delegation import GATEWAY_TOOLS
from backends.tokenizer import count
from gateway.run.branch import Branch
from gateway.run.continuation import Joint, Said, continuing
from gateway.run.side_reservations import Settle, SideReservations
from gateway.wire.errors import ProtocolError
from router.decide.decision import RankedRoute, Reason
from router.decide.failover import MAX_CONTINUATIONS, REFUSALS, replacement, silence_us
from router.policy.conditions import load_of
from router.strategies.part_requests import branch_request
from router.strategies.subtasks import Subtask


class Failover(msgspec.Struct, frozen=True):
    """Tells that a backend failed before its first word, and that another replaced it."""

    to: str
    error: BackendError  # names the one that failed


class BranchStarter(msgspec.Struct, eq=False):
    """Starts branches. It has no reference to the run, which would be a cycle."""

    _chosen: RankedRoute
    _reservations: SideReservations | None
    _expected_output_tokens: int
    _clock_us: Callable[[], int]
    _late_words_us: Callable[[str], float | None]
    _backends: Mapping[str, Backend]
    _request: GenerateRequest  # the task's whole one
    _failed: set[str] = set()  # the backends that failed before their first word

    def start(self, branch: Branch, said: Said | None = None) -> None:
        """Starts a branch now, or once it has its own reservation; a refusal finishes it.

        It says the rest of what another has `said`, if that is given.
        """
        request = self._request_of(branch)
        sink: Sink = branch
        if said is not None:
            request = continuing(request, said, branch.num_continuations)
            sink = Joint(branch, said)
        branch.num_prompt_tokens = self._read_tokens(branch, request)
        if branch.own_reservation:
            self._reserve(branch, request, sink)
        else:
            self._generate(branch, request, sink)

    def silence_us(self, branch: Branch) -> int | None:
        """Returns how long a branch may say nothing at all; None: its backend times it alone."""
        timeout_us = self._backends[branch.backend].info.first_token_timeout_us
        late_us = self._late_words_us(branch.backend) if timeout_us else None
        if late_us is None:
            return None
        return silence_us(late_us, timeout_us, branch.num_prompt_tokens)

    def replacement(
        self, branch: Branch, error: BackendError, said: Said, *, may_wait: bool = False
    ) -> str | None:
        """Finds a backend to go on where one failed; None if there is none.

        One that `may_wait` for its first word is left for a backend with a free place only.

        Before its first word that is one of its group, or any that may have the task where this
        runs on one engine; but a route that the client asked for may refuse it. Behind its first
        word it is any that may have the task. Behind a call there is none.
        """
        never_started = branch.own_reservation and branch.settle is None  # the pools refused
        if never_started or said.has_calls or branch.num_continuations >= MAX_CONTINUATIONS:
            return None
        if said.words and not branch.part.goes_on:
            return None
        group = self._backends[branch.backend].info.group
        chosen, index = self._chosen, branch.backend_index
        of_group = (name for name in chosen.stand_ins if self._group_of(name) == group)
        spares = chosen.spares[index] if index < len(chosen.spares) else of_group
        others: tuple[str, ...] = ()
        is_asked_for = chosen.reason is Reason.HINT
        is_refused = is_asked_for and said.last is None and error.code in REFUSALS
        may_leave = said.words or (len(chosen.backends) == 1 and not is_refused)
        if may_leave and self._reservations is not None:
            others = chosen.stand_ins
        failed = {branch.backend} if said.words else self._failed
        failed.add(branch.backend)
        names = tuple(dict.fromkeys((*spares, *others)))
        if may_wait and said.last is None:
            names = tuple(name for name in names if load_of(self._backends[name].stats()) < 1)
        return replacement(names, failed, error, usable=lambda name: self._takes(name, said))

    def is_of_group(self, backend: str, branch: Branch) -> bool:
        """Returns whether a backend is of the group that a branch runs on."""
        return self._group_of(backend) == self._group_of(branch.backend)

    def max_output_tokens(self, branch: Branch) -> int:
        """Returns the limit of a branch's whole answer."""
        return self._request_of(branch).max_output_tokens

    def may_call(self, branch: Branch) -> bool:
        """Returns whether a branch may call the client's tools.

        Many servers are silent while their engine writes a call's arguments.
        """
        request = self._request_of(branch)
        tools = {tool.name for tool in request.tools} - GATEWAY_TOOLS
        return bool(tools) and request.tool_choice.mode != "none"

    def start_again(self, branch: Branch, backend: str) -> None:
        """Restarts a branch on another backend; the failed one's usage is not charged."""
        branch.backend = backend
        branch.generation = None
        branch.started_us = self._clock_us()
        request = self._request_of(branch)
        branch.num_prompt_tokens = self._read_tokens(branch, request)
        self._generate(branch, request, branch)

    def _group_of(self, backend: str) -> BackendGroup:
        return self._backends[backend].info.group

    def _takes(self, backend: str, said: Said) -> bool:
        stats = self._backends[backend].stats()
        num_tokens = self._request.num_prompt_tokens + said.num_tokens
        is_able = not said.words or stats.info.prefills
        return stats.takes_tasks and is_able and num_tokens < stats.info.window_tokens

    def _request_of(self, branch: Branch) -> GenerateRequest:
        info, alone = self._backends[branch.backend].info, len(self._chosen.backends) == 1
        return branch_request(self._request, branch.number, branch.part, info, alone=alone)

    def _read_tokens(self, branch: Branch, request: GenerateRequest) -> int:
        """Returns the size of a branch's prompt, with a prediction that is read as a part of it."""
        if request.prediction is None:
            return request.num_prompt_tokens
        around = self._backends[branch.backend].info.prediction_tokens
        read_tokens = around + count(request.prediction) if around else 0
        return request.num_prompt_tokens + read_tokens

    def _has_spare(self, branch: Branch) -> bool:
        """Returns whether another backend of its group could take it now."""
        index, spares = branch.backend_index, self._chosen.spares
        spares_here = spares[index] if index < len(spares) else ()
        if not spares_here:
            return False
        others = (name for name in spares_here if name not in self._failed | {branch.backend})
        stats = (self._backends[name].stats() for name in others)
        return any(each.takes_tasks and load_of(each) < 1 for each in stats)

    def _generate(self, branch: Branch, request: GenerateRequest, sink: Sink) -> None:
        backend = self._backends[branch.backend]
        if not backend.info.simulated and self._has_spare(branch):  # those no server limits
            request = msgspec.structs.replace(request, has_spare=True)
        try:
            branch.generation = backend.start(request, sink)
        except BackendError as error:
            branch.fail(error, self._clock_us())

    def _reserve(self, branch: Branch, request: GenerateRequest, sink: Sink) -> None:
        """Starts a branch once it has its own reservation."""
        assert self._reservations is not None

        def granted(settle: Settle) -> None:
            if branch.usage is not None:  # cancelled in the meantime
                settle(branch.backend, NO_USAGE)
                return
            branch.settle = settle
            branch.started_us = self._clock_us()
            try:
                self._generate(branch, request, sink)
            except Exception as error:
                branch.run.break_off(error)

        def refused(error: ProtocolError) -> None:
            if branch.usage is None:
                reason = BackendError(branch.backend, error.code, error.message, retryable=True)
                branch.fail(branch.broken_by or reason, self._clock_us())

        num_output_tokens = request.max_output_tokens
        if not isinstance(branch.part, Subtask):  # a sub-task's length is unknown
            num_output_tokens = min(num_output_tokens, self._expected_output_tokens)
        branch.pending = self._reservations.take(
            request.id,
            self._backends[branch.backend].info.group,
            Usage(request.num_prompt_tokens, 0, num_output_tokens),
            branch.usage_so_far,
            granted,
            refused,
        )
