"""Queries the workers of this machine, through their supervisor. This is an edge."""

import msgspec

from gateway.config.backend_kinds import SimulatedConfig
from gateway.fleet.channel import Channel, ChannelClosed
from gateway.wire.errors import ProtocolError

ASK_TIMEOUT_S = 5.0  # the supervisor waits less for each worker
METRICS = "metrics of all"
# Each name of a query has the word that the supervisor gets.
OF_ALL = {
    "health": "health of all",
    "decisions": "decisions of all",
    "live": "samples of all",
}


_ENGINES = msgspec.json.Decoder(tuple[SimulatedConfig, ...])


class Fleet:
    """Lets one worker query all workers, itself included."""

    def __init__(self, channel: Channel, engines: bytes, *, is_successor: bool = False) -> None:
        """Takes as `engines`, in JSON, the backends that run in a process of this machine's own.

        An `is_successor` takes the place of a worker that still runs.
        """
        self.is_successor = is_successor
        self.configure(engines)
        self._channel = channel

    def configure(self, engines: bytes) -> None:
        """Replaces those backends."""
        self.engines: tuple[SimulatedConfig, ...] = _ENGINES.decode(engines)

    async def metrics(self) -> bytes:
        """Returns the metrics of all workers, as text.

        Raises:
            ProtocolError: The supervisor does not answer. One worker's metrics instead of all
                would look like a restart.
        """
        return await self._ask(METRICS)

    async def gather(self, what: str) -> list[bytes]:
        """Returns the replies to a word of `OF_ALL`, of the workers that answer.

        Raises `ProtocolError` if the supervisor does not answer.
        """
        return msgspec.msgpack.decode(await self._ask(OF_ALL[what]), type=list[bytes])

    async def _ask(self, word: str) -> bytes:
        try:
            return await self._channel.ask(word, ASK_TIMEOUT_S)
        except ChannelClosed as closed:
            message = f"The workers' supervisor does not answer: {closed}. Try again in 1s."
            error = ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)
            raise error from closed
