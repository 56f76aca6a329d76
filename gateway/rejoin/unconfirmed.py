"""The latest response of a stream, while its client may lose the connection before its end."""

import msgspec

from gateway.core.job import Ended, Job
from gateway.wire.response import ResponseStream


class Unconfirmed(msgspec.Struct, eq=False):
    """The latest response of a stream: its client may have lost the connection before its end."""

    job: Job | None
    writer: ResponseStream | None
    ended: Ended | None
    num_bytes: int
    ended_us: int = 0

    def clear(self) -> None:
        """Forgets it: it was received, or it is too old."""
        self.job = self.writer = self.ended = None
