"""The configuration: decoded from TOML once, checked once; every default lives here."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from backends.link.backend import LinkOptions
from backends.simulated.gpu import GpuOptions
from backends.simulated.wafer import WaferOptions
from backends.upstream.options import UpstreamOptions
from gateway.config.command_error import CommandError
from gateway.config.development import DEVELOPMENT_ADMIN_KEY, DEVELOPMENT_KEY
from gateway.config.keys import DEVELOPMENT_PEPPERS, Peppers, parse_peppers
from gateway.config.tenants import (
    DEFAULT_TIERS,
    TENANT_ID,
    TenantRecord,
    Tier,
    TierConfig,
    Weight,
    fault_of_tier,
    resolve,
)
from router.classify.task import GroupLimits, Tenant
from router.pools.cost import CostWeights
from router.pools.local_pools import OnBlind, WhenAway
from router.pools.pools import BUDGET_US
from router.redis.url import parse_redis_url
from router.waiting.rules import AdaptationConfig, WaitingConfig

MAX_PORT = 65_535
MAX_WORKERS = 256

_ADMIN_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


Ceiling = Annotated[int, Meta(ge=1, le=1_000_000)]


class ConfigError(CommandError):
    """What is wrong with the configuration, and what to do about it."""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the gateway listens, and its bounds per connection."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=MAX_PORT)] = 8080
    max_message_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    connection_max_age_s: Annotated[float, Meta(gt=0)] = 3600.0  # OpenAI's and Azure's limit
    flush_interval_ms: Annotated[float, Meta(ge=0, le=1000)] = 8.0  # between deltas of a stream
    heartbeat_s: Annotated[float, Meta(gt=0)] = 15.0  # silence before a response says it lives
    send_timeout_s: Annotated[float, Meta(gt=0)] = 10.0  # a reader that stalls longer is closed
    drain_timeout_s: Annotated[float, Meta(ge=0)] = 5.0  # for responses to end after SIGTERM
    allowed_origins: tuple[str, ...] = ()  # browsers' Origin headers to accept on the socket
    tls_cert_path: str | None = None  # PEM, the chain included; with it only TLS is served
    tls_key_path: str | None = None  # PEM, not encrypted
    warm_up_timeout_s: Annotated[float, Meta(ge=0, le=60)] = 10.0  # 0: warm-ups prepare nothing
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1  # processes that share the port
    serves_link: bool = False  # offer the first backend to gateways at /v1/link


BudgetMs = Annotated[int, Meta(ge=10, le=5000)]


class RedisConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the shared state lives; without a URL an embedded Redis is started."""

    url: str | None = None
    budget_ms: BudgetMs = BUDGET_US // 1000  # docs/operations.md
    # What a group does while Redis is away, unless the policy says; those not named: "local".
    when_away: dict[BackendGroup, WhenAway] = {}
    on_blind: OnBlind = "closed"  # while it has never answered since the start


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long stored responses are kept after they were last used."""

    ttl_s: Annotated[int, Meta(ge=1)] = 24 * 3600


class ContextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done about contexts that grow: docs/context.md."""

    # Automatic compactions of one conversation; each makes it vaguer. 0: none.
    max_compactions: Annotated[int, Meta(ge=0, le=1000)] = 2


class RecordingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision log: docs/decision-log.md."""

    path: str | None = None  # a file of this process's own; None: no log
    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 100 << 20  # then the next file is begun
    keep: Annotated[int, Meta(ge=0, le=1000)] = 9  # files besides the newest


class AdminKeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key to the admin API; `name` signs what is changed with it."""

    name: str
    key: Annotated[str, Meta(min_length=8)]
    read_only: bool = False


class AdminConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may administer. Without `keys` and `$LANEWISE_ADMIN_KEY` the admin API is off, except
    that the development key's setup has a development admin key."""

    keys: tuple[AdminKeyConfig, ...] | None = None


class LedgerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the usage ledger Redis keeps until it is exported, at some 500 bytes each."""

    max_entries: Annotated[int, Meta(ge=1000, le=10_000_000)] = 100_000


class AuthConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys that are made while the gateway runs. Their peppers: `version:secret`, the current one
    first, from `$LANEWISE_KEY_PEPPERS` or a file."""

    environment: Annotated[str, Meta(pattern="^[a-z0-9]{1,16}$")] = "dev"  # part of every key
    peppers: str | None = None
    peppers_path: str | None = None
    max_stale_s: Annotated[float, Meta(ge=1)] = 3600.0  # how long keys hold while Redis is away


class TenantConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant with its keys. It may use the groups that its tier or `limits` name, no others."""

    id: str
    keys: tuple[Annotated[str, Meta(min_length=8)], ...] = ()
    tier: str = "default"
    limits: dict[BackendGroup, GroupLimits] = {}  # each instead of the tier's for that group
    access: tuple[BackendGroup, ...] | None = None  # only these groups; None: all that have limits
    weight: Weight | None = None  # None: the tier's

    def record(self) -> TenantRecord:
        """The tenant as it would be kept."""
        return TenantRecord(
            id=self.id,
            tier=self.tier,
            limits={g: msgspec.structs.asdict(limits) for g, limits in self.limits.items()},
            access=self.access,
            weight=self.weight,
        )

    def tenant(self, tiers: Mapping[str, Tier] = DEFAULT_TIERS) -> Tenant:
        """The tenant as the router knows it."""
        return resolve(self.record(), tiers)


class WaferBackendConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wafer"
):
    """A simulated wafer: a backend of the fast group."""

    name: str = "wafer"
    options: WaferOptions = WaferOptions()


class GpuBackendConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gpu"
):
    """A simulated GPU server: a backend of the deep group."""

    name: str = "gpu"
    options: GpuOptions = GpuOptions()


class LinkBackendConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="link"
):
    """An engine in another process or host (`lanewise engine`): a backend of the group it names."""

    name: str = "link"
    options: LinkOptions = LinkOptions()


class UpstreamBackendConfig(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="upstream",
    kw_only=True,
):
    """A server that we did not write: a backend of the group it names."""

    name: str = "upstream"
    options: UpstreamOptions


BackendConfig = WaferBackendConfig | GpuBackendConfig | LinkBackendConfig | UpstreamBackendConfig

# Wide enough that a developer meets them only when testing what they do.
DEVELOPMENT_TENANT = TenantConfig(
    id="dev",
    keys=(DEVELOPMENT_KEY,),
    tier="development",
    limits={
        "fast": GroupLimits(requests_per_min=6_000, tokens_per_min=20_000_000, max_concurrent=256),
        "deep": GroupLimits(requests_per_min=1_200, tokens_per_min=4_000_000, max_concurrent=64),
    },
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    server: ServerConfig = ServerConfig()
    redis: RedisConfig = RedisConfig()
    store: StoreConfig = StoreConfig()
    context: ContextConfig = ContextConfig()
    auth: AuthConfig = AuthConfig()
    ledger: LedgerConfig = LedgerConfig()
    tiers: dict[str, TierConfig] = msgspec.field(default_factory=lambda: dict(DEFAULT_TIERS))
    waiting: WaitingConfig = WaitingConfig()
    adaptation: AdaptationConfig = AdaptationConfig()
    tenants: tuple[TenantConfig, ...] = (DEVELOPMENT_TENANT,)
    backends: tuple[BackendConfig, ...] = (WaferBackendConfig(), GpuBackendConfig())
    cost_weights: dict[BackendGroup, CostWeights] = {}
    ceilings: dict[BackendGroup, Ceiling] = {}  # tasks at once, of all tenants on all gateways
    policy_path: str | None = None  # TOML; without it the default policy rules
    recording: RecordingConfig = RecordingConfig()
    policy_cache: str | None = None  # a file: the last good policy, for a start without Redis
    admin: AdminConfig = AdminConfig()


def load_config(
    toml: bytes,
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    redis_url: str | None = None,
    workers: int | None = None,
) -> Config:
    """The configuration from a file's bytes, the environment and the command line, last one wins.

    Raises:
        ConfigError: Naming the field.
    """
    try:
        config = msgspec.toml.decode(toml, type=Config)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration: {error}") from None
    redis_url = redis_url or environ.get("LANEWISE_REDIS_URL") or config.redis.url
    server = msgspec.structs.replace(
        config.server,
        host=host if host is not None else config.server.host,
        port=port if port is not None else config.server.port,
        workers=workers if workers is not None else config.server.workers,
    )
    if redis_url is None and environ.get("LANEWISE_ENV") == "production":
        raise ConfigError(
            "redis.url is not set, and LANEWISE_ENV is production: an embedded Redis forgets "
            "everything when it ends and serves one process only; name a server with --redis or "
            "LANEWISE_REDIS_URL"
        )
    redis = with_environ(msgspec.structs.replace(config.redis, url=redis_url), environ)
    config = msgspec.structs.replace(
        config,
        server=server,
        redis=redis,
        admin=_admin(config.admin, environ),
        auth=_auth(config.auth, environ),
    )
    check_config(config)
    return config


def with_environ(config: RedisConfig, environ: Mapping[str, str]) -> RedisConfig:
    """The budget that the environment names, if it does.

    Raises:
        ConfigError: It is no such number.
    """
    told = environ.get("LANEWISE_REDIS_BUDGET_MS")
    if told is None:
        return config
    try:
        budget_ms = msgspec.convert(told, BudgetMs, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"LANEWISE_REDIS_BUDGET_MS {told!r}: {error}") from None
    return msgspec.structs.replace(config, budget_ms=budget_ms)


def check_config(config: Config) -> None:
    """Check what the types cannot.

    Raises:
        ConfigError: Naming the field.
    """
    port = config.server.port  # the command line's was not decoded, so not checked either
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"server.port: expected 0 to {MAX_PORT}, got {port}")
    if not 1 <= config.server.workers <= MAX_WORKERS:
        raise ConfigError(
            f"server.workers: expected 1 to {MAX_WORKERS}, got {config.server.workers}"
        )
    if (config.server.tls_cert_path is None) != (config.server.tls_key_path is None):
        raise ConfigError("server.tls_cert_path, server.tls_key_path: TLS needs both, got one")
    seen: dict[str, str] = {}
    ids = [tenant.id for tenant in config.tenants]
    if not ids:
        raise ConfigError("tenants: at least one is needed")
    if len(set(ids)) != len(ids):
        raise ConfigError(f"tenants: ids must be unique, got {', '.join(ids)}")
    for tenant in config.tenants:
        if not TENANT_ID.fullmatch(tenant.id):
            raise ConfigError(f"tenants: id {tenant.id!r} must be 1 to 64 of a-z, 0-9 and '-'")
        for key in tenant.keys:
            if key in seen:
                raise ConfigError(f"tenants: {tenant.id!r} and {seen[key]!r} have the same key")
            seen[key] = tenant.id
        if not tenant.limits and tenant.tier not in (*config.tiers, "default"):
            raise ConfigError(
                f"tenants: {tenant.id!r} has no limits, and its tier {tenant.tier!r} is not in "
                f"tiers: expected one of {', '.join(config.tiers)}"
            )
    for name, tier in config.tiers.items():
        if (fault := fault_of_tier(name, tier)) is not None:
            raise ConfigError(f"tiers: {fault}")
    peppers(config)
    _check_admin_keys(config, seen)
    if config.redis.url is not None:
        _check_redis_url(config.redis.url)
    names = [backend.name for backend in config.backends]
    if len(set(names)) != len(names):
        raise ConfigError(f"backends: names must be unique, got {', '.join(names)}")
    if not names:
        raise ConfigError("backends: at least one is needed")
    if DEVELOPMENT_KEY in seen and not is_loopback(config.server.host):
        raise ConfigError(
            f"server.host {config.server.host!r} is reachable from elsewhere, and tenant "
            f"{seen[DEVELOPMENT_KEY]!r} has the public development key {DEVELOPMENT_KEY!r}: "
            "listen on 127.0.0.1, or configure tenants with keys of your own"
        )


def admin_keys(config: Config) -> tuple[AdminKeyConfig, ...]:
    """The keys that the admin API takes; none: it is off.

    The development admin key works where the development key does, so on loopback only.
    """
    if config.admin.keys is not None:
        return config.admin.keys
    if any(DEVELOPMENT_KEY in tenant.keys for tenant in config.tenants):
        return (AdminKeyConfig(name="development", key=DEVELOPMENT_ADMIN_KEY),)
    return ()


def peppers(config: Config, from_file: str | None = None) -> Peppers:
    """The peppers of keys made at run time; none: no keys can be made.

    The development pepper is for an embedded Redis, which forgets such keys when it ends, and
    where the development key works, which is on loopback only.

    Raises:
        ConfigError: They are not in their form.
    """
    text = from_file if from_file is not None else config.auth.peppers
    in_development = any(DEVELOPMENT_KEY in tenant.keys for tenant in config.tenants)
    if text is None and (config.redis.url is None or in_development):
        text = DEVELOPMENT_PEPPERS
    try:
        return Peppers() if text is None else parse_peppers(text)
    except ValueError as error:
        raise ConfigError(f"auth.peppers: {error}") from None


def _auth(configured: AuthConfig, environ: Mapping[str, str]) -> AuthConfig:
    """With the environment's peppers, and its name in keys where the configuration gives none."""
    from_environ = environ.get("LANEWISE_KEY_PEPPERS")
    if from_environ:
        configured = msgspec.structs.replace(configured, peppers=from_environ, peppers_path=None)
    label = re.sub("[^a-z0-9]", "", environ.get("LANEWISE_ENV", "").lower())[:16]
    if label and configured.environment == AuthConfig().environment:
        configured = msgspec.structs.replace(configured, environment=label)
    return configured


def _admin(configured: AdminConfig, environ: Mapping[str, str]) -> AdminConfig:
    """With the environment's key, which signs as `environment`."""
    key = environ.get("LANEWISE_ADMIN_KEY")
    if not key:
        return configured
    if len(key) < 8:
        raise ConfigError("LANEWISE_ADMIN_KEY: expected at least 8 characters")
    if any(known.key == key for known in configured.keys or ()):
        return configured  # the same variable names one's key on the command line
    return AdminConfig((*(configured.keys or ()), AdminKeyConfig(name="environment", key=key)))


def _check_admin_keys(config: Config, tenants_by_key: Mapping[str, str]) -> None:
    keys = config.admin.keys or ()
    for place, (name, key) in enumerate((entry.name, entry.key) for entry in keys):
        if not _ADMIN_NAME.fullmatch(name):
            raise ConfigError(
                f"admin.keys: name {name!r} must be 1 to 64 letters, digits or any of . _ @ -"
            )
        if any(name == other.name or key == other.key for other in keys[:place]):
            raise ConfigError(f"admin.keys: {name!r} has the name or the key of another")
        if key in tenants_by_key:
            raise ConfigError(
                f"admin.keys: {name!r} has the key of tenant {tenants_by_key[key]!r}: "
                "who sends tasks must not administer; use a key of its own"
            )
        if key == DEVELOPMENT_ADMIN_KEY and not is_loopback(config.server.host):
            raise ConfigError(
                f"server.host {config.server.host!r} is reachable from elsewhere, and "
                f"admin.keys {name!r} is the public development admin key: use another"
            )


def _check_redis_url(url: str) -> None:
    try:
        parse_redis_url(url)
    except ValueError as error:  # not chained: it may quote a piece of the password
        raise ConfigError(
            f"redis.url {masked_url(url)!r}: {error}. Expected redis://host:port/number, "
            "rediss://... for TLS, unix:///path/to/socket, redis+sentinel://host:port,.../master "
            "or redis+cluster://host:port,..."
        ) from None


def masked_url(url: str) -> str:
    """A Redis URL for the log: without user and password, wherever they stand in it."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"//.*@", "//***@", url))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address; an unknown name counts as public."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
