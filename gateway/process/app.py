"""Makes and wires all parts, closes them in order, and mounts the routes: the composition root.

This is an edge.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from litestar import Litestar
from litestar.datastructures import State
from litestar.openapi.spec import Components, SecurityScheme
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from redis.asyncio import Redis

from backends.contract import BackendStats
from backends.drive.driver import monotonic_us
from gateway.access.access import Access, follow_access
from gateway.access.admin_keys import AdminKeys
from gateway.access.key_sessions import KeySessions
from gateway.access.socket_tickets import SocketTickets
from gateway.admin.backtest import check_prediction
from gateway.admin.routes import ADMIN
from gateway.config.certificate import tls_context
from gateway.config.config import Config, admin_keys
from gateway.config.policy_file import load_policy
from gateway.config.sections import ConfigError, MemoryConfig, masked_url
from gateway.config.version import VERSION
from gateway.console.routes import HANDLERS as CONSOLE
from gateway.core.adaptation import Adaptation
from gateway.core.backends import Backends
from gateway.core.budget_posts import BudgetPosts
from gateway.core.gateway import DetachedCalls, Gateway, GatewayState
from gateway.core.relays import Relays
from gateway.core.spending import tell_budgets
from gateway.core.turn_end import TurnEnd
from gateway.core.waiting_room import WaitingRoom
from gateway.fleet.fleet import Fleet
from gateway.http.background import BackgroundRuns
from gateway.http.batch_route import RouteBatches, live_desk
from gateway.http.routes import EXCEPTION_HANDLERS, HANDLERS, served_methods
from gateway.http.services import Services, seals_of
from gateway.http.streams import AnyRequest
from gateway.live.sources import make_feed
from gateway.logs.task_line import TaskLog
from gateway.metrics.metrics import Metrics
from gateway.openapi.document import RENDERINGS, TENANT_KEY, OpenApiConfig, schema_routes
from gateway.process.embedded_redis import redis_at
from gateway.process.maintenance import every, follow_evictions, maintenance
from gateway.process.stopping import LastCalls
from gateway.rejoin.elsewhere import Elsewhere
from gateway.rejoin.rejoins import Rejoins
from gateway.store.decision_log import LogInUse, Recorder, unwritable
from gateway.store.erasures import erasures_of
from gateway.store.kept_answers import TTL_S, KeptAnswers
from gateway.store.ledger import Ledger, open_ledger
from gateway.store.ledger_entry import LedgerEntry
from gateway.store.policy_watch import InForce, PolicyWatch
from gateway.store.response_store import ResponseStore
from gateway.store.stored_bytes import ANSWERS, StoredBytes
from gateway.tracing.tracer import Tracer
from gateway.transport.byte_budgets import Budgets, ByteBudgets, MemoryBudgets
from gateway.transport.flush_timer import FlushTimer
from router.learn.experience import Experience
from router.learn.learned_store import LearnedStore
from router.money.prices import PriceList
from router.policy.store import PolicyStore
from router.pools.capped_pools import CappedPools
from router.pools.ceiling_leases import CeilingLeases
from router.pools.failover_pools import FailoverPools
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.cancelling import cancelled
from router.redis.client import redis_client
from router.redis.heartbeat import Heartbeat
from router.redis.servers import RedisServers
from router.redis.url import parse_redis_url

logger = logging.getLogger("lanewise")


# Timeouts of other Redis clients, in budgets of an admission.
STORE_BUDGETS = 5  # tasks wait for it, to load and to store responses
ADMIN_BUDGETS = 20  # no response waits for these
SHARE_INTERVAL_S = 2.0  # between two writes of what was learned
KEPT_INTERVAL_S = 1.0  # between two looks at what all tenants' kept answers come to
STORE_INTERVAL_S = 1.0  # between two looks at what Redis did not take, or lost
SWEEP_INTERVAL_S = 1.0  # between two looks at which ended responses are too old to come back to
PREDICTION_INTERVAL_S = 600.0  # between two looks at what came of the policy in force
REFRESH_INTERVAL_S = 20.0  # between two reads of what other gateways learned


def wall_s() -> int:
    """Returns the Unix time."""
    return int(time.time())


@asynccontextmanager
async def services(
    config: Config, fleet: Fleet | None = None, task_log: TaskLog | None = None
) -> AsyncIterator[Services]:
    """Starts everything, and stops it in reverse order when the context ends.

    `fleet` is a worker's, and queries all workers; `task_log` takes a line of every task.
    """
    async with AsyncExitStack() as stack:
        made = await _services(stack, config, fleet, task_log)
        checking = every(PREDICTION_INTERVAL_S, partial(check_prediction, made))
        tenants = made.erasures["tenants"].follow(made.forget)
        responses = made.erasures["responses"].follow(made.forget_response)
        _run(stack, [checking, tenants, responses])
        yield made


async def _services(
    stack: AsyncExitStack, config: Config, fleet: Fleet | None, task_log: TaskLog | None
) -> Services:
    """Makes and starts all parts; the stack stops them."""
    redis, last_calls = await _redis(stack, config), LastCalls(time.monotonic)
    ledger = await _ledger(stack, config, redis.admin, last_calls)
    backends = _closed(stack, Backends(config.backends))
    posts = _closed(stack, BudgetPosts(config.budgets.webhook_url))
    experience, key_sessions, detached = Experience(), KeySessions(), DetachedCalls()
    metrics = Metrics(version=VERSION, backends=backends.stats, experience=experience)
    state = GatewayState(load_policy(config))
    waiting = _waiting_room(config, state, detached, metrics)
    failover = await _failover_pools(stack, config, redis.url, state, waiting, metrics, last_calls)
    ceiling_leases = _ceiling_leases(stack, config, redis.url)
    stack.push_async_callback(detached.settled)
    learned = _learned_store(stack, redis.admin, experience)
    access = await _follow_access(stack, redis.admin, config, key_sessions, backends, state)
    policies = await _follow_policies(stack, config, state, metrics, redis.admin)
    gw = Gateway(
        backends=backends,
        pools=failover if ceiling_leases is None else CappedPools(failover, ceiling_leases),
        waiting=waiting,
        budgets=_budgets(config.memory),
        store=_response_store(stack, config, redis.store, failover, metrics, last_calls),
        state=state,
        metrics=metrics,
        clock_us=monotonic_us,
        wall_s=wall_s,
        key_sessions=key_sessions,
        experience=experience,
        record_usage=_usage_recorder(ledger, metrics),
        weights=config.cost_weights,
        prices=PriceList(config.prices),
        tell_budget=posts.tell,
        max_compactions=config.context.max_compactions,
        seals=seals_of(access, config),
        max_unread_bytes=config.server.max_unread_bytes,
        flush_timer=FlushTimer(config.server.flush_interval_ms / 1e3),
        adaptation=_adaptation(config, waiting, backends.stats, metrics),
        recorder=_recorder(stack, config, metrics, backends, fleet),
        tracer=_tracer(stack, config),
        task_log=task_log,
        warm_up_timeout_s=config.server.warm_up_timeout_s,
        detached=detached,
        put_off=TurnEnd().put_off,
    )
    failover.redis.on_late_budgets = partial(tell_budgets, gw)
    _run(stack, maintenance(config, gw, failover, ceiling_leases))
    return Services(
        config=config,
        gw=gw,
        backends=backends,
        access=access,
        ledger=ledger,
        background=_closed(stack, BackgroundRuns(gw, config.server.max_background_per_tenant)),
        learned=learned,
        admin_keys=AdminKeys(admin_keys(config)),
        policies=policies,
        route_batches=RouteBatches(partial(live_desk, gw)),
        socket_tickets=SocketTickets(redis.store),
        feed=_closed(stack, make_feed(gw, access.keys, policies, fleet, config.server.workers)),
        erasures=erasures_of(redis.admin),
        kept_answers=_kept_answers(stack, redis.store, failover),
        relays=_closed(stack, Relays(config.relays)),
        rejoins=_rejoins(stack, config, gw, redis.admin),
        fleet=fleet,
        ceiling_leases=ceiling_leases,
        num_redis_restarts=redis.num_restarts,
        tls=tls_context(config.server),
    )


class _Closes(Protocol):
    async def close(self) -> None: ...


_Part = TypeVar("_Part", bound=_Closes)


def _closed(stack: AsyncExitStack, part: _Part) -> _Part:
    """Has the stack close a part."""
    stack.push_async_callback(part.close)
    return part


def _tracer(stack: AsyncExitStack, config: Config) -> Tracer | None:
    if config.tracing.endpoint is None:
        return None
    tracer = Tracer(config.tracing, VERSION, random.SystemRandom())
    stack.push_async_callback(asyncio.to_thread, tracer.close)
    return tracer


def _run(stack: AsyncExitStack, coroutines: list[Coroutine[Any, Any, None]]) -> None:
    """Runs coroutines until the stack closes."""
    for coroutine in coroutines:
        stack.push_async_callback(cancelled, asyncio.create_task(coroutine))


class _Redis(NamedTuple):
    """Says where Redis is; holds the store's client, and the one for what may take longer."""

    url: str
    num_restarts: Callable[[], int]
    store: Redis
    admin: Redis


async def _redis(stack: AsyncExitStack, config: Config) -> _Redis:
    url, num_restarts = await redis_at(stack, config.redis.url)
    budget_ms = config.redis.budget_ms
    store = _client(stack, url, STORE_BUDGETS * budget_ms)
    admin = _client(stack, url, ADMIN_BUDGETS * budget_ms)
    _run(stack, [follow_evictions(admin)])
    return _Redis(url, num_restarts, store, admin)


async def _ledger(
    stack: AsyncExitStack, config: Config, redis: Redis, last_calls: LastCalls
) -> Ledger:
    opening = open_ledger(redis, config.ledger, last_calls.left_s)
    return await stack.enter_async_context(opening)


def _usage_recorder(ledger: Ledger, metrics: Metrics) -> Callable[[LedgerEntry], None]:
    """Makes what takes each settled task: the ledger keeps it, the metrics count its money."""

    def record(entry: LedgerEntry) -> None:
        ledger.add(entry)
        metrics.spent(entry)

    return record


def _budgets(config: MemoryConfig) -> Budgets:
    return Budgets(
        ByteBudgets(config.max_tenant_in_flight_bytes, config.max_in_flight_bytes),
        MemoryBudgets(config.max_tenant_remembered_bytes, config.max_remembered_bytes),
    )


def _response_store(
    stack: AsyncExitStack,
    config: Config,
    redis: Redis,
    failover: FailoverPools,
    metrics: Metrics,
    last_calls: LastCalls,
) -> ResponseStore:
    ttl_s = config.store.ttl_s
    dropped = metrics.counts["lanewise_stored_responses_dropped_total"][()]
    stored_bytes = StoredBytes(
        redis,
        ttl_s,
        config.store.max_tenant_bytes,
        config.store.max_bytes,
        dropped.inc,
    )
    lost = metrics.counts["lanewise_stored_responses_lost_total"]
    store = ResponseStore(
        redis,
        ttl_s,
        lambda: failover.mode == "redis",
        stored_bytes,
        lambda reason, num: lost[reason,].inc(num),
    )
    last_calls.close(stack, store)
    _run(stack, [every(STORE_INTERVAL_S, store.follow_up)])
    return store


def _rejoins(stack: AsyncExitStack, config: Config, gw: Gateway, redis: Redis) -> Rejoins:
    rejoins = _closed(stack, Rejoins(gw, config.server))
    rejoins.others = others = Elsewhere(gw, redis, rejoins)
    _run(stack, [every(SWEEP_INTERVAL_S, rejoins.sweep), others.run()])
    return rejoins


def _kept_answers(stack: AsyncExitStack, redis: Redis, failover: FailoverPools) -> KeptAnswers:
    stored_bytes = StoredBytes(redis, TTL_S, records=ANSWERS)
    answers = KeptAnswers(redis, lambda: failover.mode == "redis", stored_bytes)
    _run(stack, [every(KEPT_INTERVAL_S, answers.share)])
    return answers


def _waiting_room(
    config: Config, state: GatewayState, detached: DetachedCalls, metrics: Metrics
) -> WaitingRoom:
    return WaitingRoom(
        config.waiting,
        clock_us=monotonic_us,
        policy_wait_ms=lambda: state.policy.wait_ms,
        spawn=detached.spawn,
        metrics=metrics,
    )


def _client(stack: AsyncExitStack, url: str, timeout_ms: int) -> Redis:
    client = redis_client(url, timeout_s=timeout_ms / 1e3)
    stack.push_async_callback(client.aclose)
    return client


async def _failover_pools(
    stack: AsyncExitStack,
    config: Config,
    url: str,
    state: GatewayState,
    waiting: WaitingRoom,
    metrics: Metrics,
    last_calls: LastCalls,
) -> FailoverPools:
    """Opens the pools, with a heartbeat on a connection of its own."""
    budget_us = config.redis.budget_ms * 1_000
    servers = RedisServers(parse_redis_url(url), budget_us=budget_us, away=PoolsUnavailable)
    heartbeat = Heartbeat(servers, secrets.token_hex(8))
    stack.push_async_callback(heartbeat.stop)
    pools = FailoverPools(
        RedisPools(url, budget_us=budget_us),
        clock_us=monotonic_us,
        wall_us=lambda: time.time_ns() // 1_000,
        beat=heartbeat.beat,
        when_away=lambda: {**config.redis.when_away, **state.policy.when_away},
        name="the embedded Redis" if config.redis.url is None else f"Redis at {masked_url(url)}",
        on_blind=config.redis.on_blind,
        on_call=metrics.pools_call,
        on_report=metrics.pools_stand,
        on_settled=waiting.settled,
    )
    last_calls.close(stack, pools)
    await pools.greet()  # finds out whether Redis answers, before any task does
    return pools


def _learned_store(stack: AsyncExitStack, redis: Redis, experience: Experience) -> LearnedStore:
    """Shares what was learned, periodically and once more at the end."""
    learned = LearnedStore(redis, experience)
    stack.push_async_callback(learned.share)
    sharing = every(SHARE_INTERVAL_S, learned.share)
    _run(stack, [sharing, every(REFRESH_INTERVAL_S, learned.refresh)])
    return learned


def _ceiling_leases(stack: AsyncExitStack, config: Config, url: str) -> CeilingLeases | None:
    if not config.ceilings:
        return None
    budget_us = config.redis.budget_ms * 1_000
    return _closed(
        stack,
        CeilingLeases(url, secrets.token_hex(8), config.own_ceilings, budget_us=budget_us),
    )


def _adaptation(
    config: Config,
    waiting: WaitingRoom,
    stats: Callable[[], list[BackendStats]],
    metrics: Metrics,
) -> Adaptation | None:
    if not config.adaptation.groups:
        return None
    return Adaptation(
        config.adaptation, waiting=waiting, stats=stats, clock_us=monotonic_us, metrics=metrics
    )


async def _follow_access(
    stack: AsyncExitStack,
    redis: Redis,
    config: Config,
    key_sessions: KeySessions,
    backends: Backends,
    state: GatewayState,
) -> Access:
    """Follows keys and tenants, and which backends are drained."""
    following = follow_access(redis, config, key_sessions, wall_s)
    access = await stack.enter_async_context(following)
    backends.drained = state.drained = access.keys.tenant_view.drains
    return access


async def _follow_policies(
    stack: AsyncExitStack, config: Config, state: GatewayState, metrics: Metrics, redis: Redis
) -> PolicyWatch:
    """Keeps `state` on the active policy."""

    def take(in_force: InForce) -> None:
        state.policy, state.shadow = in_force.policy, in_force.shadow
        names = [policy.version for policy in (in_force.shadow, in_force.policy) if policy]
        metrics.policies_in_force(names, in_force.version, in_force.shadow_version)

    reloads = metrics.counts["lanewise_policy_reload_total"]
    policies = PolicyWatch(
        PolicyStore(redis),
        state.policy,
        cache=Path(config.policy_cache) if config.policy_cache else None,
        on_change=take,
        on_reload=lambda result: reloads[(result,)].inc(),
    )
    await policies.start()
    _run(stack, [policies.run()])
    return policies


def _recorder(
    stack: AsyncExitStack, config: Config, metrics: Metrics, backends: Backends, fleet: Fleet | None
) -> Recorder:
    """Opens the decision log's writer, which the stack flushes.

    Raises `ConfigError` if its file cannot be written.
    """
    recording = config.recording
    path = Path(recording.path) if recording.path else None
    try:
        recorder = Recorder(
            path,
            max_bytes=recording.max_bytes,
            keep=recording.keep,
            on_recorded=metrics.recorded,
            engine_settings=lambda: backends.settings(fleet.engines if fleet else ()),
            waits=fleet is not None and fleet.is_successor,
        )
    except LogInUse as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(unwritable(path, error) if path else str(error)) from error
    stack.push_async_callback(asyncio.to_thread, recorder.close)
    return recorder


class _Application(Litestar):
    """Skips Litestar's look for pydantic and attrs: importing them is a quarter of a start.

    No route here has a model of theirs.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def make_app(made: Services) -> Litestar:
    """Makes the application; its routes find everything in `app.state.services`."""
    app = _Application(
        route_handlers=[*HANDLERS, *CONSOLE, ADMIN],
        state=State({"services": made}),
        openapi_config=OpenApiConfig(
            title="Lanewise",
            version=VERSION,
            openapi_router=schema_routes(),
            render_plugins=RENDERINGS,
            components=Components(
                security_schemes={
                    name: SecurityScheme(type="http", scheme="bearer")
                    for name in ("AdminKey", TENANT_KEY)
                }
            ),
        ),
        request_max_body_size=made.config.server.max_message_bytes,
        logging_config=None,
        request_class=AnyRequest,
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.served = served_methods(app.routes)
    return app
