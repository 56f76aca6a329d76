"""Makes redis-py clients for calls off a task's path: stored responses, keys, policies, beats.

This is an edge.
"""

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import CrossSlotTransactionError, InvalidPipelineStack, RedisClusterException
from redis.maint_notifications import MaintNotificationsConfig

from router.redis.url import RedisTarget, parse_redis_url


def redis_client(url: str, *, timeout_s: float) -> Redis:
    """Makes an unconnected client without retries; a call's keys must share a slot of a Cluster."""
    target = parse_redis_url(url)
    common = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    common |= _tls_options(target)
    options: dict[str, Any] = {"username": target.username, "password": target.password, **common}
    host, port = target.addresses[0]
    if target.kind == "cluster":
        nodes = [ClusterNode(*address) for address in target.addresses]
        retry = Retry(NoBackoff(), 1)  # one more try after the slots were read anew
        return cast(Redis, _Cluster(startup_nodes=nodes, retry=retry, **options))
    options |= {"db": target.db, "retry": Retry(NoBackoff(), 0)}
    if target.kind == "sentinel":
        of_sentinels = {
            "username": target.sentinel_username,
            "password": target.sentinel_password,
            "retry": Retry(NoBackoff(), 0),
            **common,
        }
        sentinel = Sentinel([*target.addresses], sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
        return cast(Redis, sentinel.master_for(target.master, **options))
    if target.is_unix:
        return Redis(unix_socket_path=host, **options)
    # Where redis-py 8.1 waits for notes on the server's maintenance, as it does by default, it does
    # not look whether a connection was closed while it idled, and the next call fails.
    no_notes = MaintNotificationsConfig(enabled=False)
    return Redis(host=host, port=port, maint_notifications_config=no_notes, **options)


@contextlib.contextmanager
def _as_connection_error() -> Iterator[None]:
    """Translates the error for an unreachable Cluster, which is no `RedisError` in redis-py 8.1."""
    try:
        yield
    except (CrossSlotTransactionError, InvalidPipelineStack):
        raise  # errors of the caller
    except RedisClusterException as error:
        raise RedisConnectionError(str(error)) from error


class _Cluster(RedisCluster):
    """Makes pipelines that queue nothing before they are executed.

    When a pipeline's first command is queued and the nodes are unknown, redis-py 8.1 looks them up
    in a thread with a loop of its own, whose connections stay in the pool and fail later.
    """

    async def initialize(self, *arguments: Any, **options: Any) -> RedisCluster:
        with _as_connection_error():
            return await super().initialize(*arguments, **options)

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        with _as_connection_error():
            return await super().execute_command(*arguments, **options)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> Any:
        del shard_hint
        return _LatePipeline(self, transaction)

    def real_pipeline(self, transaction: Any) -> Any:
        return super().pipeline(transaction)


class _LatePipeline:
    """Keeps commands until `execute` queues and sends them."""

    def __init__(self, client: _Cluster, transaction: Any) -> None:
        self._client = client
        self._transaction = transaction
        self._commands: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def keep(*arguments: Any, **options: Any) -> "_LatePipeline":
            self._commands.append((name, arguments, options))
            return self

        return keep

    async def execute(self, raise_on_error: bool = True) -> Any:
        """Sends the commands; cancelling does not undo them."""
        await self._client.initialize()  # returns at once where the nodes are known
        pipe = self._client.real_pipeline(self._transaction)
        for name, arguments, options in self._commands:
            getattr(pipe, name)(*arguments, **options)
        self._commands.clear()
        with _as_connection_error():
            return await pipe.execute(raise_on_error=raise_on_error)


def _tls_options(target: RedisTarget) -> dict[str, Any]:
    if not target.tls:
        return {}
    return {
        "ssl": True,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if target.tls_verified else ssl.CERT_NONE,
        "ssl_check_hostname": target.tls_verified,
        "ssl_ca_certs": target.tls_ca_path,
        "ssl_certfile": target.tls_cert_path,
        "ssl_keyfile": target.tls_key_path,
    }
