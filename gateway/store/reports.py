"""Reports of the store's writers, from which metrics are made."""

from typing import Literal

import msgspec

Recorded = Literal["written", "dropped", "failed"]  # what became of a line of the decision log


class LedgerReport(msgspec.Struct, frozen=True):
    """Holds the counts of the usage ledger."""

    num_waiting: int = 0  # in this process
    num_entries: int = 0  # in the stream, as last seen
    num_appended: int = 0
    num_lost: int = 0  # for want of room in this process
    num_dropped: int = 0  # at the stream's old end, by this process's batches
    num_forgotten: int = 0  # that Redis had taken, and lost with a master or its data
    max_entries: int = 0  # of the stream, beyond which the oldest are dropped
