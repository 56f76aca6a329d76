"""The other workers of this machine, as one of them sees them: asked through the supervisor.

An edge: it calls other edges.
"""

import msgspec

from gateway.fleet.channel import Channel, ChannelClosed
from gateway.wire.errors import ProtocolError

ASK_TIMEOUT_S = 5.0  # the supervisor waits less for each worker
METRICS = "metrics of all"
OF_ALL = {"health": "health of all", "decisions": "decisions of all"}  # what -> what to ask


class Fleet:
    """One worker's way to all of them, itself included."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.number = number
        self._channel = channel

    async def metrics(self) -> bytes:
        """The metrics of all, as text.

        Raises:
            ProtocolError: The supervisor does not answer. The metrics of one worker in place of
                all would read as a restart.
        """
        return await self._ask(METRICS)

    async def gather(self, what: str) -> list[bytes]:
        """What each worker answers to a word of `OF_ALL`; those that do not answer are left out.

        Raises:
            ProtocolError: The supervisor does not answer.
        """
        return msgspec.msgpack.decode(await self._ask(OF_ALL[what]), type=list[bytes])

    async def _ask(self, word: str) -> bytes:
        try:
            return await self._channel.ask(word, ASK_TIMEOUT_S)
        except ChannelClosed as closed:
            message = f"The workers' supervisor does not answer: {closed}. Try again in 1s."
            error = ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)
            raise error from closed
