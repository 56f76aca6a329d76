"""Keeps the garbage collector from scanning ten thousand idle sockets again and again.

A full collection scans every live object, a tenth of a second per million, and blocks all streams.
Sockets live for an hour and hold some seventy objects each. So open sockets are frozen, a few
hundred at a time: the collector skips them, and reference counts free them when they close. Before
a freeze only the youngest objects are collected, in two milliseconds, since nearly everything that
is new in a storm of reconnects is alive.

A cycle that becomes garbage after it was frozen is found only when all objects are unfrozen. That
takes a full collection, and happens once many sockets have closed, and more than are open. Tasks
and sockets leave no cycles, so little is lost until then.

The memory of closed TLS sockets is free, but stays with the process: OpenSSL's allocations and
uvloop's buffers of 256 KiB leave holes that glibc returns only when asked (malloc_trim(3)).
This is an edge.
"""

import asyncio
import ctypes
import gc

MIN_FREEZE = 200  # sockets; their objects fill less than two young generations
MIN_THAW = 10_000
MIN_TRIM = 1_000  # trimming after a thousand TLS sockets takes 5 to 9 ms

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others have none


class SocketAges:
    """Counts sockets to decide which step is due. Pure: the two functions below act on it."""

    def __init__(self) -> None:
        self.age = 0  # the generation of new sockets; each freeze begins another
        self.num_young = 0  # open, and not frozen
        self.num_frozen = 0  # open, and frozen
        self.num_dead = 0  # closed after they were frozen
        self.num_closed = 0  # since the last trim

    def opened(self) -> int:
        """Counts an opened socket; returns its generation, which `closed` takes."""
        self.num_young += 1
        return self.age

    def closed(self, age: int) -> None:
        """Counts a closed socket of that generation."""
        self.num_closed += 1
        if age == self.age:
            self.num_young -= 1
        else:
            self.num_frozen -= 1
            self.num_dead += 1

    def freeze_due(self) -> bool:
        """Says whether to freeze now; if so, counts it as done."""
        if self.num_young < MIN_FREEZE:
            return False
        self._freeze_all()
        return True

    def thaw_due(self) -> bool:
        """Says whether to unfreeze now, collect and freeze again; counts it as done."""
        if self.num_dead < max(MIN_THAW, self.num_frozen):
            return False
        self._freeze_all()
        self.num_dead = 0
        return True

    def trim_due(self) -> bool:
        """Says whether to return free memory now; counts it as done."""
        if self.num_closed < MIN_TRIM:
            return False
        self.num_closed = 0
        return True

    def _freeze_all(self) -> None:
        self.age += 1
        self.num_frozen += self.num_young
        self.num_young = 0


def note_opened(ages: SocketAges) -> int:
    """Counts an opened socket and returns its generation; freezes live objects if due."""
    age = ages.opened()
    if ages.freeze_due():
        gc.collect(0)
        gc.freeze()
    return age


async def thaw_and_trim(ages: SocketAges) -> None:
    """Does what is due: unfreezes, collects and freezes again; returns free memory."""
    if ages.thaw_due():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    if ages.trim_due() and _malloc_trim is not None:
        await asyncio.to_thread(_malloc_trim, ctypes.c_size_t(0))
