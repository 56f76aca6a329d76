"""Puts the pieces of an upstream's output items into the order that deltas have.

Deltas of one generation never go back to an earlier item, but an upstream may write several items
at once (parallel calls). The first open item's pieces are passed on as they come; those of later
items are buffered until every item before them is closed.
"""

from collections.abc import Hashable
from operator import attrgetter

import msgspec

from backends.bounds import OutputMeter
from backends.contract import CUSTOM_CALL, FUNCTION_CALL, REASONING, Delta, DeltaKind
from backends.tokenizer import count

MAX_ITEMS = 1_024
MAX_NAME_CHARS = 1_024  # of a call's id and name


_index_of = attrgetter("index")


class TooMuchError(Exception):
    """Says that an upstream sends more items, or longer names, than the limits allow."""


class _WrappedInput(msgspec.Struct, frozen=True):
    input: str


class OrderedItem(msgspec.Struct, eq=False, gc=False):
    """Is one item of an answer."""

    kind: DeltaKind
    call_id: str
    name: str
    wrapped: bool  # a custom call whose text is a function's arguments
    phase: str
    refuses: bool = False
    pending: list[str] = []  # texts to pass on
    num_pieces: int = 0  # that they came in
    num_pending_chars: int = 0
    sealed: str = ""
    closed: bool = False
    index: int = -1  # among the deltas' items, once a piece was passed on
    passed: list[str] = []  # on and shown to the meter, if the order keeps what was said
    num_passed_chars: int = 0

    @property
    def said(self) -> str:
        """Returns what was passed on and shown to the meter, if the order keeps that."""
        if len(self.passed) > 1:
            self.passed = ["".join(self.passed)]
        return self.passed[0] if self.passed else ""

    def note(self, text: str) -> None:
        """Notes what was passed on."""
        self.passed.append(text)
        self.num_passed_chars += len(text)


class ItemOrder(msgspec.Struct, eq=False):
    """Orders one generation's items, under any key that the protocol has for them."""

    _wrapped: frozenset[str]  # the custom tools that the upstream knows as functions
    _meter: OutputMeter  # what it does not let through is dropped
    _keeps_said: bool  # so that `said` can be asked
    max_unmeasured_tokens: int  # `num_tokens` up to which the meter need not see the text
    unmeasured: list[str] = []  # passed on, and not shown to the meter yet
    num_tokens: int = 0  # in the deltas passed on, by our own count
    num_reasoning_tokens: int = 0
    known: dict[Hashable, OrderedItem] = {}  # read only
    _latest: OrderedItem | None = None  # whose delta came last
    _queue: list[OrderedItem] = []  # with pieces to pass on, as they appeared
    _num_indexes: int = 0
    _num_waiting_chars: int = 0

    def open(
        self,
        key: Hashable,
        kind: DeltaKind,
        *,
        call_id: str = "",
        name: str = "",
        phase: str = "",
        refuses: bool = False,
        before: Hashable = None,
    ) -> None:
        """Opens an item; harmless if it is open already.

        It comes behind all others, or in front of the one that it is `before`, of which no piece
        was passed on yet.
        """
        known = self.known.get(key)
        if known is not None:
            if known.index < 0:  # no piece of it was passed on yet
                known.phase = phase or known.phase
                known.refuses = known.refuses or (refuses and not known.pending)
            return
        if len(self.known) >= MAX_ITEMS:
            raise TooMuchError(f"an answer of more than {MAX_ITEMS} items")
        if call_id or name:
            if len(call_id) > MAX_NAME_CHARS or len(name) > MAX_NAME_CHARS:
                message = f"a call whose id or name has more than {MAX_NAME_CHARS} characters"
                raise TooMuchError(message)
            self._passes(len(call_id) + len(name))
        wrapped = kind is FUNCTION_CALL and name in self._wrapped
        kind = CUSTOM_CALL if wrapped else kind
        item = self.known[key] = OrderedItem(kind, call_id, name, wrapped, phase, refuses)
        later = self.known.get(before) if before is not None else None
        if later in self._queue:
            self._queue.insert(self._queue.index(later), item)
        else:
            self._queue.append(item)

    def add(self, key: Hashable, text: str, num_pieces: int = 1) -> None:
        """Appends text to an open item; text for a closed one is dropped.

        It came in so many pieces, none of them empty. Raises `TooMuchError` if too much waits for
        earlier items; what is too much is dropped.
        """
        item = self.known[key]
        if text and not item.closed:
            num_chars = len(text)
            item.pending.append(text)
            item.num_pieces += num_pieces
            item.num_pending_chars += num_chars
            self._num_waiting_chars += num_chars
            if self._num_waiting_chars > self._meter.max_bytes:
                self._cut(item)

    def goes_on(self, key: Hashable) -> bool:
        """Says whether it is the item's turn and nothing waits, so that its text may pass.

        That stays so until the next call of another method. Whoever passes it on then adds to
        `unmeasured`, and to `num_tokens` no more than `max_unmeasured_tokens`.
        """
        item = self.known.get(key)  # one with an index that is not closed is the first in the queue
        return item is not None and item.index >= 0 and not (item.closed or self._num_waiting_chars)

    def _cut(self, item: OrderedItem) -> None:
        """Drops what is too much of an item's latest piece."""
        most = self._meter.max_bytes
        piece, num_over = item.pending[-1], self._num_waiting_chars - most
        item.pending[-1] = piece[: max(0, len(piece) - num_over)]
        self._num_waiting_chars += len(item.pending[-1]) - len(piece)
        raise TooMuchError(f"more than {most} characters out of order")

    def seal(self, key: Hashable, sealed: str) -> None:
        """Sets the encrypted content of reasoning, before the item is closed."""
        if self._passes(len(sealed)):
            self.known[key].sealed = sealed

    def _passes(self, num_bytes: int) -> bool:
        """Returns whether so many bytes that are no text may pass."""
        self.measure()
        passes = self._meter.take_bytes(num_bytes)
        self._refresh()
        return passes

    def close(self, key: Hashable) -> None:
        item = self.known[key]
        if not item.closed:
            item.closed = True
            if item.wrapped:
                text = _unwrapped("".join(item.pending))
                self._num_waiting_chars += len(text) - item.num_pending_chars
                item.pending, item.num_pieces, item.num_pending_chars = [text], 1, len(text)

    def reopen(self, key: Hashable) -> bool:
        """Opens a closed item again if no later one was passed on; returns whether it is open."""
        item = self.known[key]
        if not item.closed:
            return True
        is_latest = item.index < 0 or item.index == self._num_indexes - 1
        if not is_latest or item.wrapped or item.sealed:
            return False
        item.closed = False
        if item not in self._queue:
            self._queue.insert(len(self._queue) if item.index < 0 else 0, item)
        return True

    def close_all(self) -> None:
        for key, item in self.known.items():
            if not item.closed:
                self.close(key)

    def take(self, at_us: int) -> list[Delta]:
        """Returns the deltas that can be passed on now: one for each item with new text."""
        queue, deltas = self._queue, []
        while queue:
            item = queue[0]
            if item.index < 0 or item.closed:
                delta = self._first_or_last(item, at_us)
            else:
                delta = self._delta(item, at_us) if item.pending else None
            if delta is not None:
                deltas.append(delta)
            if not item.closed:
                break
            del queue[0]
        return deltas

    def stop(self) -> None:
        """Passes nothing on from now on."""
        self.measure()
        self._meter.stop()
        self._refresh()

    def _first_or_last(self, item: OrderedItem, at_us: int) -> Delta | None:
        """Returns an item's first delta, or what a closed one has left; None if nothing is due."""
        if item.wrapped and not item.closed:
            return None  # its text is known only once complete
        sealed = item.sealed if item.closed else ""
        if item.index < 0:
            if self._meter.is_over:
                return None
            if not item.pending and item.kind < FUNCTION_CALL and not sealed:
                return None
            item.index = self._num_indexes
            self._num_indexes += 1
            if self._keeps_said:
                if self.unmeasured:  # of the item before
                    self.measure()
                self._latest = item
        elif not item.pending and not sealed:
            return None
        return self._delta(item, at_us, sealed)

    def _delta(self, item: OrderedItem, at_us: int, sealed: str = "") -> Delta:
        """Takes an item's pending text."""
        text = item.pending[0] if len(item.pending) == 1 else "".join(item.pending)
        num_tokens, num_pieces = count(text), item.num_pieces
        if num_tokens < num_pieces:
            num_tokens = num_pieces  # one each at least, however our own rule counts their words
        item.pending, item.num_pieces, item.num_pending_chars = [], 0, 0
        self._num_waiting_chars -= len(text)
        if self.num_tokens + num_tokens > self.max_unmeasured_tokens:
            text, num_tokens = self._measured(text, num_tokens, num_pieces)
        elif text:
            self.unmeasured.append(text)
        self.num_tokens += num_tokens
        if item.kind is REASONING:
            self.num_reasoning_tokens += num_tokens
        return Delta(
            item.index,
            item.kind,
            text,
            num_tokens,
            at_us,
            item.call_id,
            item.name,
            sealed,
            item.phase,
            item.refuses,
        )

    def _measured(self, text: str, num_tokens: int, num_pieces: int) -> tuple[str, int]:
        """Returns what of a text the meter lets through, and its tokens within the limit."""
        self.measure()
        passed = self._meter.take(text)
        if self._latest is not None:
            self._latest.note(passed)
        if passed != text:
            text, num_tokens = passed, max(count(passed), num_pieces)
        num_tokens_left = self._meter.max_tokens - self.num_tokens
        num_tokens = min(num_tokens, num_tokens_left)
        if num_tokens < num_tokens_left:
            self._refresh(num_tokens)
        return text, num_tokens

    def measure(self) -> None:
        """Shows the meter what was passed on."""
        passed, self.unmeasured = self.unmeasured, []
        if passed:
            text = "".join(passed)
            self._meter.note(text)
            if self._latest is not None:
                self._latest.note(text)

    def said(self) -> list[OrderedItem]:
        """Returns the items of which something was passed on, each with what was `said` of it."""
        self.measure()
        passed = [item for item in self.known.values() if item.index >= 0]
        passed.sort(key=_index_of)
        return passed

    def given(self, key: Hashable, start: int = 0, max_chars: int | None = None) -> str | None:
        """Returns an item's text from a place in it on, whether it was passed on or waits.

        Returns None if it is longer than that, which is quick to tell. The order must keep what
        was said.
        """
        if self.unmeasured:
            self.measure()
        item = self.known[key]
        num_passed_chars = item.num_passed_chars
        num_chars = num_passed_chars + item.num_pending_chars - start
        if max_chars is not None and num_chars > max_chars:
            return None
        text = item.said[start:] if item.passed else ""
        if item.pending:
            item.pending = ["".join(item.pending)]
            text += item.pending[0][max(0, start - num_passed_chars) :]
        return text

    def num_given(self, key: Hashable) -> int:
        """Returns the length of an item's text so far, as `given` has it."""
        self.measure()
        item = self.known[key]
        return item.num_passed_chars + item.num_pending_chars

    def _refresh(self, num_more_tokens: int = 0) -> None:
        """Asks the meter how much may pass without it, beside so many tokens that it has seen."""
        num_tokens = self.num_tokens + num_more_tokens
        may_have = num_tokens + self._meter.num_free_tokens()
        most = self._meter.max_tokens
        self.max_unmeasured_tokens = may_have if may_have < most else most


def _unwrapped(arguments: str) -> str:
    """Returns the free-form input inside a function's arguments, else the arguments."""
    try:
        return msgspec.json.decode(arguments, type=_WrappedInput).input
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return arguments
