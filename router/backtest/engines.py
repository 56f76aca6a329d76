"""Runs one engine in virtual time, as `backends.drive` does on asyncio."""

from collections.abc import Callable
from itertools import count
from typing import Protocol

from backends.contract import BackendStats
from router.backtest.fleet import EngineMachine
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.sequence import Sequence

RACE_TICK_US = 4_000  # between two looks at streams whose next tokens decide something
WATCH_TICK_US = 200_000  # at streams that a strategy only wants to hear from now and then


class TokenReceiver(Protocol):
    """Receives a sequence's tokens; may start and cancel any sequence."""

    def advance(self, num_tokens: int, at_us: int) -> None: ...

    def finish(self, at_us: int) -> None: ...

    def fail(self, now_us: int) -> None: ...


class EngineClock:
    """Holds an engine, who waits for its tokens, and when it is to be looked at next.

    `wake_us` is that time; the owner's heap may hold older ones, which are stale.
    """

    def __init__(
        self, machine: EngineMachine, on_change: Callable[["EngineClock", int], None]
    ) -> None:
        """`on_change` is called when `wake_us` has changed to a time."""
        self.machine = machine
        self.info = machine.info
        self.name = machine.info.name
        self.is_open = True
        self.wake_us: int | None = None
        self.tick_us = 0  # 0: only starts and ends are of interest
        self._engine = Engine(machine.cost)
        self._max_num_seqs = machine.cost.limits.max_num_seqs
        self._kv_capacity_tokens = self._engine.kv_capacity_tokens
        self._on_change = on_change
        self._receivers: dict[int, TokenReceiver] = {}
        self._ids = count(1)
        self._next_tick_us = 0
        self._watchers: dict[int, int] = {}  # sequence -> its tick
        self.known: BackendStats | None = None  # as `stats`, as long as nothing has changed

    def submit(self, sequence: Sequence, receiver: TokenReceiver, now_us: int) -> None:
        """Starts a sequence, and numbers it; raises ValueError if the engine cannot take it."""
        sequence.id = next(self._ids)
        self._engine.add(sequence, now_us)
        self._receivers[sequence.id] = receiver
        self._changed()

    def cancel(self, sequence: Sequence, now_us: int) -> None:
        """Drops a sequence; its receiver is not called again."""
        if self._receivers.pop(sequence.id, None) is not None:
            self._engine.cancel(sequence.id, now_us)
            self._unwatch(sequence.id)
            self._changed()

    def watch(self, sequence: Sequence, tick_us: int) -> None:
        """Reports a sequence's tokens once in so long; 0: its first and its last."""
        if self._watchers.get(sequence.id, 0) == tick_us:
            return
        if tick_us:
            self._watchers[sequence.id] = tick_us
            self.tick_us = min(self._watchers.values())
        else:
            self._unwatch(sequence.id)
        self._changed()

    def _unwatch(self, sequence_id: int) -> None:
        if self._watchers.pop(sequence_id, None) is not None:
            self.tick_us = min(self._watchers.values(), default=0)

    def wake(self, now_us: int) -> None:
        """Hands out what is due."""
        is_tick = self.tick_us > 0 and now_us >= self._next_tick_us
        output = self._engine.advance(now_us, progress=is_tick)
        if is_tick:
            self._next_tick_us = now_us + self.tick_us
        if output:
            self.known = None
            receivers = self._receivers
            for sequence_id, num_tokens, at_us, finished in output:
                receiver = receivers.get(sequence_id)
                if receiver is None:
                    continue  # cancelled by a receiver called just before
                receiver.advance(num_tokens, at_us)
                if finished and receivers.pop(sequence_id, None) is not None:
                    self._unwatch(sequence_id)
                    receiver.finish(at_us)
        self._changed()

    def close(self, now_us: int, *, breaks: bool) -> None:
        """Takes no more sequences; if it breaks, those that it has fail."""
        self.is_open = False
        self.known = None
        if not breaks:
            return
        failed = list(self._receivers.items())
        self._receivers.clear()
        self._watchers.clear()
        self.tick_us = 0
        for sequence_id, _ in failed:
            self._engine.cancel(sequence_id, now_us)
        self._changed()
        for _, receiver in failed:
            receiver.fail(now_us)

    def open(self) -> None:
        """Takes sequences again; its cache is as it was."""
        self.is_open = True
        self.known = None

    @property
    def is_full(self) -> bool:
        """Returns whether it refuses one more sequence."""
        return self._engine.num_waiting >= self.machine.max_num_waiting

    @property
    def busy_us(self) -> int:
        """Returns how long it has computed."""
        return self._engine.stats().busy_us

    def stats(self) -> BackendStats:
        """Returns what the router sees of it, as of its latest event."""
        stats = self.known
        if stats is None:
            num_running, num_waiting, num_warming, kv_used_tokens = self._engine.load()
            stats = self.known = BackendStats(
                info=self.info,
                healthy=self.is_open,
                num_running=num_running,
                num_waiting=num_waiting,
                num_warming=num_warming,
                max_num_seqs=self._max_num_seqs,
                kv_used_tokens=kv_used_tokens,
                kv_capacity_tokens=self._kv_capacity_tokens,
            )
        return stats

    def _changed(self) -> None:
        self.known = None
        wake_us = self._engine.next_event_us()
        if self.tick_us and wake_us is not None:
            token_us = self._engine.next_token_us()
            if token_us is not None:
                if token_us < self._next_tick_us:
                    token_us = self._next_tick_us
                if token_us < wake_us:
                    wake_us = token_us
        if wake_us != self.wake_us:
            self.wake_us = wake_us
            if wake_us is not None:
                self._on_change(self, wake_us)
