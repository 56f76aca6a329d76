"""A store's error says what happened, and what to do: of a read nothing can have been done."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ResponseError

from gateway.admin.store_errors import told_of
from router.policy.store import PolicyStoreUnavailable
from router.pools.redis_pools import PoolsUnavailable

WRONG = "WRONGTYPE Operation against a key holding the wrong kind of value"
FULL = "command not allowed when used memory > 'maxmemory'. script: on @user_script:385."
READ_ONLY = ResponseError("READONLY You can't write against a read only replica.")
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
    of_policies = PolicyStoreUnavailable("Redis: ReadOnlyError")
    of_policies.__cause__ = READ_ONLY
    for error in (READ_ONLY, of_policies):
        assert told_of(error, writes=True).message == (
            "Redis answers with an error (READONLY You can't write against a read only replica.). "
            "See to Redis first, then try again."
        )


def test_a_redis_that_is_full_is_told_in_plain_words() -> None:
    of_policies = PolicyStoreUnavailable("Redis: OutOfMemoryError")
    of_policies.__cause__ = OutOfMemoryError(FULL)
    for error in (OutOfMemoryError(FULL), of_policies, PoolsUnavailable(f"Redis: OOM {FULL}")):
        message = told_of(error, writes=False).message
        assert message.startswith("Redis is full: it holds as much as its `maxmemory` allows")
        assert "script" not in message
