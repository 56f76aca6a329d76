"""Tests what of a changed file a running gateway refuses."""

import pytest

from gateway.config.command_error import CommandError
from gateway.config.config import load_config
from gateway.process.reload import changed

TENANT = b"[[tenants]]\nid = 'acme'\nkeys = ['%s']\n"
PUBLIC = b"[server]\nhost = '0.0.0.0'\n" + TENANT % b"sk-9d2e7a41c05bf836"


@pytest.mark.parametrize("key", [b"sk-lanewise-dev", b"sk-weak-key"])
def test_a_weak_key_is_refused_on_the_address_in_use(key: bytes) -> None:
    # The file names a loopback address, which would hold from the next start on.
    wanted = load_config(TENANT % key, {})
    with pytest.raises(CommandError, match=r"'acme' has a key .*'0\.0\.0\.0'"):
        changed(load_config(PUBLIC, {}), lambda: wanted)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(CommandError, match="acme would give way"):
        changed(load_config(PUBLIC, {}), lambda: load_config(b"", {}))
