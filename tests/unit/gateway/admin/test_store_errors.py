"""A store's error says what happened, and what to do: of a read nothing can have been done."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.admin.store_errors import told_of
from router.policy.store import PolicyStoreUnavailable
from router.pools.redis_pools import PoolsUnavailable

WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"
FULL = ResponseError("OOM command not allowed")
LOST = [
    RedisConnectionError("no route"),
    PolicyStoreUnavailable("Redis: TimeoutError: "),
    PoolsUnavailable("Redis is away"),
]


@pytest.mark.parametrize("error", LOST)
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


def test_an_error_that_redis_answers_with_is_no_lost_reply() -> None:
    of_policies = PolicyStoreUnavailable("Redis: OutOfMemoryError")
    of_policies.__cause__ = FULL
    for error in (FULL, of_policies):
        assert told_of(error, writes=True).message == (
            "Redis answers with an error (OOM command not allowed). See to Redis first, then try "
            "again."
        )
