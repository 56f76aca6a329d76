"""A redis-py client for what is not on a task's path: stored responses, keys, policies, beats."""

import ssl
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from router.redis_url import RedisTarget, parse_redis_url


def redis_client(url: str, *, timeout_s: float) -> Redis:
    """A client of any target; connects at the first call, does not try again by itself.

    A Cluster's client has the same methods, where all keys of a call share a slot.
    """
    target = parse_redis_url(url)
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "username": target.username,
        "password": target.password,
        **_tls_options(target),
    }
    host, port = target.addresses[0]
    if target.kind == "cluster":
        nodes = [ClusterNode(*address) for address in target.addresses]
        retry = Retry(NoBackoff(), 1)  # one more try after the slots were read anew
        return cast(Redis, RedisCluster(startup_nodes=nodes, retry=retry, **options))
    options |= {"db": target.db, "retry": Retry(NoBackoff(), 0)}
    if target.kind == "sentinel":
        asked = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "username": target.sentinel_username,
            "password": target.sentinel_password,
            **_tls_options(target),
        }
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            list(target.addresses), sentinel_kwargs=asked
        )
        return cast(Redis, sentinel.master_for(target.master, **options))
    if target.is_unix:
        return Redis(unix_socket_path=host, **options)
    return Redis(host=host, port=port, **options)


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
