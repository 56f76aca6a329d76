"""Holds the parts of the gateway that routes need: one `Services` per process. This is an edge."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeAlias, TypeVar

from litestar.connection import ASGIConnection
from litestar.response.base import ASGIResponse
from litestar.types import Receive

from gateway.access.access import Access
from gateway.access.admin_keys import AdminKeys
from gateway.access.socket_tickets import SocketTickets
from gateway.backtest.apart import Apart
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from gateway.config.config import Config, admin_keys
from gateway.core.backends import Backends
from gateway.core.gateway import Gateway
from gateway.core.relays import Relays
from gateway.fleet.fleet import Fleet
from gateway.http.background import BackgroundRuns
from gateway.http.batch_route import RouteBatches
from gateway.http.model_list import model_list
from gateway.live.feed import Feed
from gateway.rejoin.rejoins import Rejoins
from gateway.store.erasures import Erasures, Kind
from gateway.store.kept_answers import KeptAnswers
from gateway.store.ledger import Ledger
from gateway.store.policy_watch import PolicyWatch
from gateway.transport.socket_protocol import VISIT
from gateway.wire.errors import ProtocolError
from gateway.wire.sealing import Seals, make_seals
from router.classify.task import Tenant
from router.learn.learned_store import LearnedStore
from router.pools.ceiling_leases import CeilingLeases

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

Headers = Mapping[str, str]
# Answers a request of a tenant, from its body and its headers; may watch whether its client leaves.
Post: TypeAlias = "Callable[[Services, Tenant, bytes, Receive, Headers], Awaitable[ASGIResponse]]"


@dataclass(slots=True)
class Services:
    """Holds what the routes need; they find it as `app.state.services`."""

    config: Config
    gw: Gateway
    backends: Backends  # the gateway's
    access: Access
    ledger: Ledger
    background: BackgroundRuns
    learned: LearnedStore
    admin_keys: AdminKeys
    policies: PolicyWatch
    route_batches: RouteBatches
    feed: Feed  # of the console
    socket_tickets: SocketTickets
    kept_answers: KeptAnswers
    erasures: Mapping[Kind, Erasures]
    relays: Relays
    rejoins: Rejoins
    fleet: Fleet | None  # the workers on this machine, where this is one of several
    ceiling_leases: CeilingLeases | None  # if any group has a ceiling
    num_redis_restarts: Callable[[], int]  # of the embedded Redis, if this process runs it
    tls: ssl.SSLContext | None  # of new connections, where TLS is served
    started_s: int = field(default_factory=lambda: int(time.time()))  # Unix time
    backtests: Apart = field(default_factory=Apart)
    _apart: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def apart(
        self, call: Callable[_Arguments, _Result], *args: _Arguments.args, **more: _Arguments.kwargs
    ) -> _Result:
        """Makes a call that takes long in a thread, one at a time: threads share one interpreter.

        So what admins send cannot take more of it than the event loop has.
        """
        async with self._apart:
            return await asyncio.to_thread(call, *args, **more)

    async def forget(self, tenant_id: str) -> None:
        """Drops what this process has in memory of a tenant; its background runs end."""
        await self.background.erase(tenant_id)
        self.gw.store.forget(tenant_id)
        self.gw.budgets.memory.forget(tenant_id)
        self.gw.experience.erase(tenant_id)
        if self.gw.recorder is not None:
            self.gw.recorder.erase(tenant_id)

    async def forget_response(self, response_id: str) -> None:
        """Lets no connection of this process continue a deleted response from its memory."""
        self.gw.budgets.memory.delete(response_id)

    def configure(self, config: Config) -> None:
        """Goes on with a changed configuration; its policy and backends are replaced elsewhere."""
        self.config = config
        self.admin_keys.configure(admin_keys(config))
        self.access.configure(config)
        self.gw.reseal(seals_of(self.access, config))
        self.gw.prices.configure(config.prices)
        if self.ceiling_leases is not None:
            self.ceiling_leases.configure(config.own_ceilings)

    def caller(self, scope: Any, headers: Mapping[str, str]) -> Tenant:
        """Returns the tenant whose key a request shows, and counts its connection for that key.

        Raises `ProtocolError` if the key is not valid, or has too many connections.
        """
        tenant = self.access.keys.tenant(headers, self.gw.wall_s())
        self.count_connection(scope, tenant.key_id, tenant.id)
        return tenant

    def count_connection(self, scope: Any, key_id: str, tenant_id: str = "") -> None:
        """Counts a request's connection for a valid key; raises if it has too many."""
        visit = scope.get("state", {}).get(VISIT)
        if visit is None:
            return
        visit.tenant_id = tenant_id
        # Keys of the configuration have the same ids in each tenant.
        name = f"{tenant_id}/{key_id}"
        if name != visit.key_id and not visit.shows(name):
            limit = self.config.connections.max_per_key
            raise ProtocolError(
                "rate_limit_exceeded",
                f"This key has {limit} connections open here, as many as it may. Send more tasks "
                "on those, or close some. Try again in 1s.",
                retry_after_us=1_000_000,
            )

    @property
    def own_engines(self) -> frozenset[str]:
        """Names the backends that live and die with this gateway: simulated engines."""
        configs = self.configured_backends
        return frozenset(each.name for each in configs if isinstance(each, SimulatedConfig))

    @property
    def configured_backends(self) -> tuple[BackendConfig, ...]:
        """Returns the backends, with the engines that workers share instead of links to them."""
        shared = {each.name: each for each in self.fleet.engines} if self.fleet else {}
        return tuple(shared.get(each.name, each) for each in self.config.backends)

    def backends_down(self) -> list[str]:
        """Names the backends that take no tasks at the moment, but for those that are drained."""
        every = (stats for stats in self.gw.backend_stats() if not stats.drained)
        return [stats.info.name for stats in every if not stats.healthy or stats.ejected]

    def backends_drained(self) -> list[str]:
        """Names the backends that an admin lets have no new tasks."""
        return [stats.info.name for stats in self.gw.backend_stats() if stats.drained]

    def catalogue(self, tenant: Tenant) -> dict[str, Any]:
        """Lists what a tenant's `model` may be, by the policy in force."""
        policy = self.gw.state.policy.for_tenant(tenant.id)
        return model_list(self.gw.infos.values(), policy, self.started_s, self.relays.models())


def services_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Services:
    """Returns the services of the application that a request or a connection came to."""
    services: Services = connection.app.state.services
    return services


def seals_of(access: Access, config: Config) -> Seals:
    """Makes the seals of compactions, from secrets that all gateways share."""
    return make_seals(access.peppers, (key for tenant in config.tenants for key in tenant.keys))
