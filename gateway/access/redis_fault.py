"""Says to an admin what became of a call that Redis did not do, and what to do about it.

This is an edge.
"""

from redis.exceptions import ResponseError

from gateway.wire.errors import ProtocolError
from router.redis.connection import is_wrong_type

_FIND_KEY = "One of its keys (`lw1:*`) has another type than the gateway gave it: delete that."
_MEND = "See to Redis first, then try again."
_AGAIN = "Try again in 1s."
_MAYBE = "It may have done it all the same, so look first. "


_FULL = (
    "Redis is full: it holds as much as its `maxmemory` allows, and drops nothing. Give it more, "
    "or `maxmemory-policy volatile-lru`, then try again."
)


def redis_fault(error: Exception, *, writes: bool) -> ProtocolError:
    """Makes the error; of what `writes` the reply may be lost after Redis did it.

    An error that Redis answers with, as where it is full or takes no writes, is no lost reply.
    """
    if is_full(error):
        return overloaded(_FULL)
    if isinstance(error, ResponseError):
        todo = _FIND_KEY if is_wrong_type(error) else _MEND
        return overloaded(f"Redis answers with an error ({error}). {todo}")
    return away(f"Redis does not answer ({type(error).__name__})", writes=writes)


def is_full(error: Exception) -> bool:
    """Says whether Redis refused a call for want of memory; a script's error has it within."""
    return "used memory > 'maxmemory'" in str(error)


def away(message: str, *, writes: bool) -> ProtocolError:
    """Makes the error for what does not answer, which `message` says without a full stop."""
    return overloaded(f"{message}. {_MAYBE if writes else ''}{_AGAIN}")


def overloaded(message: str) -> ProtocolError:
    """Makes the error of a store, after which a client may ask again."""
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)
