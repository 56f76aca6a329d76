"""Translates the stores' errors into the admin API's responses, in one table. This is an edge."""

from collections.abc import Callable
from typing import Any

from litestar import Response
from redis.exceptions import RedisError, ResponseError

from gateway.access.redis_fault import away, is_full, overloaded, redis_fault
from gateway.admin.guard import is_write
from gateway.http.routes import answer_error
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.policy.policy import PolicyError
from router.policy.store import NoSuchVersion, PolicyConflict, PolicyStoreUnavailable
from router.pools.redis_pools import PoolsUnavailable
from router.redis.connection import is_wrong_type

_LISTED = "`lanewise policy list` (GET /admin/policies) has those that there are."
_DELETE_POOLS = (
    "One has another type than the gateway gave it: delete `lw1:{TENANT}:lease` and "
    "`lw1:{TENANT}:p:*`, and the tenant begins with full pools."
)


def _redis_error(error: Exception, writes: bool) -> ProtocolError:
    return redis_fault(error, writes=writes)


def _policy_store_error(error: Exception, writes: bool) -> ProtocolError:
    if isinstance(error.__cause__, ResponseError):
        return redis_fault(error.__cause__, writes=writes)
    return away(f"The policy store does not answer ({error})", writes=writes)


def _pools_error(error: Exception, writes: bool) -> ProtocolError:
    if is_wrong_type(error):
        return overloaded(f"Redis cannot use this tenant's keys ({error}). {_DELETE_POOLS}")
    if is_full(error):
        return redis_fault(error, writes=writes)
    return away(f"The pools do not answer: {error}", writes=writes)


_PROTOCOL_ERRORS: dict[type[Exception], Callable[[Exception, bool], ProtocolError]] = {
    PolicyError: lambda error, _: ProtocolError("invalid_value", str(error), param="document"),
    NoSuchVersion: lambda error, _: ProtocolError("not_found", f"{error}. {_LISTED}"),
    PolicyConflict: lambda error, _: ProtocolError("conflict", f"{error}.", param="expected"),
    PolicyStoreUnavailable: _policy_store_error,
    PoolsUnavailable: _pools_error,
    RedisError: _redis_error,
}


def told_of(error: Exception, *, writes: bool) -> ProtocolError:
    """Returns what is told of a store's error; `writes`: the request was to change something."""
    kind = next(kind for kind in type(error).__mro__ if kind in _PROTOCOL_ERRORS)
    return _PROTOCOL_ERRORS[kind](error, writes)


def _answer(request: AnyRequest, error: Exception) -> Response[bytes]:
    writes = is_write(request.method, request.route_handler.opt)
    return answer_error(request, told_of(error, writes=writes))


STORE_ERRORS: dict[Any, Any] = dict.fromkeys(_PROTOCOL_ERRORS, _answer)
