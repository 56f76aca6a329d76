"""Defines what processes tell each other of lost responses, as msgpack on channels of Redis.

A process that keeps a lost response sends a `Lease` to all, with keyed hashes of all that decides
the answer: who has the same request can tell, and nobody can read it. The process that the client
comes back to sends a `Claim`, and `Listens` once it does; then it gets each event as `Told`, and
`Finished` with what the next turn continues. `Remembers`, `Recall` and `Recalled` do the same for
what a lost connection remembered.
"""

from typing import Literal

import msgspec

from backends.contract import ContextItem
from gateway.core.job import Ended
from gateway.store.stored_response import Lineage
from gateway.wire.sealing import Seals


class Lease(msgspec.Struct, frozen=True, array_like=True, tag="lease"):
    """Says who keeps a lost response, and which request comes back to it."""

    id: str  # the response's
    owner: str  # the channel of its process
    tenant_id: str
    key_id: str
    mac: bytes  # of its settings, turn and whole context
    num_items: int  # of that context
    own_mac: bytes  # of its request as it came, with the name of what that continues
    life_s: float
    anchor: int = 0  # the last bits of `matching.anchor_of`, by which it is looked up


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """Says that nobody can come back to a response of that process any more."""

    id: str
    owner: str


class Remembers(msgspec.Struct, frozen=True, array_like=True, tag="remembers"):
    """Says which responses of a lost connection can be continued, and who remembers them."""

    owner: str
    ids: tuple[str, ...]
    life_s: float


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="recall"):
    """Asks for what is remembered of a response."""

    id: str
    inbox: str  # of who asks
    number: int  # of the question, there
    key: tuple[str, str]  # of the tenant, and its key


class Recalled(msgspec.Struct, array_like=True, tag="recalled"):
    """Answers a `Recall`; without items, nothing of the response is remembered."""

    number: int
    items: tuple[ContextItem, ...] = ()
    backend: str | None = None
    lineage: Lineage = Lineage()


class Claim(msgspec.Struct, frozen=True, array_like=True, tag="claim"):
    """Asks for a response: its client has come back."""

    id: str
    inbox: str  # of who asks
    number: int  # of the claim, there
    key: tuple[str, str]  # of the tenant, and its key
    tail: tuple[ContextItem, ...] = ()  # what the client holds besides the context
    asides: tuple[str, ...] = ()
    starting_after: int | None = None  # asked by name: the last event that the client has


class Granted(msgspec.Struct, frozen=True, array_like=True, tag="granted"):
    """Answers a claim."""

    number: int
    outcome: Literal["joined", "superseded", "gone"]
    owner: str  # the channel of who answers


class Listens(msgspec.Struct, frozen=True, array_like=True, tag="listens"):
    """Says that the client listens."""

    inbox: str
    number: int
    stream_id: str | None


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """Holds an event for the client."""

    number: int
    kind: str
    event: bytes


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """Ends a claim."""

    number: int
    ended: Ended | None


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Says that the other side lives; `inbox` is empty on the way to who claimed."""

    inbox: str
    number: int


class Left(msgspec.Struct, frozen=True, array_like=True, tag="left"):
    """Says that the client has gone, or that its connection was lost again, or that it cancels."""

    inbox: str
    number: int
    how: Literal["gone", "lost", "cancelled", "steered", "draining", "awaited"]


Note = (
    Lease
    | Gone
    | Remembers
    | Recall
    | Recalled
    | Claim
    | Granted
    | Listens
    | Told
    | Finished
    | Beat
    | Left
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Note])


def packed(notes: list[Note]) -> bytes:
    """Returns notes as one message."""
    return _encoder.encode(notes)


def unpacked(message: bytes) -> list[Note]:
    """Returns a message's notes; raises `msgspec.MsgspecError` if another version sent it."""
    return _decoder.decode(message)


class Identity(msgspec.Struct, frozen=True):
    """Holds all of a request that decides the answer, but its context."""

    tenant_id: str
    key_id: str
    turn: tuple[str | None, str | None]
    settings: bytes

    def mac(self, seals: Seals, items: tuple[ContextItem, ...], continues: str = "") -> bytes:
        """Returns the keyed hash of the request with that context."""
        content = [each.item for each in items]
        return seals.mac_of_request(_encoder.encode((self, continues, content)))
