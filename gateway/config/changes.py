"""Says what of a changed configuration a running gateway takes. This is an edge."""

from typing import Any

import msgspec

from gateway.config.config import Config
from gateway.config.sections import DEVELOPMENT_TENANT, first_tenant

# A running gateway takes these over: whole sections, and settings of the server.
_SECTIONS = {"tenants", "tiers", "backends", "policy_path", "ceilings", "admin", "prices"}
_OF_SERVER = {
    "allowed_origins",
    "connection_max_age_s",
    "drain_timeout_s",
    "tls_cert_path",
    "tls_key_path",
}

_OF_FILES = _SECTIONS - {"tenants", "admin"}  # to which the environment may add
_MAX_NAMED = 5
_IF_MEANT = "If that is meant, start the gateway again"


class ConfigChange(msgspec.Struct, frozen=True):
    """Holds the configuration to go on with, and names the settings that wait for a restart."""

    config: Config
    kept: list[str]


def fault_of_change(running: Config, wanted: Config) -> str | None:
    """Returns why a running gateway must not take a configuration; None if it may.

    A file is empty for a moment while an editor writes it, and an empty one is valid: it stands for
    a gateway of development, with a key that everybody knows and simulated engines.
    """
    if _names_tenants(wanted):
        return None
    if _names_tenants(running):
        ids = [tenant.id for tenant in running.tenants]
        lost = f"{', '.join(ids[:_MAX_NAMED])}{', ...' if len(ids) > _MAX_NAMED else ''}"
        return (
            f"tenants: the file names none, and {lost} would give way to the tenant "
            f"{wanted.tenants[0].id!r} of a gateway without a configuration. {_IF_MEANT}"
        )
    default = Config()
    is_empty = all(getattr(wanted, name) == getattr(default, name) for name in _OF_FILES)
    if is_empty and running.backends != default.backends:
        return (
            "backends: the file is empty, and they would give way to the simulated engines of a "
            f"gateway without a configuration. {_IF_MEANT}"
        )
    return None


def _names_tenants(config: Config) -> bool:
    """Says whether the tenants are a file's own, and no other that stands in for them."""
    keys = config.tenants[0].keys
    return config.tenants not in ((DEVELOPMENT_TENANT,), (first_tenant("".join(keys[:1])),))


def config_change(running: Config, wanted: Config) -> ConfigChange:
    """Returns what a gateway goes on with that runs with one configuration and is given another."""
    taken = set(_SECTIONS)
    if wanted.ceilings.keys() != running.ceilings.keys():
        taken.discard("ceilings")  # only their heights change
    of_server = set(_OF_SERVER)
    if (wanted.server.tls_cert_path is None) != (running.server.tls_cert_path is None):
        of_server -= {"tls_cert_path", "tls_key_path"}
    kept = [
        *(f"server.{name}" for name in _differing(running.server, wanted.server) - of_server),
        *(name for name in _differing(running, wanted) - taken - {"server"}),
    ]
    return ConfigChange(
        _with(
            running,
            wanted,
            taken,
            server=_with(running.server, wanted.server, of_server),
        ),
        sorted(kept),
    )


def _differing(running: msgspec.Struct, wanted: msgspec.Struct) -> set[str]:
    names = running.__struct_fields__
    return {name for name in names if getattr(running, name) != getattr(wanted, name)}


def _with(running: Any, wanted: Any, names: set[str], **others: Any) -> Any:
    """Returns the running Struct with the wanted one's values of these names."""
    taken = {name: getattr(wanted, name) for name in names}
    return msgspec.structs.replace(running, **taken, **others)
