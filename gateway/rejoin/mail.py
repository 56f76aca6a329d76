"""Carries notes between processes over Redis' channels: in order, and lost where Redis is away.

This is an edge.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable

import msgspec
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

from gateway.rejoin.notes import Note, packed, unpacked

logger = logging.getLogger("lanewise")

ALL = "lw1:lost"  # the channel of all processes
MAX_QUEUED = 65_536  # notes that wait to be sent; more of them are lost
MAX_IN_MESSAGE = 512
LISTEN_S = 5.0  # for a message, before the connection is looked at again
PAUSE_S = 1.0  # before a lost connection is made anew


class Mail:
    """Sends and takes the notes of one process."""

    def __init__(
        self, redis: Redis, take: Callable[[Note], None], note_dead: Callable[[str], None]
    ) -> None:
        """Calls both on the event loop: `take` with each note that comes, `note_dead` with an inbox
        that nobody listens to any more."""
        self._redis = redis
        self._take = take
        self._note_dead = note_dead
        self._is_cluster = isinstance(redis, RedisCluster)  # a node counts its own listeners only
        self.inbox = f"lw1:lost:{secrets.token_hex(8)}"
        self._queue: deque[tuple[str, Note]] = deque()
        self._has_some = asyncio.Event()
        self.is_listening = False

    def send(self, channel: str, note: Note) -> None:
        """Sends a note, after those before it."""
        if self.is_listening and len(self._queue) < MAX_QUEUED:
            self._queue.append((channel, note))
            self._has_some.set()

    async def deliver(self) -> None:
        """Sends what is queued, until cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            while self._queue:
                channel, note = self._queue.popleft()
                notes = [note]
                while self._queue and len(notes) < MAX_IN_MESSAGE and self._queue[0][0] == channel:
                    notes.append(self._queue.popleft()[1])
                try:
                    num_listening = await self._redis.publish(channel, packed(notes))
                except (RedisError, OSError) as error:
                    logger.warning("notes on lost responses were not sent: %s", error)
                    continue
                if not num_listening and channel != ALL and not self._is_cluster:
                    self._note_dead(channel)

    async def listen(self) -> None:
        """Takes what comes, until cancelled; each node of a Cluster has what any was sent."""
        while True:
            try:
                await self._redis.initialize()
                async with self._redis.pubsub() as subscription:
                    await subscription.subscribe(ALL, self.inbox)
                    self.is_listening = True
                    while True:
                        message = await subscription.get_message(
                            ignore_subscribe_messages=True, timeout=LISTEN_S
                        )
                        if message is not None:
                            self._open(message["data"])
            except (RedisError, OSError):
                await asyncio.sleep(PAUSE_S)
            finally:
                self.is_listening = False

    def _open(self, message: bytes) -> None:
        try:
            notes = unpacked(message)
        except msgspec.MsgspecError:
            return  # of another version
        for note in notes:
            try:
                self._take(note)
            except Exception:
                logger.exception("a note on a lost response could not be taken")
