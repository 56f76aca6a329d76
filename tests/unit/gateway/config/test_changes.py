"""What of a changed configuration a running gateway takes, and what it names."""

import pytest

from gateway.config.changes import config_change
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
