"""Keeps the garbage collector from going through ten thousand idle sockets again and again.

A full collection looks at every object that lives, a tenth of a second per million, and nothing
streams meanwhile. Sockets live for an hour and hold a hundred objects each. So those that have
settled are frozen: the collector leaves them out, and reference counts free them when they close.
What dies in a cycle after it was frozen is found only when all are thawed, which happens once more
of the frozen sockets are gone than live.
"""

import gc
from typing import Literal

MIN_FREEZE = 500  # sockets; a collection of what they hold takes some 5 ms
MIN_THAW = 2_000

Step = Literal["freeze", "thaw"]


class SocketAges:
    """Which step is due, from how many sockets came and went. Pure: `keep_heap` acts on it."""

    def __init__(self) -> None:
        self.age = 0  # of the sockets that open now; a freeze ends it
        self.num_young = 0  # open, and not frozen
        self.num_frozen = 0  # open, and frozen
        self.num_dead = 0  # closed after they were frozen

    def opened(self) -> int:
        """One has; returns its age, to be told when it closes."""
        self.num_young += 1
        return self.age

    def closed(self, age: int) -> None:
        """One has, that opened in that age."""
        if age == self.age:
            self.num_young -= 1
        else:
            self.num_frozen -= 1
            self.num_dead += 1

    def due(self) -> Step | None:
        """What should be done now; it is taken as done."""
        if self.num_dead >= max(MIN_THAW, self.num_frozen):
            self._freeze_all()
            self.num_dead = 0
            return "thaw"
        if self.num_young >= MIN_FREEZE:
            self._freeze_all()
            return "freeze"
        return None

    def _freeze_all(self) -> None:
        self.age += 1
        self.num_frozen += self.num_young
        self.num_young = 0


def freeze() -> None:
    """Leave out what lives now from all collections to come; first what is dead goes."""
    gc.collect()
    gc.freeze()


async def keep_heap(ages: SocketAges) -> None:
    """Do what is due, if anything is."""
    step = ages.due()
    if step == "thaw":
        gc.unfreeze()
    if step is not None:
        freeze()
