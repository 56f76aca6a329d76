"""The sections of the configuration: what each holds, with its defaults."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.config.command_error import CommandError
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.tenants import DEFAULT_TIERS, TenantRecord, Tier, Weight, resolve
from router.classify.task import GroupLimits, Tenant
from router.pools.local_pools import OnBlind, WhenAway
from router.pools.pools import BUDGET_US

MAX_PORT = 65_535
MAX_WORKERS = 256

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
