"""Tests what of a changed configuration a running gateway takes, and what it names."""

import pytest

from gateway.config.changes import config_change, fault_of_change
from gateway.config.config import load_config

TENANT = b"""
[[tenants]]
id = "acme"
keys = ["sk-acme-1234"]
"""

# before, after, the settings that need a restart
CHANGES: list[tuple[bytes, bytes, list[str]]] = [
    (b"", b"", []),
    (b"", TENANT, []),
    (b"", b"[[backends]]\nkind = 'gpu'", []),
    (b"", b"policy_path = 'policy.toml'", []),
    (b"", b"[tiers.trial]\nweight = 2.0", []),
    (b"[ceilings]\nfast = 1", b"[ceilings]\nfast = 2", []),
    (b"[ceilings]\nfast = 1", b"", ["ceilings"]),
    (b"", b"[server]\ndrain_timeout_s = 1\nallowed_origins = ['https://a']", []),
    (
        b"",
        TENANT + b"[server]\nport = 1234\nworkers = 3\n[redis]\nurl = 'redis://elsewhere'",
        ["redis", "server.port", "server.workers"],
    ),
    (
        b"",
        b"[server]\ntls_cert_path = 'a'\ntls_key_path = 'b'",
        ["server.tls_cert_path", "server.tls_key_path"],
    ),
    (
        b"[server]\ntls_cert_path = 'a'\ntls_key_path = 'a'",
        b"[server]\ntls_cert_path = 'b'\ntls_key_path = 'b'",
        [],
    ),
]


@pytest.mark.parametrize(("before", "after", "kept"), CHANGES)
def test_changes(before: bytes, after: bytes, kept: list[str]) -> None:
    running, wanted = load_config(before, {}), load_config(after, {})
    found = config_change(running, wanted)
    assert found.kept == kept
    assert (found.config == wanted) is (not kept)
    assert found.config.tenants == wanted.tenants
    assert found.config.server.port == running.server.port
    assert found.config.redis == running.redis
    assert config_change(found.config, wanted).kept == kept, "named again until a restart"


BACKEND = b"[[backends]]\nkind = 'gpu'"

# before, after, what would be lost
LOSSES: list[tuple[bytes, bytes, str | None]] = [
    (TENANT, b"", "acme would give way to the tenant 'dev'"),
    (TENANT, BACKEND, "acme would give way"),
    (TENANT + TENANT.replace(b"acme", b"beta"), b"# an editor's first line", "acme, beta"),
    (BACKEND, b"", "simulated engines"),
    (TENANT, TENANT.replace(b"acme", b"beta"), None),
    (BACKEND, TENANT, None),
    (BACKEND, b"policy_path = 'policy.toml'", None),
    (b"", b"", None),
    (b"", TENANT, None),
]


@pytest.mark.parametrize(("before", "after", "lost"), LOSSES)
def test_an_empty_file_takes_nothing_away(before: bytes, after: bytes, lost: str | None) -> None:
    fault = fault_of_change(load_config(before, {}), load_config(after, {}))
    assert (fault is None) is (lost is None)
    assert lost is None or (fault is not None and lost in fault)


def test_an_empty_file_takes_nothing_away_for_a_key_of_the_environment() -> None:
    environ = {"LANEWISE_API_KEY": "sk-4c1b0c7d9a6e5f8b"}
    of_environ = load_config(b"", environ, host="0.0.0.0")
    named = load_config(
        TENANT.replace(b"sk-acme-1234", b"sk-9d2e7a41c05bf836"), environ, host="0.0.0.0"
    )
    assert of_environ.tenants[0].id == "default"
    assert "acme would give way to the tenant 'default'" in str(fault_of_change(named, of_environ))
    assert fault_of_change(of_environ, of_environ) is None
    assert fault_of_change(of_environ, named) is None
