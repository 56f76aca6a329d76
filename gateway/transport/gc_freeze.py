"""Keeps the garbage collector from going through ten thousand idle sockets again and again.

A full collection looks at every object that lives, a tenth of a second per million, and nothing
streams meanwhile. Sockets live for an hour and hold some seventy objects each. So those that are
open are frozen, a few hundred at a time as they come: the collector leaves them out, and reference
counts free them when they close. Before that only the youngest objects are searched, in two
milliseconds: in a storm of reconnects everything else is new, and lives.

What dies in a cycle after it was frozen is found only when all are thawed, which takes a full
collection and happens once more sockets are gone than live, and many. Tasks and sockets leave no
cycles, so that little is lost until then.

What closed TLS sockets held is free, but stays with the process: OpenSSL's pieces and uvloop's
buffers of 256 KiB leave holes in the heap that glibc gives back only when asked (malloc_trim(3)).

An edge: it uses the event loop.
"""

import asyncio
import ctypes
import gc

MIN_FREEZE = 200  # sockets; they hold fewer objects than two young generations
MIN_THAW = 10_000
MIN_TRIM = 1_000  # to give back what a thousand TLS sockets held takes 5 to 9 ms

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others have none


class SocketAges:
    """Which step is due, from how many sockets came and went. Pure: the two below act on it."""

    def __init__(self) -> None:
        self.age = 0  # of the sockets that open now; a freeze ends it
        self.num_young = 0  # open, and not frozen
        self.num_frozen = 0  # open, and frozen
        self.num_dead = 0  # closed after they were frozen
        self.num_closed = 0  # since the last trim

    def opened(self) -> int:
        """One has; returns its age, to be told when it closes."""
        self.num_young += 1
        return self.age

    def closed(self, age: int) -> None:
        """One has, that opened in that age."""
        self.num_closed += 1
        if age == self.age:
            self.num_young -= 1
        else:
            self.num_frozen -= 1
            self.num_dead += 1

    def freeze_due(self) -> bool:
        """Whether it should be done now; it is taken as done."""
        if self.num_young < MIN_FREEZE:
            return False
        self._freeze_all()
        return True

    def thaw_due(self) -> bool:
        """The same of a thaw, which ends with a freeze."""
        if self.num_dead < max(MIN_THAW, self.num_frozen):
            return False
        self._freeze_all()
        self.num_dead = 0
        return True

    def trim_due(self) -> bool:
        """The same of giving free memory back."""
        if self.num_closed < MIN_TRIM:
            return False
        self.num_closed = 0
        return True

    def _freeze_all(self) -> None:
        self.age += 1
        self.num_frozen += self.num_young
        self.num_young = 0


def note_opened(ages: SocketAges) -> int:
    """A socket has opened; its age. Freezes what lives, if that is due."""
    age = ages.opened()
    if ages.freeze_due():
        gc.collect(0)
        gc.freeze()
    return age


async def thaw_and_trim(ages: SocketAges) -> None:
    """Now and then: thaw, if that is due, and freeze what is still alive; give memory back."""
    if ages.thaw_due():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    if ages.trim_due() and _malloc_trim is not None:
        await asyncio.to_thread(_malloc_trim, ctypes.c_size_t(0))
