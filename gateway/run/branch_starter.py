"""Starts the branches of a run, and fails over before their first token. This is an edge."""

from collections.abc import Callable, Mapping

import msgspec

from backends.contract import NO_USAGE, Backend, BackendError, GenerateRequest, Usage
from gateway.run.branch import Branch
from gateway.run.side_reservations import Settle, SideReservations
from gateway.wire.errors import ProtocolError
from router.decide.decision import RankedRoute
from router.decide.failover import replacement
from router.strategies.part_requests import branch_request
from router.strategies.subtasks import Subtask


class Failover(msgspec.Struct, frozen=True):
    """A backend failed before its first token, and another replaced it."""

    to: str
    error: BackendError  # names the one that failed


class BranchStarter:
    """Starts branches. It has no reference to the run, which would be a cycle."""

    def __init__(
        self,
        chosen: RankedRoute,
        reservations: SideReservations | None,
        expected_output_tokens: int,
        clock_us: Callable[[], int],
    ) -> None:
        self._spares = chosen.spares
        self._alone = len(chosen.backends) == 1
        self._reservations = reservations
        self._expected_output_tokens = expected_output_tokens
        self._clock_us = clock_us
        self._failed: set[str] = set()

    def prepare(self, backends: Mapping[str, Backend], request: GenerateRequest) -> None:
        """Sets the backends, and the task's whole request."""
        self._backends = backends
        self._request = request

    def start(self, branch: Branch) -> None:
        """Starts a branch now, or once it has its own reservation; a refusal finishes it."""
        request = self._request_of(branch)
        if branch.own_reservation:
            self._reserve(branch, request)
        else:
            self._generate(branch, request)

    def replacement(self, branch: Branch, error: BackendError) -> Failover | None:
        """Finds a backend to replace the one that failed; None if there is none."""
        never_started = branch.own_reservation and branch.settle is None  # the pools refused
        if never_started or branch.backend_index >= len(self._spares):
            return None
        self._failed.add(branch.backend)
        name = replacement(
            self._spares[branch.backend_index],
            self._failed,
            error,
            has_tokens=branch.times is not None,
            healthy=lambda name: self._backends[name].stats().healthy,
        )
        return None if name is None else Failover(name, error)

    def start_again(self, branch: Branch, backend: str) -> None:
        """Restarts a branch on another backend; the failed one's usage is not charged."""
        branch.backend = backend
        branch.generation = None
        branch.started_us = self._clock_us()
        self._generate(branch, self._request_of(branch))

    def _request_of(self, branch: Branch) -> GenerateRequest:
        info = self._backends[branch.backend].info
        request = branch_request(self._request, branch.number, branch.part, info, alone=self._alone)
        branch.num_prompt_tokens = request.num_prompt_tokens
        return request

    def _generate(self, branch: Branch, request: GenerateRequest) -> None:
        try:
            branch.generation = self._backends[branch.backend].start(request, branch)
        except BackendError as error:
            branch.fail(error, self._clock_us())

    def _reserve(self, branch: Branch, request: GenerateRequest) -> None:
        """Starts a branch once it has its own reservation."""
        assert self._reservations is not None

        def granted(settle: Settle) -> None:
            if branch.usage is not None:  # cancelled in the meantime
                settle(NO_USAGE)
                return
            branch.settle = settle
            branch.started_us = self._clock_us()
            try:
                self._generate(branch, request)
            except Exception as error:
                branch.run.break_off(error)

        def refused(error: ProtocolError) -> None:
            if branch.usage is None:
                reason = BackendError(branch.backend, error.code, error.message, retryable=True)
                branch.fail(reason, self._clock_us())

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
