"""Translates the stores' errors into the admin API's responses, in one table. This is an edge."""

from collections.abc import Callable
from typing import Any

from litestar import Response
from redis.exceptions import RedisError

from gateway.http.routes import answer_error
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.policy.policy import PolicyError
from router.policy.store import NoSuchVersion, PolicyConflict, PolicyStoreUnavailable
from router.pools.redis_pools import PoolsUnavailable


def _away(message: str) -> ProtocolError:
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)


_PROTOCOL_ERRORS: dict[type[Exception], Callable[[Exception], ProtocolError]] = {
    PolicyError: lambda error: ProtocolError("invalid_value", str(error), param="document"),
    NoSuchVersion: lambda error: ProtocolError("not_found", f"{error}."),
    PolicyConflict: lambda error: ProtocolError("conflict", f"{error}.", param="expected"),
    PolicyStoreUnavailable: lambda error: _away(
        f"The policy store does not answer ({error}). Try again in 1s."
    ),
    PoolsUnavailable: lambda error: _away(f"The pools do not answer: {error}. Try again in 1s."),
    RedisError: lambda error: _away(
        f"Redis does not answer ({type(error).__name__}). It may have done it all the same: look, "
        "and try again in 1s."
    ),
}


def _answer_with(
    translate: Callable[[Exception], ProtocolError],
) -> Callable[[AnyRequest, Exception], Response[bytes]]:
    return lambda request, error: answer_error(request, translate(error))


STORE_ERRORS: dict[Any, Any] = {
    kind: _answer_with(translate) for kind, translate in _PROTOCOL_ERRORS.items()
}
