"""Says what of a changed configuration a running gateway takes. This is an edge."""

from typing import Any

import msgspec

from gateway.config.config import Config

# Taken over by a running gateway, whole sections and settings of the server.
_SECTIONS = {"tenants", "tiers", "backends", "policy_path", "ceilings", "admin", "prices"}
_OF_SERVER = {
    "allowed_origins",
    "connection_max_age_s",
    "drain_timeout_s",
    "tls_cert_path",
    "tls_key_path",
}


class ConfigChange(msgspec.Struct, frozen=True):
    """The configuration to go on with, and the settings that keep their value until a restart."""

    config: Config
    kept: list[str]


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
