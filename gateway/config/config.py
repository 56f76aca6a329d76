"""Defines the configuration: decoded from TOML once, checked once. This is an edge."""

import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from backends.relay.options import RelayOptions
from gateway.config.backend_kinds import DEFAULT_BACKENDS, BackendConfig
from gateway.config.development import DEVELOPMENT_ADMIN_KEY, DEVELOPMENT_KEY
from gateway.config.first_key import ADMIN_KEY_VARIABLE, KEY_VARIABLE, first_key, with_secret_files
from gateway.config.keys import DEVELOPMENT_PEPPERS, Peppers, parse_peppers
from gateway.config.sections import (
    DEVELOPMENT_TENANT,
    MAX_PORT,
    MAX_WORKERS,
    MIN_KEY_CHARS,
    AdminConfig,
    AdminKeyConfig,
    AuthConfig,
    BudgetMs,
    BudgetsConfig,
    Ceiling,
    ConfigError,
    ConnectionsConfig,
    ContextConfig,
    LedgerConfig,
    LogsConfig,
    MemoryConfig,
    RecordingConfig,
    RedisConfig,
    ServerConfig,
    StoreConfig,
    TenantConfig,
    TracingConfig,
    admin_address,
    first_tenant,
    is_loopback,
    masked_url,
    networks,
)
from gateway.config.tenants import DEFAULT_TIERS, TierConfig, fault_of_limits, fault_of_tier, part
from gateway.config.weak_secrets import is_sendable, weakness
from router.classify.task import TENANT_ID
from router.money.cost import CostWeights
from router.money.prices import MAX_PRICES, ModelPrice
from router.policy.document import DocumentError, read_document, suggestion
from router.policy.positions import Path
from router.redis.url import parse_redis_url
from router.waiting.rules import AdaptationConfig, WaitingConfig

MAX_CONFIG_BYTES = 4 << 20
_NOT_SENDABLE = (
    "no client can send in a header: expected visible ASCII characters, without spaces at its ends"
)
_ADMIN_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds the whole configuration, section by section."""

    server: ServerConfig = ServerConfig()
    connections: ConnectionsConfig = ConnectionsConfig()
    memory: MemoryConfig = MemoryConfig()
    redis: RedisConfig = RedisConfig()
    store: StoreConfig = StoreConfig()
    context: ContextConfig = ContextConfig()
    auth: AuthConfig = AuthConfig()
    ledger: LedgerConfig = LedgerConfig()
    tiers: dict[str, TierConfig] = msgspec.field(default_factory=lambda: dict(DEFAULT_TIERS))
    waiting: WaitingConfig = WaitingConfig()
    adaptation: AdaptationConfig = AdaptationConfig()
    tenants: tuple[TenantConfig, ...] = (DEVELOPMENT_TENANT,)
    backends: tuple[BackendConfig, ...] = DEFAULT_BACKENDS
    relays: tuple[RelayOptions, ...] = ()  # of embeddings and legacy completions
    cost_weights: dict[BackendGroup, CostWeights] = {}
    prices: Annotated[tuple[ModelPrice, ...], Meta(max_length=MAX_PRICES)] = ()
    budgets: BudgetsConfig = BudgetsConfig()
    ceilings: dict[BackendGroup, Ceiling] = {}  # tasks at once, of all tenants on all gateways
    policy_path: str | None = None  # TOML; without it the default policy rules
    recording: RecordingConfig = RecordingConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()
    policy_cache: str | None = None  # a file: the last good policy, for a start without Redis
    admin: AdminConfig = AdminConfig()

    @property
    def own_ceilings(self) -> dict[BackendGroup, int]:
        """Returns this site's part of each ceiling."""
        percent = self.server.limits_percent
        return {group: part(ceiling, percent) for group, ceiling in self.ceilings.items()}


def load_config(
    toml: bytes,
    environ: Mapping[str, str],
    *,
    name: str = "configuration",
    host: str | None = None,
    port: int | None = None,
    admin: str | None = None,
    redis_url: str | None = None,
    workers: int | None = None,
    makes_key: bool = False,
) -> Config:
    """Reads the configuration from a file's bytes, the environment and arguments; the last wins.

    If `makes_key`, the file of `auth.key_path` is written where it is missing. The message of a
    `ConfigError` names the field, and where it stands in the file, which is called `name`.
    """
    try:
        document = read_document(toml, name, MAX_CONFIG_BYTES)
        config = document.decode(Config)
    except DocumentError as error:
        raise ConfigError(str(error)) from None
    environ = with_secret_files(environ)
    redis_url = redis_url or environ.get("LANEWISE_REDIS_URL") or config.redis.url
    given = {"host": host, "port": port, "admin_address": admin, "workers": workers}
    server = msgspec.structs.replace(
        config.server, **{name: value for name, value in given.items() if value is not None}
    )
    if redis_url is None and environ.get("LANEWISE_ENV") == "production":
        raise ConfigError(
            "redis.url is not set, and LANEWISE_ENV is production: an embedded Redis forgets "
            "everything when it ends and serves one process only; name a server with --redis or "
            "LANEWISE_REDIS_URL"
        )
    redis = with_environ(msgspec.structs.replace(config.redis, url=redis_url), environ)
    written = config
    config = msgspec.structs.replace(
        config,
        server=server,
        redis=redis,
        admin=_admin(config.admin, environ),
        auth=_auth(config.auth, environ),
    )
    config = msgspec.structs.replace(config, tenants=_tenants(config, environ, makes_key))
    try:
        check_config(config)
    except ConfigError as error:
        found = document.positions.get(error.path)
        if found is None or _value(written, error.path) != _value(config, error.path):
            raise  # what is wrong is a default, or the environment's or an argument's
        raise ConfigError(f"{name}:{found.value.line}:{found.value.column}: {error}") from None
    return config


def _value(config: Any, path: Path) -> Any:
    """Returns what stands at a path of the configuration, which must exist."""
    for step in path:
        is_struct = isinstance(config, msgspec.Struct)
        config = getattr(config, str(step)) if is_struct else config[step]
    return config


def read_config(path: str | pathlib.Path | None) -> bytes:
    """Reads the file, or raises `ConfigError`; without a path the configuration is empty."""
    try:
        return b"" if path is None else pathlib.Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from error


def with_environ(config: RedisConfig, environ: Mapping[str, str]) -> RedisConfig:
    """Takes over LANEWISE_REDIS_BUDGET_MS, if set; raises `ConfigError` if it is no number."""
    given = environ.get("LANEWISE_REDIS_BUDGET_MS")
    if given is None:
        return config
    try:
        budget_ms = msgspec.convert(given, BudgetMs, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"LANEWISE_REDIS_BUDGET_MS {given!r}: {error}") from None
    return msgspec.structs.replace(config, budget_ms=budget_ms)


def check_config(config: Config) -> None:
    """Checks what the types cannot; the message of a `ConfigError` names the field."""
    port = config.server.port  # the command line's is not checked by decoding
    if not 0 <= port <= MAX_PORT:
        raise ConfigError(f"server.port: expected 0 to {MAX_PORT}, got {port}", ("server", "port"))
    separate = admin_address(config.server)
    if separate is not None and separate.port > MAX_PORT:
        raise ConfigError(
            f"server.admin_address: expected a port from 0 to {MAX_PORT}, got {separate.port}",
            ("server", "admin_address"),
        )
    if not 1 <= config.server.workers <= MAX_WORKERS:
        raise ConfigError(
            f"server.workers: expected 1 to {MAX_WORKERS}, got {config.server.workers}",
            ("server", "workers"),
        )
    if (config.server.tls_cert_path is None) != (config.server.tls_key_path is None):
        there = "tls_key_path" if config.server.tls_cert_path is None else "tls_cert_path"
        raise ConfigError(
            "server.tls_cert_path, server.tls_key_path: TLS needs both, got one", ("server", there)
        )
    try:
        networks(config.server.trusted_proxies)
    except ValueError as error:
        raise ConfigError(
            f"server.trusted_proxies: {error}; expected networks such as '10.0.0.0/8'",
            ("server", "trusted_proxies"),
        ) from None
    _check_unique("tenants", "ids", [tenant.id for tenant in config.tenants])
    _check_unique("backends", "names", [backend.name for backend in config.backends])
    _check_relays(config.relays)
    seen = _check_tenants(config)
    for name, tier in config.tiers.items():
        if (fault := fault_of_tier(name, tier)) is not None:
            raise ConfigError(f"tiers: {fault.says}", ("tiers", name))
    peppers(config)
    _check_admin_keys(config, seen)
    if config.redis.url is not None:
        _check_redis_url(config.redis.url)
    _check_secrets(config)


def _check_tenants(config: Config) -> dict[str, str]:
    """Checks each tenant, and returns the ids of those that have keys, by key."""
    seen: dict[str, str] = {}  # key -> tenant
    for index, tenant in enumerate(config.tenants):
        path: Path = ("tenants", index)
        if not TENANT_ID.fullmatch(tenant.id):
            raise ConfigError(
                f"tenants: id {tenant.id!r} must be 1 to 64 of a-z, 0-9 and '-'", (*path, "id")
            )
        for key in tenant.keys:
            if not is_sendable(key):
                raise ConfigError(
                    f"tenants: {tenant.id!r} has a key that {_NOT_SENDABLE}", (*path, "keys")
                )
            if key in seen:
                raise ConfigError(
                    f"tenants: {tenant.id!r} and {seen[key]!r} have the same key", (*path, "keys")
                )
            seen[key] = tenant.id
        if not tenant.limits and tenant.tier not in (*config.tiers, "default"):
            raise ConfigError(
                f"tenants: {tenant.id!r} has no limits, and its tier {tenant.tier!r} is not in "
                f"tiers: expected one of {', '.join(config.tiers)}"
                f"{suggestion(tenant.tier, config.tiers)}",
                (*path, "tier"),
            )
        if (fault := fault_of_limits(tenant.limits)) is not None and fault.field is not None:
            raise ConfigError(
                f"tenants: {tenant.id!r}: {fault.says}", (*path, *fault.field.split("."))
            )
    return seen


def _check_relays(relays: tuple[RelayOptions, ...]) -> None:
    if relays:
        _check_unique("relays", "models", [f"{each.path} {each.model}" for each in relays])
    for index, relay in enumerate(relays):
        try:
            relay.upstream()
        except ValueError as error:
            name = str(error).partition(":")[0]
            raise ConfigError(f"relays[{index}].{error}", ("relays", index, name)) from None


def is_public(config: Config) -> bool:
    """Says whether another machine reaches the gateway."""
    separate = admin_address(config.server)
    hosts = [config.server.host, *([] if separate is None else [separate.host])]
    return not all(map(is_loopback, hosts))


def _check_secrets(config: Config) -> None:
    """Refuses published and weak keys where another machine could try them."""
    if not is_public(config):
        return
    keys: list[tuple[str, str, Path]] = [
        (f"tenants: {tenant.id!r}", key, ("tenants", index, "keys"))
        for index, tenant in enumerate(config.tenants)
        for key in tenant.keys
    ]
    for index, entry in enumerate(admin_keys(config)):
        keys.append((f"admin.keys: {entry.name!r}", entry.key, ("admin", "keys", index, "key")))
    for owner, key, path in keys:
        fault = weakness(key)
        if fault is None:
            continue
        kind = " (the development key)" if key in (DEVELOPMENT_KEY, DEVELOPMENT_ADMIN_KEY) else ""
        raise ConfigError(
            f"{owner} has a key{kind} that {fault}, and server.host {config.server.host!r} or "
            "server.admin_address is reachable from elsewhere: make one with `openssl rand -hex "
            "32`, or give no keys here and make them with `lanewise keys create`; without tenants, "
            f"set {KEY_VARIABLE} or auth.key_path; or listen on 127.0.0.1",
            path,
        )


def _check_unique(section: str, what: str, names: list[str]) -> None:
    if not names:
        raise ConfigError(f"{section}: at least one is needed", (section,))
    if len(set(names)) != len(names):
        raise ConfigError(f"{section}: {what} must be unique, got {', '.join(names)}", (section,))


def admin_keys(config: Config) -> tuple[AdminKeyConfig, ...]:
    """Returns the keys of the admin API, which is off if there are none.

    The development admin key works where the development key does, so on loopback only.
    """
    if config.admin.keys is not None:
        return config.admin.keys
    if any(DEVELOPMENT_KEY in tenant.keys for tenant in config.tenants):
        return (AdminKeyConfig(name="development", key=DEVELOPMENT_ADMIN_KEY),)
    return ()


def peppers(config: Config, from_file: str | None = None) -> Peppers:
    """Returns the peppers of keys made at run time, or raises `ConfigError`; there may be none.

    The development pepper is for an embedded Redis, which forgets its keys when it ends, and for
    setups with the development key, which are on loopback only.
    """
    text = from_file if from_file is not None else config.auth.peppers
    in_development = any(DEVELOPMENT_KEY in tenant.keys for tenant in config.tenants)
    is_hidden = not is_public(config)
    if text is None and is_hidden and (config.redis.url is None or in_development):
        text = DEVELOPMENT_PEPPERS
    try:
        known = Peppers() if text is None else parse_peppers(text)
    except ValueError as error:
        raise ConfigError(f"auth.peppers: {error}", ("auth", "peppers")) from None
    for version, pepper in () if is_hidden else known.by_version.items():
        if (fault := weakness(pepper.decode())) is not None:
            raise ConfigError(
                f"auth.peppers: pepper {version!r} {fault}: make one with `openssl rand -hex 32`",
                ("auth", "peppers"),
            )
    return known


def _tenants(
    config: Config, environ: Mapping[str, str], makes_key: bool
) -> tuple[TenantConfig, ...]:
    """Returns the tenants; where none is named, a public gateway has one with a key of its own."""
    path = config.auth.key_path
    if config.tenants != (DEVELOPMENT_TENANT,) or (path is None and not is_public(config)):
        return config.tenants
    key = environ.get(KEY_VARIABLE)
    if not key and path is not None:
        key = first_key(path, makes=makes_key)
    if not key:
        return config.tenants
    if len(key) < MIN_KEY_CHARS:
        raise ConfigError(
            f"{KEY_VARIABLE}, auth.key_path: expected at least {MIN_KEY_CHARS} characters"
        )
    return (first_tenant(key),)


def _auth(configured: AuthConfig, environ: Mapping[str, str]) -> AuthConfig:
    """Adds the environment's peppers, and its name unless the configuration gives one."""
    from_environ = environ.get("LANEWISE_KEY_PEPPERS")
    if from_environ:
        configured = msgspec.structs.replace(configured, peppers=from_environ, peppers_path=None)
    label = re.sub("[^a-z0-9]", "", environ.get("LANEWISE_ENV", "").lower())[:16]
    if label and configured.environment == AuthConfig().environment:
        configured = msgspec.structs.replace(configured, environment=label)
    return configured


def _admin(configured: AdminConfig, environ: Mapping[str, str]) -> AdminConfig:
    """Adds the environment's key, whose changes are signed `environment`."""
    key = environ.get(ADMIN_KEY_VARIABLE)
    if not key:
        return configured
    if len(key) < MIN_KEY_CHARS:
        raise ConfigError(f"{ADMIN_KEY_VARIABLE}: expected at least {MIN_KEY_CHARS} characters")
    if any(known.key == key for known in configured.keys or ()):
        return configured  # commands read their key from the same variable
    return AdminConfig((*(configured.keys or ()), AdminKeyConfig(name="environment", key=key)))


def _check_admin_keys(config: Config, tenants_by_key: Mapping[str, str]) -> None:
    keys = config.admin.keys or ()
    for index, (name, key) in enumerate((entry.name, entry.key) for entry in keys):
        path: Path = ("admin", "keys", index)
        if not _ADMIN_NAME.fullmatch(name):
            raise ConfigError(
                f"admin.keys: name {name!r} must be 1 to 64 letters, digits or any of . _ @ -",
                (*path, "name"),
            )
        if not is_sendable(key):
            raise ConfigError(
                f"admin.keys: {name!r} has a key that {_NOT_SENDABLE}", (*path, "key")
            )
        if any(name == other.name or key == other.key for other in keys[:index]):
            raise ConfigError(f"admin.keys: {name!r} has the name or the key of another", path)
        if key in tenants_by_key:
            raise ConfigError(
                f"admin.keys: {name!r} has the key of tenant {tenants_by_key[key]!r}: "
                "who sends tasks must not administer; use a key of its own",
                path,
            )


def _check_redis_url(url: str) -> None:
    try:
        parse_redis_url(url)
    except ValueError as error:  # not chained: it may quote a piece of the password
        raise ConfigError(
            f"redis.url {masked_url(url)!r}: {error}. Expected redis://host:port/number, "
            "rediss://... for TLS, unix:///path/to/socket, redis+sentinel://host:port,.../master "
            "or redis+cluster://host:port,...",
            ("redis", "url"),
        ) from None
