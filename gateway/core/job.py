"""Keeps a response from request to settlement; the session starts it and the pipeline runs it."""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from backends.contract import BackendGroup, ContextItem, GenerateRequest
from gateway.store.stored_response import Lineage
from gateway.tracing.trace import Trace
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending, ResponseWriter
from gateway.wire.routing import RoutedRejoin
from router.classify.task import Tenant
from router.decide.decision import RouteDecision
from router.money.prices import Bill
from router.policy.policy import Policy
from router.record.seen import SeenRecord
from router.waiting.fair_queue import QueuePosition

StopReason = Literal["steered", "cancelled", "draining", "awaited"]  # the last: warm-ups only
Redirect = Callable[[int, tuple[ContextItem, ...] | None], None]  # a sub-task; None: cancel it


class Parent(Protocol):
    """Is a response that is remembered, to be continued."""

    items: tuple[ContextItem, ...]
    backend: str | None
    lineage: Lineage


class Pause(msgspec.Struct):
    """Holds what is known of a response whose client lost its connection, once or several times."""

    num_joins: int = 0  # how often the client came back
    grace_cost: int = 0  # weighted tokens that were spent while nobody listened
    cost_before: int | None = None  # spent when nobody began to listen; None: somebody listens
    rejoined: RoutedRejoin | None = None  # what `routing` says of the last return
    # The context of the create that came back, where it has more than the response's own, and how
    # many items of the output that holds.
    context: tuple[ContextItem, ...] | None = None
    num_held: int = 0
    # Where another process keeps it: tells that the connection was lost again, after its end.
    give_back: Callable[[], None] | None = None

    def note_cost(self, cost: int) -> None:
        """Notes what the response has cost by now; what is new was spent in grace."""
        if self.cost_before is not None:
            self.grace_cost += max(0, cost - self.cost_before)
            self.cost_before = cost


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the result of a response, enough to continue from it."""

    ending: Ending
    items: tuple[ContextItem, ...]  # its whole context, input and output
    backend: str | None  # holds the KV prefix
    lineage: Lineage = Lineage()  # where its context is stored
    open_calls: tuple[dict[str, str], ...] = ()  # stubs of the outputs that its calls wait for


class Job(msgspec.Struct, eq=False, weakref=True):
    """Is one response under way; a steer or a cancel calls `stop`."""

    parsed: ParsedCreate
    writer: ResponseWriter
    tenant: Tenant
    arrived_us: int
    refuse: Callable[[ProtocolError], None]
    parent: tuple[ContextItem, ...] | None = None  # None: to be loaded, or none
    last_backend: str | None = None
    lineage: Lineage = Lineage()
    stream_id: str | None = None
    on_open: Callable[[], None] | None = None  # called once the response has begun
    on_queue_position: Callable[[BackendGroup, QueuePosition], None] | None = None
    on_wait: Callable[[], None] | None = None  # called once it waits for its turn
    on_turn_state: Callable[[str], None] | None = None  # takes it for a client that sends it back
    decision: RouteDecision | None = None  # once admitted
    decided: RouteDecision | None = None  # admitted or refused: for the decision log
    records_text: bool = False  # whether the log has the prompt's text, by policy
    policy: Policy | None = None  # that decided: for the decision log, as is what follows
    seen: SeenRecord | None = None  # by the decision
    admitted_us: int | None = None
    trace: Trace | None = None  # if it is traced
    request: GenerateRequest | None = None  # with its whole context, once that is loaded
    bill: Bill | None = None  # once its generations are over
    pause: Pause | None = None  # once its client's connection was lost
    opened_bytes: int = 0  # of compactions, counted as in flight until it is over
    stopped: StopReason | None = None
    turned_away: ProtocolError | None = None  # what its client got after it had begun
    delegations: frozenset[int] = frozenset()  # sub-tasks under way, by number
    redirect: Redirect | None = None  # steers or cancels one of them
    _on_stop: Callable[[], None] | None = None  # set while it waits or generates

    def bring(self, parent: Parent | None) -> None:
        """Takes what it continues, if that is remembered; else it is read from the store."""
        if parent is not None:
            self.parent, self.last_backend = parent.items, parent.backend
            self.lineage = parent.lineage

    @property
    def wants_queue_position(self) -> bool:
        """Says whether the client wants its position in the queue."""
        return self.on_queue_position is not None and self.parsed.wants_queue_position

    def report_queue_position(self, group: BackendGroup, position: QueuePosition) -> None:
        """Reports its position in that group's queue, if the client wants it."""
        if self.on_queue_position is not None and self.parsed.wants_queue_position:
            self.on_queue_position(group, position)

    def wait(self, on_stop: Callable[[], None] | None) -> None:
        """Sets how to stop its wait (None: it waits no longer); an earlier stop takes effect."""
        self._on_stop = on_stop
        if on_stop is None:
            return
        if self.on_wait is not None:
            self.on_wait()
        if self.stopped is not None:
            on_stop()

    def begin(self, on_stop: Callable[[], None]) -> None:
        """Sets how to stop its generation; an earlier stop takes effect."""
        if self.on_open is not None:
            self.on_open()
        self._on_stop = on_stop
        if self.stopped is not None:
            on_stop()

    def over(self) -> None:
        """Drops the references to and from what ran it, which form cycles."""
        self._on_stop = self.redirect = self.on_open = self.on_queue_position = None
        self.on_turn_state = self.on_wait = None
        self.refuse = _is_over

    def stop(self, reason: StopReason) -> None:
        """Stops it at the next token; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            if self._on_stop is not None:
                self._on_stop()


def _is_over(error: ProtocolError) -> None:
    """Ignores errors of a job that is over."""
