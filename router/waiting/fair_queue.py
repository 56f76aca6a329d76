"""Orders the tasks that wait for a group of engines by start-time fair queueing.

Each tenant has a FIFO line of its own, so that small tasks never starve a large one. Between lines,
the tenant with the fewest tokens for its weight is next; one that was idle starts where the others
are, so that idling gains nothing.

A line whose pools are empty is blocked until they can have refilled, and the others go on. The
caller takes the `next` task, tries it, and reports `served` or `put_back`.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from router.pools.pools import Unit

TAG_PER_TOKEN = 1_000_000  # a tag advances by this for a token of weight 1; integers only
FIRST_PAUSE_US = 1_000_000  # assumed between two served tasks at first
MIN_PAUSES = 8  # samples before their mean is more than a guess
MAX_LINES_KEPT = 4_096  # of tenants that do not wait now, for their tags


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a task that waits."""

    id: str
    tenant_id: str
    weight: int  # of its tenant, at least 1
    tokens: int  # asked of the group
    joined_us: int
    until_us: int  # it waits no longer than that

    @property
    def tag_length(self) -> int:
        """Returns how far its tenant's tag advances when it is served."""
        return max(1, self.tokens) * TAG_PER_TOKEN // self.weight


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Says why the first of a line could not be served, and when to try again."""

    wait_us: int
    unit: Unit  # of the pool that was short
    per_min: int = 0  # that pool's refill, in its unit; 0: it does not refill by time


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a task's position in its group's queue."""

    position: int  # 1: next
    expected_us: int  # until it is served, as far as can be known


@dataclass(slots=True)
class _Line:
    """Holds one tenant's waiting tasks and its tag."""

    waiters: deque[Waiter] = field(default_factory=deque)
    finish: int = 0  # tag at which its next one may start
    blocked_us: int = 0  # no use trying before
    unit: Unit | None = None  # what the first one waits for
    per_task_us: float = 0.0  # refill of that pool
    per_token_us: float = 0.0

    def block(self, block: Block, now_us: int) -> None:
        """Blocks the line because its first task could not be served."""
        self.blocked_us = now_us + max(1, block.wait_us)
        self.unit = block.unit
        per_unit_us = 60e6 / block.per_min if block.per_min else 0.0
        self.per_task_us = per_unit_us if block.unit == "requests" else 0.0
        self.per_token_us = per_unit_us if block.unit == "tokens" else 0.0

    def cost_us(self, tokens: int, pause_us: float) -> float:
        """Returns how long one more task blocks the line, by refill or else by `pause_us`."""
        return self.per_task_us + tokens * self.per_token_us or pause_us


class FairQueue:
    """Queues the tasks of one group. `now_us` never goes back."""

    def __init__(self, max_waiting: int, max_per_tenant: int) -> None:
        self._max_waiting = max_waiting
        self._max_per_tenant = max_per_tenant
        self._lines: dict[str, _Line] = {}  # by tenant; those that wait, and some that did
        self.tenant_of: dict[str, str] = {}  # waiter -> tenant, of all that wait
        self._now = 0  # virtual time: the tag of the latest that was served
        self._held_us = 0  # the whole group is blocked until then
        self._served_us: int | None = None
        self._pause_us = float(FIRST_PAUSE_US)  # smoothed, between two that are served
        self._num_pauses = 0

    def __len__(self) -> int:
        return len(self.tenant_of)

    def num_waiting(self, tenant_id: str) -> int:
        """Returns how many tasks of a tenant wait."""
        line = self._lines.get(tenant_id)
        return len(line.waiters) if line is not None else 0

    def has_room(self, tenant_id: str) -> bool:
        """Returns whether one more task of a tenant may wait."""
        return len(self) < self._max_waiting and self.num_waiting(tenant_id) < self._max_per_tenant

    def is_held(self, now_us: int) -> bool:
        """Returns whether the whole group is blocked now."""
        return now_us < self._held_us

    def join(self, waiter: Waiter, block: Block | None = None) -> None:
        """Adds a task to its tenant's line, which must have room; `block` is of its first try."""
        if not self.tenant_of:
            self._served_us = None  # nobody was there to be served since
        line = self._lines.setdefault(waiter.tenant_id, _Line())
        if not line.waiters:
            line.finish = max(line.finish, self._now)
            line.blocked_us = waiter.joined_us
            if block is not None:
                line.block(block, waiter.joined_us)
        line.waiters.append(waiter)
        self.tenant_of[waiter.id] = waiter.tenant_id
        if len(self._lines) > MAX_LINES_KEPT:
            self._forget()

    def remove(self, waiter_id: str, now_us: int) -> bool:
        """Removes a task unserved; False if it is not here. The next one may try at once."""
        tenant_id = self.tenant_of.pop(waiter_id, None)
        if tenant_id is None:
            return False
        line = self._lines[tenant_id]
        if line.waiters[0].id == waiter_id:
            line.blocked_us = now_us  # it may ask for less
        line.waiters = deque(waiter for waiter in line.waiters if waiter.id != waiter_id)
        return True

    def expired(self, now_us: int) -> list[Waiter]:
        """Returns the tasks that have waited as long as they may; the caller must `remove` them."""
        return [w for line in self._lines.values() for w in line.waiters if w.until_us <= now_us]

    def next(self, now_us: int) -> Waiter | None:
        """Returns the task to try now; None: there is none until `wake_us`."""
        if self.is_held(now_us):
            return None
        ready = [
            line for line in self._lines.values() if line.waiters and line.blocked_us <= now_us
        ]
        if not ready:
            return None
        return min(ready, key=lambda line: (line.finish, line.waiters[0].joined_us)).waiters[0]

    def wake_us(self) -> int | None:
        """Returns when to call `next` again if nothing else happens; None if no task waits."""
        waiting = [line for line in self._lines.values() if line.waiters]
        if not waiting:
            return None
        soonest = max(self._held_us, min(line.blocked_us for line in waiting))
        return min(soonest, min(w.until_us for line in waiting for w in line.waiters))

    def served(self, waiter: Waiter, now_us: int) -> None:
        """Removes a task that was admitted."""
        line = self._lines[waiter.tenant_id]
        self._now = max(self._now, line.finish)
        line.finish += waiter.tag_length
        if self._served_us is not None:
            self._num_pauses += 1
            share = 1 / min(self._num_pauses, MIN_PAUSES)
            self._pause_us += (now_us - self._served_us - self._pause_us) * share
        self._served_us = now_us
        self.remove(waiter.id, now_us)

    def put_back(self, waiter: Waiter, block: Block, now_us: int) -> None:
        """Blocks the line of a task that could not be admitted."""
        line = self._lines.get(waiter.tenant_id)
        if line is not None and line.waiters and line.waiters[0].id == waiter.id:
            line.block(block, now_us)

    def hold(self, until_us: int) -> None:
        """Blocks the whole group until then, or until a task is `released`."""
        self._held_us = until_us

    def released(self, tenant_id: str, now_us: int) -> bool:
        """Notes that a tenant's task has ended; returns whether a waiting one may be tried."""
        line = self._lines.get(tenant_id)
        was_held = self.is_held(now_us) and len(self) > 0
        self._held_us = min(self._held_us, now_us)
        if line is not None and line.waiters and line.unit == "concurrent":
            line.blocked_us = min(line.blocked_us, now_us)
            return True
        return was_held

    def positions(self, now_us: int) -> dict[str, QueuePosition]:
        """Returns each task's position and likely wait, by id."""
        tagged: list[tuple[int, int, str]] = []
        for line in self._lines.values():
            tag = line.finish
            for waiter in line.waiters:
                tagged.append((tag, waiter.joined_us, waiter.id))
                tag += waiter.tag_length
        order = {name: position for position, (_, _, name) in enumerate(sorted(tagged), start=1)}
        is_held = self.is_held(now_us)
        positions: dict[str, QueuePosition] = {}
        for line in self._lines.values():
            expected_us = float(max(0, line.blocked_us - now_us))
            for number, waiter in enumerate(line.waiters):
                if number:
                    expected_us += line.cost_us(waiter.tokens, self._pause_us)
                position = order[waiter.id]
                least_us = position * self._pause_us if is_held else 0.0
                positions[waiter.id] = QueuePosition(
                    position=position, expected_us=round(max(expected_us, least_us))
                )
        return positions

    def expected_us(
        self,
        tenant_id: str,
        tokens: int,
        now_us: int,
        block: Block | None = None,
        *,
        guess: bool = True,
    ) -> int:
        """Estimates how long one more task of a tenant would wait after a first try's `block`.

        Without `guess` only certain waits count, for refusals: refills, and slots once measured.
        """
        pause_us = self._pause_us if guess or self._num_pauses >= MIN_PAUSES else 0.0
        own_us = 0
        if block is not None and (guess or block.unit != "concurrent"):
            own_us = block.wait_us
        held_us = (len(self) + 1) * pause_us if self.is_held(now_us) else 0.0
        line = self._lines.get(tenant_id)
        if line is None or not line.waiters:
            return round(max(own_us, held_us))
        first_us = max(0, line.blocked_us - now_us)
        if line.unit == "concurrent" and not guess:
            first_us = 0  # only when to look again
        rest = [*(waiter.tokens for waiter in islice(line.waiters, 1, None)), tokens]
        after_us = sum(line.cost_us(each, pause_us) for each in rest)
        return round(max(own_us, held_us, first_us + after_us))

    def _forget(self) -> None:
        """Drops the lines of tenants that do not wait and are not ahead of the others."""
        idle = [(name, line) for name, line in self._lines.items() if not line.waiters]
        for name, line in sorted(idle, key=lambda item: item[1].finish > self._now):
            if line.finish > self._now and len(self._lines) <= MAX_LINES_KEPT:
                return
            del self._lines[name]
