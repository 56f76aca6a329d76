"""A store's error says what happened, and what to do: of a read nothing can have been done."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.admin.store_errors import told_of
from router.policy.store import PolicyStoreUnavailable
from router.pools.redis_pools import PoolsUnavailable

WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"
ERRORS = [
    RedisConnectionError("no route"),
    ResponseError("OOM command not allowed"),
    ResponseError(WRONG),
    PolicyStoreUnavailable("Redis: TimeoutError: "),
    PoolsUnavailable("Redis is away"),
    PoolsUnavailable(WRONG),
]


@pytest.mark.parametrize("error", ERRORS)
def test_only_what_writes_may_have_been_done(error: Exception) -> None:
    read, write = (told_of(error, writes=writes) for writes in (False, True))
    assert "It may have done it all the same" not in read.message
    assert "It may have done it all the same" in write.message
    assert read.code == write.code == "server_is_overloaded"


@pytest.mark.parametrize("error", [ResponseError(WRONG), PoolsUnavailable(WRONG)])
def test_a_key_of_another_type_is_to_be_deleted(error: Exception) -> None:
    message = told_of(error, writes=False).message
    assert "does not answer" not in message
    assert "Try again" not in message
    assert "another type" in message
    assert "delete" in message


def test_an_error_that_redis_answers_with_is_told_as_it_is() -> None:
    message = told_of(ResponseError("OOM command not allowed"), writes=False).message
    assert message == "Redis answers with an error (OOM command not allowed). Try again in 1s."
