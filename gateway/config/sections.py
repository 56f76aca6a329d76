"""Defines the sections of the configuration: what each holds, with its defaults."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.config.command_error import CommandError
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.tenants import (
    DEFAULT_TIERS,
    WHOLE_PERCENT,
    TenantRecord,
    TenantTerms,
    Tier,
    resolve,
)
from router.classify.task import GroupLimits, Tenant
from router.policy.positions import Path
from router.pools.local_pools import OnBlind, WhenAway
from router.pools.pools import BUDGET_US

MAX_PORT = 65_535
MAX_WORKERS = 256

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Ceiling = Annotated[int, Meta(ge=1, le=1_000_000)]

MIN_KEY_CHARS = 8

# A key; no message quotes it.
Secret = Annotated[str, Meta(min_length=MIN_KEY_CHARS, extra={"secret": True})]


class ConfigError(CommandError):
    """The configuration is wrong; the message says what to do, and `path` where it is wrong."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets the gateway's address, and its limits per connection."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=MAX_PORT)] = 8080
    # HOST:PORT of metrics, schema and admin; None: see `admin_address`.
    admin_address: str | None = None
    max_message_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    connection_max_age_s: Annotated[float, Meta(gt=0)] = 3600.0  # OpenAI's and Azure's limit
    flush_interval_ms: Annotated[float, Meta(ge=0, le=1000)] = 8.0  # between deltas of a stream
    heartbeat_s: Annotated[float, Meta(gt=0)] = 15.0  # silence before a response says it lives
    send_timeout_s: Annotated[float, Meta(gt=0)] = 10.0  # a reader that stalls longer is closed
    # Background responses of a tenant in one process, running or kept for their events, of 256.
    max_background_per_tenant: Annotated[int, Meta(ge=1, le=256)] = 64
    # Of text that a client leaves unread, before its upstream is paused or it is cut.
    max_unread_bytes: Annotated[int, Meta(ge=1 << 16, le=1 << 30)] = 1 << 20
    # How long responses go on whose connection was lost, and what they may cost meanwhile, in
    # weighted tokens; 0: they stop at once. One that ended is kept for longer (docs/rejoin.md).
    rejoin_grace_s: Annotated[float, Meta(ge=0, le=600)] = 20.0
    rejoin_grace_tokens: Annotated[int, Meta(ge=0)] = 16_384
    rejoin_keep_s: Annotated[float, Meta(ge=0, le=3600)] = 600.0
    drain_timeout_s: Annotated[float, Meta(ge=0)] = 5.0  # for responses to end after SIGTERM
    # Origins whose pages may use the socket, and read answers over HTTP; "*": all.
    allowed_origins: tuple[str, ...] = ()
    tls_cert_path: str | None = None  # PEM, the chain included; with it only TLS is served
    tls_key_path: str | None = None  # PEM, not encrypted
    warm_up_timeout_s: Annotated[float, Meta(ge=0, le=60)] = 10.0  # 0: warm-ups prepare nothing
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] = 1  # processes that share the port
    # This site's part of all limits, ceilings and budgets, where others serve the same tenants.
    limits_percent: Annotated[int, Meta(ge=1, le=100)] = WHOLE_PERCENT
    serves_link: bool = False  # offer the first backend to gateways at /v1/link
    # Networks whose PROXY protocol, `Forwarded` and `X-Forwarded-For` name the client's address.
    trusted_proxies: tuple[str, ...] = ()


class ConnectionsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds connections, in each process (docs/operations.md)."""

    max_per_key: Annotated[int, Meta(ge=1)] = 4_096
    max_per_address: Annotated[int, Meta(ge=1)] = 256  # without a key
    without_key_s: Seconds = 30.0  # how long one lives that shows no valid key
    handshake_s: Seconds = 10.0  # of TLS, and for a proxy's header
    head_s: Seconds = 10.0  # from a request's first byte to the end of its headers
    body_s: Seconds = 20.0  # then to the end of its body, and longer the more of it came:
    body_bytes_per_s: Annotated[int, Meta(ge=1)] = 4_096  # as slow as a client may send it
    idle_s: Seconds = 75.0  # between two requests; longer than most clients and balancers keep one


BudgetMs = Annotated[int, Meta(ge=10, le=5000)]


class RedisConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names the Redis of the shared state; without a URL an embedded one is started."""

    url: str | None = None
    budget_ms: BudgetMs = BUDGET_US // 1000  # docs/operations.md
    # What a group does while Redis is away, unless the policy says; "local" by default.
    when_away: dict[BackendGroup, WhenAway] = {}
    on_blind: OnBlind = "closed"  # while it has never answered since the start


Bytes = Annotated[int, Meta(ge=1 << 20)]


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds what tenants may have in the memory of one process (docs/operations.md)."""

    # Of requests that are being read, wait or run; beyond it they are refused.
    max_tenant_in_flight_bytes: Bytes = 128 << 20
    max_in_flight_bytes: Bytes = 1 << 30
    # Of responses that connections remember, to be continued, and of ended background responses'
    # events; beyond it the oldest are forgotten.
    max_tenant_remembered_bytes: Bytes = 128 << 20
    max_remembered_bytes: Bytes = 1 << 30


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures the store of responses, each kept for `ttl_s` after its last use."""

    ttl_s: Annotated[int, Meta(ge=1)] = 24 * 3600
    # Bytes of one tenant's responses, and of all tenants'. None: a quarter and three of Redis's
    # `maxmemory`, or of 4 GiB where it has none.
    max_tenant_bytes: Annotated[int, Meta(ge=1 << 16)] | None = None
    max_bytes: Annotated[int, Meta(ge=1 << 16)] | None = None


class ContextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures the compaction of long contexts (docs/context.md)."""

    # Automatic compactions of one conversation; each makes it vaguer. 0: none.
    max_compactions: Annotated[int, Meta(ge=0, le=1000)] = 2


class RecordingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures the decision log (docs/decision-log.md)."""

    path: str | None = None  # a file of this process's own; None: no log
    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 100 << 20  # then the next file is begun
    keep: Annotated[int, Meta(ge=0, le=1000)] = 9  # files besides the newest


class LogsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures the log on standard error (docs/logs.md)."""

    format: Literal["auto", "json", "text"] = "auto"  # text on a terminal, else JSON
    tasks: bool = True  # a line per task that ends


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traces for an OpenTelemetry collector (docs/tracing.md)."""

    # Of OTLP over HTTP: http://collector:4318/v1/traces; None: none.
    endpoint: Annotated[str, Meta(pattern="^https?://")] | None = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01  # of tasks whose callers do not decide
    service_name: str = "lanewise"
    timeout_s: Seconds = 10.0  # of the collector's answer


class AdminKeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Is a key to the admin API; `name` is the author of its changes."""

    name: str
    key: Secret
    read_only: bool = False


class AdminConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds the admin API's keys. Without any it is off, unless the development key is in use."""

    keys: tuple[AdminKeyConfig, ...] | None = None


class LedgerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds the usage ledger in Redis, at some 500 bytes per entry."""

    max_entries: Annotated[int, Meta(ge=1000, le=10_000_000)] = 100_000


class BudgetsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says who hears that a budget is spent (docs/money.md)."""

    webhook_url: Annotated[str, Meta(pattern="^https?://")] | None = None  # gets a POST for each


class AuthConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures keys made at run time. Peppers are `version:secret`, the current one first."""

    environment: Annotated[str, Meta(pattern="^[a-z0-9]{1,16}$")] = "dev"  # part of every key
    peppers: str | None = None
    peppers_path: str | None = None
    max_stale_s: Annotated[float, Meta(ge=1)] = 3600.0  # how long keys hold while Redis is away
    # A file with the key of a configuration that names no tenants; made with the first start.
    key_path: str | None = None


class TenantConfig(TenantTerms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Describes a tenant with its keys; it may use only groups that its tier or `limits` name."""

    id: str
    keys: tuple[Secret, ...] = ()
    tier: str = "default"
    # Each instead of the tier's for that group.
    limits: dict[BackendGroup, GroupLimits] = msgspec.field(default_factory=dict)

    def record(self) -> TenantRecord:
        """Returns the tenant as a record."""
        given = msgspec.structs.asdict(self)
        del given["keys"]
        given["limits"] = {g: msgspec.structs.asdict(limits) for g, limits in self.limits.items()}
        return TenantRecord(**given)

    def tenant(self, tiers: Mapping[str, Tier] = DEFAULT_TIERS) -> Tenant:
        """Returns the tenant with its limits resolved."""
        return resolve(self.record(), tiers)


# Wide enough to be met only by who tests them.
DEVELOPMENT_TENANT = TenantConfig(
    id="dev",
    keys=(DEVELOPMENT_KEY,),
    tier="development",
    limits={
        "fast": GroupLimits(requests_per_min=6_000, tokens_per_min=20_000_000, max_concurrent=256),
        "deep": GroupLimits(requests_per_min=1_200, tokens_per_min=4_000_000, max_concurrent=64),
    },
)


def first_tenant(key: str) -> TenantConfig:
    """Returns the tenant of a configuration that names none, on a public address."""
    return msgspec.structs.replace(DEVELOPMENT_TENANT, id="default", keys=(key,), tier="default")


class Address(NamedTuple):
    """Says where a socket listens; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def admin_address(server: ServerConfig) -> Address | None:
    """Returns where metrics, schema and admin are served; None: where everything is.

    Unless configured, that is beside a public gateway only: the next port, on loopback. Raises
    `ConfigError` if what is configured is no address.
    """
    public = Address(server.host, server.port)
    if server.admin_address is None:
        if is_loopback(server.host):
            return None
        return Address("127.0.0.1", server.port + 1 if server.port else 0)
    host, _, port = server.admin_address.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal():
        raise ConfigError(
            f"server.admin_address {server.admin_address!r}: expected HOST:PORT",
            ("server", "admin_address"),
        )
    address = Address(host.removeprefix("[").removesuffix("]"), int(port))
    return None if address == public else address


def masked_url(url: str) -> str:
    """Returns a Redis URL without user and password, for logs."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"//.*@", "//***@", url))


def networks(
    addresses: tuple[str, ...],
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Returns networks written as `10.0.0.0/8` or as one address; raises `ValueError`."""
    return tuple(ipaddress.ip_network(address) for address in addresses)


def is_loopback(host: str) -> bool:
    """Says whether only this machine reaches the address; an unknown name counts as public."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
